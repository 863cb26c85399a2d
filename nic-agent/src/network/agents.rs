//! The thread that speaks with other agents: it asks about streams whose packets leave here, and answers about those whose packets arrive here. Each stream is
//! a task of its own, so that an agent that does not answer delays nobody.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use exchange::{
    Answer, Effect, Gathered, MOST_MESSAGE_BYTES, Plan, Question, Receiver, ReceiverSettings, Refusal, Report, Say,
    Sender, SenderSettings, Todo,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Server};
use tonic::{Request, Response, Status};
use wire::proto::exchange as proto;
use wire::proto::exchange::exchange_client::ExchangeClient;
use wire::proto::exchange::exchange_server::{Exchange, ExchangeServer};

use super::compared::Command;
use super::figures::Figures;
use crate::clock::unix_now;
use crate::clock_state::clock_state;
use crate::config::{ComparedConfig, PeersConfig, StreamConfig};
use crate::error::told;

/// A peer that takes longer to connect to is tried again.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// A peer that does not answer for so long is gone, whatever TCP thinks.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Questions of one connection at a time.
const CALLS: usize = 64;
/// The longest that a task waits without looking at the clock, which may have been set.
const LOOK: Duration = Duration::from_millis(200);

/// One stream, as this thread has it.
#[derive(Debug)]
pub(super) struct Spoken {
    pub(super) config: StreamConfig,
    pub(super) compared: ComparedConfig,
    pub(super) gathered: mpsc::Receiver<Gathered>,
    pub(super) follow: Follow,
}

/// What follows from what two agents said.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) name: String,
    pub(super) commands: std::sync::mpsc::Sender<Command>,
    pub(super) figures: Arc<Figures>,
    plan: Option<Plan>,
}

impl Follow {
    pub(super) const fn new(name: String, commands: std::sync::mpsc::Sender<Command>, figures: Arc<Figures>) -> Self {
        Self { name, commands, figures, plan: None }
    }

    fn effects(&mut self, effects: impl Iterator<Item = Effect>) {
        for effect in effects {
            // The other end of the queue is gone only where the agent ends.
            match effect {
                Effect::Gather(plan) => {
                    tracing::info!(stream = self.name, synopsis = plan.synopsis.name(), "the stream is compared");
                    self.plan = Some(plan.clone());
                    drop(self.commands.send(Command::Gather(Box::new(plan))));
                }
                Effect::Sample(sampling) => {
                    tracing::info!(stream = self.name, share = sampling.share, "another share of flows is looked at");
                    drop(self.commands.send(Command::Sample(sampling)));
                }
                Effect::GiveBack(cache) => drop(self.commands.send(Command::GiveBack(cache))),
                Effect::Report(report) => self.report(&report),
                Effect::Refused(why) => {
                    tracing::warn!(stream = self.name, why, "the other agent does not compare this stream");
                }
            }
        }
    }

    fn report(&self, report: &Report) {
        self.figures.write(report);
        let begins_ns = self.plan.as_ref().map(|plan| plan.begin_of(report.interval));
        let after_ns = self.plan.as_ref().map(|plan| unix_now().saturating_sub(plan.begin_of(report.interval + 1)));
        tracing::debug!(
            stream = self.name,
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

/// Starts the thread if there are streams to speak of. It ends when `stop`'s other end is dropped.
///
/// # Errors
///
/// The system gives no thread or runtime, or certificates that could be read before cannot be any more.
pub(super) fn start(
    peers: PeersConfig,
    listener: Option<std::net::TcpListener>,
    streams: Vec<Spoken>,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    if streams.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("exchange".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                outcome = speak(peers, listener, streams) => {
                    if let Err(error) = outcome {
                        tracing::error!(why = told(&*error), "streams are not compared with other agents");
                    }
                }
                _ = stop => {}
            }
        });
    })?;
    Ok(())
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn speak(
    peers: PeersConfig,
    listener: Option<std::net::TcpListener>,
    streams: Vec<Spoken>,
) -> Result<(), Failed> {
    let tls = peers.peers_tls.as_ref().map(daemon::ClientTls::client).transpose()?;
    let named = peers.peers_tls.as_ref().is_some_and(|tls| tls.domain.is_some());
    let mut tasks = tokio::task::JoinSet::new();
    let mut answered = BTreeMap::new();
    for stream in streams {
        let Spoken { config, compared, gathered, follow } = stream;
        let length_ns = u64::from(config.interval_ms.get()) * 1_000_000;
        let synopsis = config.synopsis(compared.synopsis);
        let clock_bound_ns = u64::from(compared.clock_within_us) * 1_000;
        if let Some(peer) = &compared.peer {
            let client = client(peer, tls.clone(), named)?;
            let settings = SenderSettings { clock_bound_ns, ..SenderSettings::new(config.name, length_ns, synopsis) };
            tasks.spawn(ask(Sender::new(settings), client, gathered, follow));
        } else {
            let settings = ReceiverSettings { clock_bound_ns, ..ReceiverSettings::new(length_ns, synopsis) };
            let end = Arc::new(Mutex::new(Answering { receiver: Receiver::new(settings), follow }));
            answered.insert(config.name, Arc::clone(&end));
            let look = Duration::from_nanos(length_ns / 4).min(LOOK);
            tasks.spawn(keep(end, gathered, look));
        }
    }
    if let Some(listener) = listener {
        let mut server = Server::builder().tcp_nodelay(true).concurrency_limit_per_connection(CALLS);
        if let Some(tls) = &peers.tls {
            server = server.tls_config(tls.server()?)?;
        }
        let service = ExchangeServer::new(Answers(answered))
            .max_decoding_message_size(MOST_MESSAGE_BYTES)
            .max_encoding_message_size(MOST_MESSAGE_BYTES);
        let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener)?);
        server.add_service(service).serve_with_incoming(incoming).await?;
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

