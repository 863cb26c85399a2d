//! The thread that exchanges one-way measurements, and counts of flows (`fragments`), with other NIC agents. It sends
//! requests for streams whose packets leave here, and responds for streams whose packets arrive here. Each stream is a
//! task of its own, so an agent that does not respond delays no other stream.

mod access;
mod certificates;
mod client;
pub(super) mod fragments;

use core::future::ready;
use core::num::NonZeroU64;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use agent_runtime::clock::{Clock, unix_now};
use agent_runtime::repeated_events::RepeatedEvents;
use agent_runtime::server::{
    AdmittedRequest, Counts, Limits, Listener, ReplyShares, Server, Traffic, with_bounded_requests, with_reply_shares,
};
use axum::Router;
use axum::http::request::Parts;
use one_way::{
    Action, ClockState, Effect, IntervalPackets, MAX_MESSAGE_BYTES, Plan, Receiver, ReceiverSettings, Refusal, Report,
    Request, Response, ResponseBody, Sender, SenderSettings, Synopsis,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Channel;
use wire::proto::fragments::fragments_server::FragmentsServer;
use wire::proto::one_way as proto;
use wire::proto::one_way::one_way_client::OneWayClient;
use wire::proto::one_way::one_way_server::{OneWay, OneWayServer};
use wire::time::Nanos;

pub(crate) use self::access::PeerAccess;
pub(crate) use self::certificates::PeerCertificates;
use self::client::{BoxError, PeerConnection};
use self::fragments::{FragmentTask, FragmentsService};
use super::one_way_metrics::OneWayMetrics;
use super::one_way_stream::Command;
use crate::clock_state::clock_state;
use crate::config::{OneWayConfig, StreamConfig};
use crate::error::chain;

/// Connections of other agents.
pub(crate) const LIMITS: Limits = Limits { connections: 256, connections_per_peer: 32, traffic: Traffic::Streams };
/// Bytes of requests of other agents that are being read, and of responses that they have not read.
pub(crate) const CALL_BYTES: u64 = 64 << 20;
/// Time limit for a request.
const MESSAGE_WITHIN: Duration = Duration::from_secs(10);
/// The longest sleep of a task before it reads the wall clock again, which may have been set.
const MAX_SLEEP: Duration = Duration::from_millis(200);

/// How this agent and others reach each other, and who may be the other end.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) certificates: PeerCertificates,
    pub(super) listener: Option<std::net::TcpListener>,
    pub(super) access: PeerAccess,
}

/// What the task of one stream needs.
#[derive(Debug)]
pub(super) struct OneWayTask {
    pub(super) config: StreamConfig,
    pub(super) one_way: OneWayConfig,
    pub(super) synopsis: Synopsis,
    /// That of a switch's constants, if one measures the stream.
    pub(super) fingerprint: Option<NonZeroU64>,
    pub(super) intervals: mpsc::Receiver<IntervalPackets>,
    pub(super) handler: EffectHandler,
}

/// Carries out the effects of the protocol for one stream.
#[derive(Debug)]
pub(super) struct EffectHandler {
    stream: String,
    commands: std::sync::mpsc::Sender<Command>,
    metrics: Arc<OneWayMetrics>,
    stamps: StampingClock,
    plan: Option<Plan>,
}

/// Whose clock stamps the packets of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampingClock {
    /// That of this machine, of which the kernel says how good it is.
    Machine,
    /// That of a switch, which says nothing of the kind.
    Switch,
}

impl StampingClock {
    fn state(self) -> ClockState {
        match self {
            Self::Machine => clock_state(),
            Self::Switch => ClockState::Unknown,
        }
    }
}

impl EffectHandler {
    pub(super) const fn new(
        stream: String,
        commands: std::sync::mpsc::Sender<Command>,
        metrics: Arc<OneWayMetrics>,
        stamps: StampingClock,
    ) -> Self {
        Self { stream, commands, metrics, stamps, plan: None }
    }

    fn handle(&mut self, effects: impl Iterator<Item = Effect>) {
        for effect in effects {
            // The receiver of the commands is gone only when the agent ends.
            match effect {
                Effect::Collect(plan) => {
                    tracing::info!(
                        stream = self.stream,
                        synopsis = plan.synopsis.name(),
                        "one-way measurement started"
                    );
                    self.plan = Some(plan.clone());
                    drop(self.commands.send(Command::Collect(Box::new(plan))));
                }
                Effect::Sample(sampling) => {
                    tracing::info!(stream = self.stream, share = sampling.share, "the sampled share of flows changes");
                    drop(self.commands.send(Command::Sample(sampling)));
                }
                Effect::GiveBack(cache) => drop(self.commands.send(Command::GiveBack(cache))),
                Effect::Report(report) => self.report(&report),
                Effect::Refused(why) => {
                    tracing::warn!(stream = self.stream, why, "the other agent refuses to measure this stream");
                }
            }
        }
    }

