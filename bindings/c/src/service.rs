//! Opening, status, closing.
#![expect(unsafe_code, reason = "symbols without mangled names")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Duration;

use client::{Client, Connection, Limits, Service};

use crate::arguments::{Buffer, Labels, RESERVED, Text, check_reserved};
use crate::outcome::{Misuse, Outcome, guarded, guarded_or};

/// `uview`: a service's client.
#[derive(Debug)]
pub struct ServiceHandle {
    pub(crate) client: Client,
}

/// `uview_options`: what a service may say about itself.
#[repr(C)]
#[derive(Debug)]
pub struct ServiceOptions {
    instance: Text,
    socket: Text,
    labels: Labels,
    max_series: usize,
    max_label_sets: usize,
    max_regions: usize,
    changes_every_ms: u64,
    without_process_metrics: c_int,
    reserved: [u64; RESERVED],
}

/// `uview_state`: the client at one moment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServiceState {
    connection: c_int,
    forked: c_int,
    agent: u64,
    connections: u64,
    protocol_errors: u64,
    series: u64,
    pending_release: u64,
    detached: u64,
    regions: u64,
    region_bytes: u64,
    problems: u64,
    reserved: [u64; RESERVED],
}

/// No connection, and no attempts.
pub(crate) const OFF: c_int = 0;
/// No agent is reachable.
pub(crate) const WAITING: c_int = 1;
/// An agent is reached, and has not accepted everything.
pub(crate) const REGISTERING: c_int = 2;
/// An agent has accepted everything.
pub(crate) const REGISTERED: c_int = 3;

impl ServiceOptions {
    fn apply(&self, mut service: Service) -> Result<Service, Misuse> {
        check_reserved(self.reserved)?;
        if let Some(instance) = self.instance.optional("instance")? {
            service = service.instance(instance);
        }
        if let Some(socket) = self.socket.optional("socket")? {
            service = service.socket(socket);
        }
        let mut labels = Vec::new();
        self.labels.each(|key, value| labels.push((key.to_owned(), value.to_owned())))?;
        service = labels.into_iter().fold(service, |service, (key, value)| service.label(key, value));
        if self.changes_every_ms > 0 {
            service = service.changes_every(Duration::from_millis(self.changes_every_ms));
        }
        if self.without_process_metrics != 0 {
            service = service.without_process_metrics();
        }
        let usual = Limits::default();
        let or = |given: usize, usual| if given == 0 { usual } else { given };
        Ok(service.limits(Limits {
            series: or(self.max_series, usual.series),
            label_sets_per_metric: or(self.max_label_sets, usual.label_sets_per_metric),
            regions: or(self.max_regions, usual.regions),
            ..usual
        }))
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_open(
    name: Text,
    options: Option<&ServiceOptions>,
    opened: Option<&mut MaybeUninit<Option<Box<ServiceHandle>>>>,
) -> c_int {
    guarded(|| {
        let opened = opened.ok_or(Misuse::Null("opened"))?;
        opened.write(None);
        let mut service = Service::new(name.required("name")?);
        if let Some(options) = options {
            service = options.apply(service)?;
        }
        opened.write(Some(Box::new(ServiceHandle { client: client::connect(service) })));
        Ok(Outcome::Done)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_close(service: Option<Box<ServiceHandle>>) {
    guarded_or((), || drop(service));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_changed(service: Option<&ServiceHandle>) {
    guarded_or((), || {
        if let Some(service) = service {
            service.client.changed();
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_status(
    service: Option<&ServiceHandle>,
    state: Option<&mut MaybeUninit<ServiceState>>,
) -> c_int {
    guarded(|| {
        let service = service.ok_or(Misuse::Null("service"))?;
        let state = state.ok_or(Misuse::Null("state"))?;
        let status = service.client.status();
        let (connection, agent) = match status.connection {
            Connection::Waiting { .. } => (WAITING, 0),
            Connection::Registering => (REGISTERING, 0),
            Connection::Registered { agent } => (REGISTERED, agent.0),
            _ => (OFF, 0),
        };
        state.write(ServiceState {
            connection,
            forked: c_int::from(status.forked),
            agent,
            connections: status.connections,
            protocol_errors: status.protocol_errors,
            series: status.series as u64,
            pending_release: status.pending_release as u64,
            detached: status.detached,
            regions: status.regions as u64,
            region_bytes: status.region_bytes as u64,
            problems: status.problems.len() as u64,
            reserved: [0; RESERVED],
        });
        Ok(Outcome::Done)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_status_text(service: Option<&ServiceHandle>, buffer: Buffer, size: usize) -> usize {
    guarded_or(0, || {
        let Some(service) = service else { return 0 };
        let text = service.client.status().to_string();
        buffer.fill(&text, size);
        text.len()
    })
}