fn client(peer: &str, tls: Option<ClientTlsConfig>, named: bool) -> Result<ExchangeClient<Channel>, Failed> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{peer}"))?
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    let endpoint = match tls {
        Some(tls) => endpoint.tls_config(if named { tls } else { tls.domain_name(host) })?,
        None => endpoint,
    };
    Ok(ExchangeClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(MOST_MESSAGE_BYTES)
        .max_encoding_message_size(MOST_MESSAGE_BYTES))
}

/// The answer to a question under way, or `None` without one.
type Asked = Pin<Box<dyn Future<Output = (u64, Result<Answer, String>)> + Send>>;

/// Asks about one stream, for ever.
async fn ask(
    mut sender: Sender,
    client: ExchangeClient<Channel>,
    mut gathered: mpsc::Receiver<Gathered>,
    mut follow: Follow,
) {
    let mut asked: Option<Asked> = None;
    let (mut silent, mut random) = (false, rand::random::<u64>);
    loop {
        sender.clock_is(clock_state());
        let wait = match sender.poll(unix_now(), &mut random) {
            Todo::Ask { call, question } => {
                asked = Some(Box::pin(one(client.clone(), call, *question)));
                continue;
            }
            Todo::Wait(until_ns) => Duration::from_nanos(until_ns.saturating_sub(unix_now())).min(LOOK),
        };
        follow.effects(sender.take_effects());
        tokio::select! {
            more = gathered.recv() => match more {
                Some(gathered) => sender.gathered(gathered, unix_now(), &mut random),
                None => return,
            },
            (call, answer) = async { match asked.as_mut() { Some(asked) => asked.await, None => std::future::pending().await } } => {
                asked = None;
                match &answer {
                    Ok(_) if silent => tracing::info!(stream = follow.name, "the other agent answers again"),
                    Err(why) if !silent => {
                        tracing::warn!(stream = follow.name, why, "the other agent does not answer: trying again");
                    }
                    _ => {}
                }
                silent = answer.is_err();
                sender.answered(call, answer.ok(), unix_now(), &mut random);
            }
            () = sleep(wait) => {}
        }
    }
}

async fn one(mut client: ExchangeClient<Channel>, call: u64, question: Question) -> (u64, Result<Answer, String>) {
    let answer = match client.ask(question.encode()).await {
        Ok(answer) => Answer::decode(answer.into_inner()).map_err(|error| told(&error)),
        Err(status) => Err(format!("{}: {}", status.code(), status.message())),
    };
    (call, answer)
}

/// One stream about which others ask.
#[derive(Debug)]
struct Answering {
    receiver: Receiver,
    follow: Follow,
}

impl Answering {
    fn turn<T>(&mut self, what: impl FnOnce(&mut Receiver) -> T) -> T {
        let outcome = what(&mut self.receiver);
        self.follow.effects(self.receiver.take_effects());
        outcome
    }
}

fn locked(end: &Mutex<Answering>) -> std::sync::MutexGuard<'_, Answering> {
    end.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what is gathered of a stream, and forgets in time what nobody asks about.
async fn keep(end: Arc<Mutex<Answering>>, mut gathered: mpsc::Receiver<Gathered>, look: Duration) {
    loop {
        tokio::select! {
            more = gathered.recv() => match more {
                Some(gathered) => locked(&end).turn(|receiver| receiver.gathered(gathered, unix_now())),
                None => return,
            },
            () = sleep(look) => locked(&end).turn(|receiver| receiver.poll(unix_now())),
        }
    }
}

/// Answers about all streams.
#[derive(Debug)]
struct Answers(BTreeMap<String, Arc<Mutex<Answering>>>);

#[tonic::async_trait]
impl Exchange for Answers {
    async fn ask(&self, request: Request<proto::Question>) -> Result<Response<proto::Answer>, Status> {
        let question =
            Question::decode(request.into_inner()).map_err(|error| Status::invalid_argument(told(&error)))?;
        let answer = if let Some(end) = self.0.get(&question.stream) {
            locked(end).turn(|receiver| {
                receiver.clock_is(clock_state());
                receiver.answer(&question, unix_now())
            })
        } else {
            let refusal = Refusal::Stream(format!("no stream {:?} arrives here", question.stream));
            let (epoch, interval, clock_ns) = (question.epoch, question.interval, unix_now());
            Answer { epoch, interval, clock_ns, kept: clock_state(), say: Say::Refused(refusal) }
        };
        Ok(Response::new(answer.encode()))
    }
}