    fn report(&self, report: &Report) {
        self.metrics.write(report);
        let begins_ns = self.plan.as_ref().map(|plan| plan.begin_of(report.interval).0);
        let after_ns = self.plan.as_ref().map(|plan| unix_now().since(plan.begin_of(report.interval + 1)).0);
        tracing::debug!(
            stream = self.stream,
            interval = report.interval,
            begins_ns,
            after_ns,
            mean_ns = report.mean_ns,
            deviation_ns = report.deviation_ns,
            loss = report.loss,
            sent = report.sent,
            received = report.received,
            packets = report.packets,
            lost = report.lost,
            late = report.late,
            odd = report.odd,
            clock_error_ns = report.clock_error_ns,
            ahead_ns = report.clock.map(|clock| clock.ahead_ns),
            flags = %report.flags,
            "an interval was compared"
        );
    }
}

/// Starts the thread if there are one-way streams or a fragment. It ends when the other end of `stop` is dropped.
///
/// # Errors
///
/// The system cannot start a thread or a runtime.
pub(super) fn start(
    peers: Peers,
    streams: Vec<OneWayTask>,
    fragment: Option<FragmentTask>,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    if streams.is_empty() && fragment.is_none() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("peers".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                outcome = run(peers, streams, fragment) => {
                    if let Err(error) = outcome {
                        tracing::error!(why = chain(&*error), "measurement with other agents ended");
                    }
                }
                _ = stop => {}
            }
        });
    })?;
    Ok(())
}

/// The calls of `router` for peers only: who is none is refused before its request is read, and what all of them hold
/// is bounded.
fn bounded(router: Router, access: PeerAccess) -> Router {
    let (refused, clock) = (RepeatedEvents::default(), Clock::start());
    let held = ReplyShares::new(CALL_BYTES, move |error| {
        if let Some(times) = refused.count(clock.now(), &error.owner) {
            tracing::warn!(%error, times, "another agent is refused");
        }
    });
    let admit = move |head: Parts| {
        // The frame of a message has five bytes.
        ready(access.check(&head).map(|()| AdmittedRequest { head, bytes: MAX_MESSAGE_BYTES + 5 }))
    };
    with_reply_shares(with_bounded_requests(router, MESSAGE_WITHIN, &held, admit), &held)
}

