//! Asks the other ends of paths about each epoch that has ended, gives them tables, and answers their questions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::access::{Denied, Identity};
use agent_runtime::clock::unix_now;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::Channel;
use wire::proto::fragments as proto;
use wire::proto::fragments::fragments_client::FragmentsClient;
use wire::proto::fragments::fragments_server::Fragments;
use wire::time::Nanos;

use super::super::fragment::{EpochResult, FragmentMetrics, FragmentState, locked};
use super::super::interval::interval_number;
use super::access::PeerAccess;
use super::certificates::PeerCertificates;
use super::client::{BoxError, PeerConnection};
use crate::config::FragmentConfig;

/// Most bytes of a message.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// How often the other end is asked about an epoch: it may end it a little later.
const TRIES: u32 = 6;

/// What the tasks of the fragment need.
#[derive(Debug)]
pub(crate) struct FragmentTask {
    pub(crate) config: FragmentConfig,
    pub(crate) state: Arc<Mutex<FragmentState>>,
    pub(crate) ended_epoch: watch::Receiver<u32>,
    pub(crate) metrics: FragmentMetrics,
}

/// The current epoch.
pub(crate) fn epoch_now(epoch_ms: u32) -> u32 {
    interval_number(unix_now(), Nanos::from_millis(epoch_ms.into())) as u32
}

/// Follows the epochs until the ring ends.
///
/// # Errors
///
/// An address that no connection can be made to.
pub(super) async fn run(
    mut task: FragmentTask,
    certificates: PeerCertificates,
    access: PeerAccess,
) -> Result<(), BoxError> {
    let connect = |peer: &crate::config::FragmentPeer| PeerConnection::new(&peer.at, &certificates.client, &access);
    let mut peers: Vec<_> = task.config.peers.iter().map(connect).collect::<Result<_, _>>()?;
    let mut failing = vec![false; peers.len()];
    let epoch_ms = task.config.epoch_ms.get();
    while task.ended_epoch.changed().await.is_ok() {
        let epoch = *task.ended_epoch.borrow_and_update();
        let mut calls = JoinSet::new();
        for (place, peer) in peers.iter_mut().enumerate() {
            let client = FragmentsClient::new(peer.current())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES);
            let exchange = exchange(Arc::clone(&task.state), client, place, epoch, epoch_ms);
            calls.spawn(async move { (place, exchange.await) });
        }
        while let Some(Ok((place, outcome))) = calls.join_next().await {
            let peer = task.config.peers.get(place).map_or("", |peer| &peer.at);
            if let (Some(failed), Err(why)) = (failing.get(place), &outcome)
                && !failed
            {
                tracing::warn!(peer, why, "flows are counted at both ends: the other one did not agree on a table");
            }
            failing.get_mut(place).into_iter().for_each(|failed| *failed = outcome.is_err());
        }
        if let Some(found) = locked(&task.state).result(epoch) {
            task.metrics.write(&found);
            log(&found);
        }
    }
    Ok(())
}

fn log(found: &EpochResult) {
    let flows = found.heaviest.iter().map(|(flow, estimate)| format!("{flow} = {}", estimate.count));
    tracing::debug!(
        epoch = found.epoch,
        passed = found.passed,
        counted = found.counted,
        oversized = found.oversized,
        whole = found.whole,
        agreed = found.agreed,
        paths = found.paths,
        unknown = found.unknown,
        flows = flows.collect::<Vec<_>>().join(", "),
        "an epoch of the fragment was counted"
    );
}

/// Asks the other end of a path about `epoch`, and gives it the next table if this end makes it.
async fn exchange(
    state: Arc<Mutex<FragmentState>>,
    mut client: FragmentsClient<Channel>,
    place: usize,
    epoch: u32,
    epoch_ms: u32,
) -> Result<(), String> {
    // A sixteenth of the epoch: what comes later than its end is of no use.
    let patience = Duration::from_millis(u64::from(epoch_ms) / 16);
    let question = locked(&state).question(place, epoch);
    let mut outcome = Err("it has not ended the epoch: clocks differ, or no packet is read there".to_owned());
    for _ in 0..TRIES {
        match call(&mut client, question.clone(), patience).await {
            Ok(reply) => {
                if locked(&state).take_reply(place, &question, reply) {
                    outcome = Ok(());
                    break;
                }
            }
            Err(why) => outcome = Err(why),
        }
        sleep(patience).await;
    }
    outcome?;
    let made = epoch_now(epoch_ms);
    let request = locked(&state).table_to_send(place, made, rand::random());
    let Some(request) = request else { return Ok(()) };
    let mut why = String::new();
    for _ in 0..TRIES {
        match call(&mut client, request.clone(), patience).await {
            Ok(reply) if reply.taken => {
                locked(&state).acknowledged(place, epoch_now(epoch_ms), made);
                return Ok(());
            }
            Ok(reply) => return Err(reply.refused),
            Err(failed) => why = failed,
        }
    }
    Err(why)
}

async fn call(
    client: &mut FragmentsClient<Channel>,
    request: proto::FragmentRequest,
    patience: Duration,
) -> Result<proto::FragmentReply, String> {
    match timeout(patience, client.exchange(request)).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(format!("{}: {}", status.code(), status.message())),
        Err(_) => Err(format!("no reply within {} ms", patience.as_millis())),
    }
}

/// The gRPC service: answers the other ends of this fragment's paths.
#[derive(Debug)]
pub(super) struct FragmentsService {
    pub(super) state: Arc<Mutex<FragmentState>>,
    pub(super) epoch_ms: u32,
    pub(super) access: PeerAccess,
}

#[tonic::async_trait]
impl Fragments for FragmentsService {
    async fn exchange(
        &self,
        request: tonic::Request<proto::FragmentRequest>,
    ) -> Result<tonic::Response<proto::FragmentReply>, Status> {
        // The server puts it there; a request without it is nobody's.
        let nobody = Identity::Certificate(Vec::new());
        let who = request.extensions().get::<Identity>().unwrap_or(&nobody);
        let denied = |denied: Denied| Status::permission_denied(denied.to_string());
        self.access.require(who, "count flows together with this agent").map_err(denied)?;
        let from = request.get_ref().from;
        let mut state = locked(&self.state);
        // Whoever has a certificate speaks for its own fragment only.
        let speaks = |host: &str| *who == Identity::Anyone || who.node_names().any(|name| name == host);
        if state.host(from).is_some_and(|host| !speaks(host)) {
            let text =
                format!("{who} does not speak for fragment {from}: no name of it is in network.fragment.peers.at");
            return Err(Status::permission_denied(text));
        }
        let reply = state.reply(request.get_ref(), epoch_now(self.epoch_ms)).map_err(Status::invalid_argument)?;
        Ok(tonic::Response::new(reply))
    }
}
