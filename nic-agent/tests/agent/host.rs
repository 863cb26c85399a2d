//! A host agent that is controlled by the test.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use nic_agent::config::Config;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use wire::proto::control::control_server::{Control, ControlServer};
use wire::proto::control::host_message::Message as FromHost;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{HostMessage, HostWelcome, WorkerHello, WorkerMessage};

use crate::LIMIT;
use crate::memory::Regions;

/// Listens, and passes every connection to the test.
pub struct Host {
    pub address: SocketAddr,
    links: mpsc::Receiver<Link>,
}

/// A connection of a worker.
pub struct Link {
    pub hello: WorkerHello,
    out: mpsc::Sender<Result<HostMessage, Status>>,
    messages: Streaming<WorkerMessage>,
}

/// How a stream ended.
#[derive(Debug, PartialEq)]
pub enum End {
    /// Closed in order.
    Closed,
    /// The connection broke.
    Broke,
}

struct Service(mpsc::Sender<Link>);

#[tonic::async_trait]
impl Control for Service {
    type WorkStream = ReceiverStream<Result<HostMessage, Status>>;

    async fn work(&self, request: Request<Streaming<WorkerMessage>>) -> Result<Response<Self::WorkStream>, Status> {
        let mut messages = request.into_inner();
        let Some(WorkerMessage { message: Some(ToHost::Hello(hello)) }) = messages.message().await? else {
            return Err(Status::invalid_argument("the first message is no hello"));
        };
        let (out, queue) = mpsc::channel(64);
        self.0.send(Link { hello, out, messages }).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(queue)))
    }
}

impl Host {
    /// Listens. With the certificates in `tls`, accepts only workers with a certificate, too.
    pub async fn start(tls: Option<&Path>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Server::builder();
        if let Some(folder) = tls {
            let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
            let identity = Identity::from_pem(read("host-agent.pem"), read("host-agent.key"));
            let clients = Certificate::from_pem(read("ca.pem"));
            server = server.tls_config(ServerTlsConfig::new().identity(identity).client_ca_root(clients)).unwrap();
        }
        Self::serve(server, address, TcpListenerStream::new(listener))
    }

    /// Serves the given connections instead of a listener's.
    pub fn over(address: SocketAddr, connections: impl Stream<Item = io::Result<TcpStream>> + Send + 'static) -> Self {
        Self::serve(Server::builder(), address, connections)
    }

    fn serve(
        mut server: Server,
        address: SocketAddr,
        connections: impl Stream<Item = io::Result<TcpStream>> + Send + 'static,
    ) -> Self {
        let (sender, links) = mpsc::channel(8);
        let server = server.add_service(ControlServer::new(Service(sender)));
        tokio::spawn(server.serve_with_incoming(connections));
        Self { address, links }
    }

    /// Waits for the next worker that sends a hello.
    pub async fn accept(&mut self) -> Link {
        tokio::time::timeout(LIMIT, self.links.recv()).await.expect("a worker connects").unwrap()
    }

    /// Whether no other worker has sent a hello so far.
    pub fn has_no_other(&mut self) -> bool {
        self.links.try_recv().is_err()
    }
}

impl Link {
    pub async fn send(&mut self, epoch: u64, message: FromHost) {
        self.out.send(Ok(HostMessage { epoch, message: Some(message) })).await.unwrap();
    }

    pub async fn welcome(&mut self, host_incarnation: u64) {
        let welcome = HostWelcome {
            host_incarnation,
            lowest_share: 0.5,
            lease_ms: 5000,
            transport: "shm".into(),
            ..HostWelcome::default()
        };
        self.send(0, FromHost::Welcome(welcome)).await;
    }

    /// Waits for the end of the stream, and ignores messages before it.
    pub async fn end(&mut self) -> End {
        let last = async {
            loop {
                match self.messages.message().await {
                    Ok(Some(WorkerMessage { message: Some(_) })) => {}
                    Ok(_) => return End::Closed,
                    Err(_) => return End::Broke,
                }
            }
        };
        tokio::time::timeout(LIMIT, last).await.expect("the stream ends")
    }

    /// Waits for the first message for which `wanted` holds.
    pub async fn wait(&mut self, wanted: impl Fn(&ToHost) -> bool) -> ToHost {
        let found = async {
            loop {
                let message = self.messages.message().await.unwrap().expect("the worker still speaks").message.unwrap();
                if wanted(&message) {
                    return message;
                }
            }
        };
        tokio::time::timeout(LIMIT, found).await.expect("the worker says it")
    }
}

/// A configuration for worker 3 with this host agent and these regions.
pub fn worker_config(host: &Host, regions: &Regions) -> Config {
    let mut config = Config { worker: 3, regions_socket: Some(regions.socket()), ..Config::default() };
    config.control.address = host.address.to_string();
    config.control.insecure = true;
    config.metrics.listen = "127.0.0.1:0".parse().unwrap();
    config
}
