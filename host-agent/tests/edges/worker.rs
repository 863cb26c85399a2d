//! A scripted NIC worker.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use wire::proto::control::control_client::ControlClient;
use wire::proto::control::host_message::Message;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{
    Acknowledgement, Episode, HostMessage, HostWelcome, Lmap, Verdict, Verdicts, WorkerHello, WorkerMessage,
};

use crate::agent::{Agent, PATIENCE};

pub struct Worker {
    runtime: tokio::runtime::Runtime,
    outgoing: mpsc::Sender<WorkerMessage>,
    incoming: Streaming<HostMessage>,
}

pub fn hello(worker: u32, incarnation: u64) -> WorkerHello {
    WorkerHello {
        protocol: wire::control::PROTOCOL,
        worker,
        incarnation,
        version: "test".into(),
        transports: vec!["shm".into()],
        takes_lowest_share: true,
        ..WorkerHello::default()
    }
}

impl Worker {
    pub fn connect(agent: &Agent, worker: u32) -> Self {
        let mut worker = Self::with(agent, hello(worker, u64::from(worker) + 1));
        let welcome = worker.welcomed();
        assert_eq!(welcome.host_incarnation, agent.at.incarnation);
        worker
    }

    pub fn with(agent: &Agent, hello: WorkerHello) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(agent.at.control.clone()).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self::over(runtime, channel, hello).unwrap()
    }

    pub fn over(runtime: tokio::runtime::Runtime, channel: Channel, hello: WorkerHello) -> Result<Self, tonic::Status> {
        let (outgoing, messages) = mpsc::channel(64);
        outgoing.try_send(WorkerMessage { message: Some(FromWorker::Hello(hello)) }).unwrap();
        let mut client = ControlClient::new(channel).max_decoding_message_size(wire::control::MAX_MESSAGE_BYTES);
        let incoming = runtime.block_on(client.work(ReceiverStream::new(messages)))?.into_inner();
        Ok(Self { runtime, outgoing, incoming })
    }

    pub fn send(&self, message: FromWorker) {
        self.runtime.block_on(self.outgoing.send(WorkerMessage { message: Some(message) })).unwrap();
    }

    pub fn acknowledge(&self, epoch: u64) {
        self.send(FromWorker::Acknowledgement(Acknowledgement { epoch }));
    }

    /// The next message; `None` if the host agent ended the stream.
    pub fn receive(&mut self) -> Option<HostMessage> {
        let next = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.incoming.message()).await });
        next.expect("the host agent sends nothing").unwrap_or(None)
    }

    pub fn welcomed(&mut self) -> HostWelcome {
        match self.receive().unwrap().message {
            Some(Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    pub fn refused(&mut self) -> String {
        match self.receive().unwrap().message {
            Some(Message::Refusal(refusal)) => refusal.reason,
            other => panic!("{other:?}"),
        }
    }

    /// The next configuration, and its epoch. Acknowledges it.
    pub fn set(&mut self) -> (u64, Lmap) {
        self.set_where(|_| true)
    }

    pub fn set_where(&mut self, wanted: impl Fn(&Lmap) -> bool) -> (u64, Lmap) {
        loop {
            let message = self.receive().expect("the stream stands");
            if let Some(Message::SetLmap(lmap)) = message.message {
                self.acknowledge(message.epoch);
                if wanted(&lmap) {
                    return (message.epoch, lmap);
                }
            }
        }
    }

    /// Waits until an LMAP is removed. Does not acknowledge.
    pub fn removed(&mut self) -> (u64, u32) {
        loop {
            let message = self.receive().expect("the stream stands");
            if let Some(Message::RemoveLmap(removed)) = message.message {
                return (message.epoch, removed.lmap);
            }
        }
    }

    pub fn verdict(&self, lmap: &Lmap, epoch: u64, score: f64) {
        let verdict = Verdict { lmap: lmap.lmap, epoch, score, gamma: 4.0, state: 2, ..Verdict::default() };
        self.send(FromWorker::Verdicts(Verdicts { at_unix_ns: 7, verdicts: vec![verdict] }));
    }

    /// A verdict of an episode, with a score above the threshold.
    pub fn verdict_in(&self, episode: Episode, lmap: &Lmap, epoch: u64, at_unix_ns: u64) {
        let verdict = Verdict {
            lmap: lmap.lmap,
            epoch,
            score: 20.0,
            gamma: 4.0,
            state: 2,
            episode: episode as i32,
            ..Verdict::default()
        };
        self.send(FromWorker::Verdicts(Verdicts { at_unix_ns, verdicts: vec![verdict] }));
    }
}