async fn run(peers: Peers, streams: Vec<OneWayTask>, fragment: Option<FragmentTask>) -> Result<(), BoxError> {
    let Peers { certificates, listener, access } = peers;
    let mut tasks = tokio::task::JoinSet::new();
    let mut receiving_ends = BTreeMap::new();
    for stream in streams {
        let OneWayTask { config, one_way, synopsis, fingerprint, intervals, handler } = stream;
        let length = Nanos::from_millis(config.interval_ms.get().into());
        let clock_bound = Nanos::from_micros(one_way.max_clock_error_us.into());
        if let Some(peer) = &one_way.peer {
            let client = PeerConnection::new(peer, &certificates.client, &access)?;
            let settings = SenderSettings { clock_bound, ..SenderSettings::new(config.name, length, synopsis) };
            let settings = match fingerprint {
                Some(fingerprint) => settings.of_switch(fingerprint),
                None => settings,
            };
            tasks.spawn(run_sender(Sender::new(settings), client, intervals, handler));
        } else {
            let settings = ReceiverSettings::new(length, synopsis);
            let settings = ReceiverSettings { clock_bound, fingerprint, ..settings };
            let end = Arc::new(Mutex::new(ReceivingEnd { receiver: Receiver::new(settings), handler }));
            receiving_ends.insert(config.name, Arc::clone(&end));
            let poll_every = (Duration::from(length) / 4).min(MAX_SLEEP);
            tasks.spawn(run_receiver(end, intervals, poll_every));
        }
    }
    let counts = fragment.as_ref().map(|task| {
        let (state, epoch_ms) = (Arc::clone(&task.state), task.config.epoch_ms.get());
        FragmentsServer::new(FragmentsService { state, epoch_ms, access: access.clone() })
            .max_decoding_message_size(fragments::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(fragments::MAX_MESSAGE_BYTES)
    });
    if let Some(task) = fragment {
        let ends = fragments::run(task, certificates.clone(), access.clone());
        tasks.spawn(async move {
            if let Err(error) = ends.await {
                tracing::error!(why = chain(&*error), "the fragment is counted without other agents");
            }
        });
    }
    if let Some(listener) = listener {
        let service = OneWayServer::new(OneWayService { receiving_ends })
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let mut routes = Routes::new(service);
        if let Some(counts) = counts {
            routes = routes.add_service(counts);
        }
        let router = bounded(routes.into_axum_router(), access);
        let server = Server { name: "peers", router, limits: LIMITS, counts: Arc::new(Counts::default()) };
        let tls = certificates.server.map(|tls| tls.acceptor(b"h2")).transpose()?;
        let listener = Listener::Tcp(tokio::net::TcpListener::from_std(listener)?);
        server.serve(vec![listener], tls, core::future::pending()).await;
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// A request in flight: the number of its call, and the response.
type PendingResponse = Pin<Box<dyn Future<Output = (u64, Result<Response, String>)> + Send>>;

/// The sending end of one stream: sends requests until its queue is closed.
async fn run_sender(
    mut sender: Sender,
    mut client: PeerConnection,
    mut intervals: mpsc::Receiver<IntervalPackets>,
    mut handler: EffectHandler,
) {
    let mut pending: Option<PendingResponse> = None;
    let (mut failing, mut random) = (false, rand::random::<u64>);
    loop {
        sender.set_clock_state(handler.stamps.state());
        let wait = match sender.poll(unix_now(), &mut random) {
            Action::Send { call, request } => {
                pending = Some(Box::pin(exchange(one_way_client(client.current()), call, *request)));
                continue;
            }
            Action::Wait(until) => Duration::from(until.since(unix_now())).min(MAX_SLEEP),
        };
        handler.handle(sender.take_effects());
        tokio::select! {
            interval = intervals.recv() => match interval {
                Some(interval) => sender.add_interval(interval, unix_now(), &mut random),
                None => return,
            },
            (call, response) = async {
                match pending.as_mut() {
                    Some(pending) => pending.await,
                    None => std::future::pending().await,
                }
            } => {
                pending = None;
                match &response {
                    Ok(_) if failing => tracing::info!(stream = handler.stream, "the other agent responds again"),
                    Err(why) if !failing => {
                        tracing::warn!(stream = handler.stream, why, "the other agent does not respond: trying again");
                    }
                    _ => {}
                }
                failing = response.is_err();
                sender.complete(call, response.ok(), unix_now(), &mut random);
            }
            () = sleep(wait) => {}
        }
    }
}

fn one_way_client(channel: Channel) -> OneWayClient<Channel> {
    OneWayClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES).max_encoding_message_size(MAX_MESSAGE_BYTES)
}

async fn exchange(mut client: OneWayClient<Channel>, call: u64, request: Request) -> (u64, Result<Response, String>) {
    let response = match client.exchange(request.encode()).await {
        Ok(response) => Response::decode(response.into_inner()).map_err(|error| chain(&error)),
        Err(status) => Err(format!("{}: {}", status.code(), status.message())),
    };
    (call, response)
}

/// The receiving end of one stream.
#[derive(Debug)]
struct ReceivingEnd {
    receiver: Receiver,
    handler: EffectHandler,
}

impl ReceivingEnd {
    /// Calls the receiver, then carries out its effects.
    fn call<T>(&mut self, call: impl FnOnce(&mut Receiver) -> T) -> T {
        let outcome = call(&mut self.receiver);
        self.handler.handle(self.receiver.take_effects());
        outcome
    }
}

fn locked(end: &Mutex<ReceivingEnd>) -> std::sync::MutexGuard<'_, ReceivingEnd> {
    end.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes collected intervals to a receiving end, and polls it so that it drops what has expired.
async fn run_receiver(
    end: Arc<Mutex<ReceivingEnd>>,
    mut intervals: mpsc::Receiver<IntervalPackets>,
    poll_every: Duration,
) {
    loop {
        tokio::select! {
            interval = intervals.recv() => match interval {
                Some(interval) => locked(&end).call(|receiver| receiver.add_interval(interval, unix_now())),
                None => return,
            },
            () = sleep(poll_every) => locked(&end).call(|receiver| receiver.poll(unix_now())),
        }
    }
}

/// The gRPC service: responds for all streams whose packets arrive here, by name.
#[derive(Debug)]
struct OneWayService {
    receiving_ends: BTreeMap<String, Arc<Mutex<ReceivingEnd>>>,
}

#[tonic::async_trait]
impl OneWay for OneWayService {
    async fn exchange(
        &self,
        request: tonic::Request<proto::Request>,
    ) -> Result<tonic::Response<proto::Response>, Status> {
        let request = Request::decode(request.into_inner()).map_err(|error| Status::invalid_argument(chain(&error)))?;
        let response = if let Some(end) = self.receiving_ends.get(&request.stream) {
            let mut end = locked(end);
            let state = end.handler.stamps.state();
            end.call(|receiver| {
                receiver.set_clock_state(state);
                receiver.respond(&request, unix_now())
            })
        } else {
            let refusal = Refusal::UnknownStream(format!("no stream {:?} arrives here", request.stream));
            let (epoch, interval, clock) = (request.epoch, request.interval, unix_now());
            Response { epoch, interval, clock, clock_state: clock_state(), body: ResponseBody::Refused(refusal) }
        };
        Ok(tonic::Response::new(response.encode()))
    }
}
