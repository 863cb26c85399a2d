//! Takes, renews and releases the Lease by which one replica acts.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::calls::within;
use crate::clock::{self, Clock};
use crate::election::{ACT, Sighting, Step, held, released};

/// Name of the Lease.
pub(crate) const NAME: &str = "uview-controller";

/// Whether this replica acts.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// The name of this replica.
    pub(crate) me: String,
    clock: Clock,
    /// Until when it acts, by the clock.
    until: Mutex<Option<Duration>>,
}

impl Leadership {
    /// It does not act yet.
    pub(crate) fn new(me: String) -> Self {
        Self { me, clock: Clock::start(), until: Mutex::default() }
    }

    /// Whether this replica acts now. It ends by itself if the lease cannot be renewed.
    pub(crate) fn holds(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| self.clock.now() < until)
    }

    fn set(&self, until: Option<Duration>) {
        let before = self.holds();
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        if before != until.is_some() {
            tracing::info!(acts = !before, replica = self.me, "the lease changes hands");
        }
    }
}

/// Looks at the lease every `look`, for ever.
pub(crate) async fn run(leases: &Api<Lease>, leadership: &Leadership, look: Duration) {
    let mut sighting = Sighting::default();
    let mut ticks = tokio::time::interval(look);
    loop {
        ticks.tick().await;
        let asked = leadership.clock.now();
        match once(leases, leadership, &mut sighting, asked).await {
            Ok(true) => leadership.set(Some(asked + ACT)),
            // Somebody else has it.
            Ok(false) => leadership.set(None),
            // What was renewed before is good until then.
            Err(error) => tracing::debug!(error, "the lease cannot be read or written"),
        }
    }
}

/// Whether the lease is ours now.
async fn once(
    leases: &Api<Lease>,
    leadership: &Leadership,
    sighting: &mut Sighting,
    now: Duration,
) -> Result<bool, String> {
    let me = leadership.me.as_str();
    let lease = within(leases.get_opt(NAME)).await?;
    let spec = lease.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
    let step = sighting.step(spec.as_ref(), me, now);
    if step == Step::Wait {
        return Ok(false);
    }
    let spec = Some(held(spec.as_ref(), me, &MicroTime(clock::wall())));
    let written = if let Some(lease) = lease {
        // With the version that was read: who comes second is refused.
        within(leases.replace(NAME, &PostParams::default(), &Lease { spec, ..lease })).await
    } else {
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        within(leases.create(&PostParams::default(), &Lease { metadata, spec })).await
    };
    written.map(|_| true)
}

/// Gives the lease back, so that the other replica acts at once.
pub(crate) async fn release(leases: &Api<Lease>, leadership: &Leadership) {
    if !leadership.holds() {
        return;
    }
    leadership.set(None);
    if let Err(error) = give_back(leases, &leadership.me).await {
        tracing::info!(error, "the lease cannot be given back: it expires in 15 s");
    }
}

async fn give_back(leases: &Api<Lease>, me: &str) -> Result<(), String> {
    let Some(lease) = within(leases.get_opt(NAME)).await? else { return Ok(()) };
    let Some(spec) = lease.spec.as_ref().filter(|spec| spec.holder_identity.as_deref() == Some(me)) else {
        return Ok(());
    };
    let lease = Lease { spec: Some(released(spec)), ..lease };
    within(leases.replace(NAME, &PostParams::default(), &lease)).await.map(drop)
}

/// The leases of `namespace`.
pub(crate) fn leases(client: Client, namespace: &str) -> Api<Lease> {
    Api::namespaced(client, namespace)
}
