//! Peers that ask and do not read, in virtual time.

use axum::body::Bytes;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use h2::RecvStream;
use h2::client::SendRequest;
use tokio::io::duplex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::clock::timer_now;

const PAGE: usize = 256 << 10;
/// All pages that may be in memory.
const SHARED: usize = 16;
const SECOND: Duration = Duration::from_secs(1);

fn server(shares: &Arc<ReplyShares>, traffic: Traffic) -> Server {
    let router = Router::new().route("/", get(|| async { vec![7_u8; PAGE] }));
    let limits = Limits { connections: 64, connections_per_peer: 64, traffic };
    Server { name: "test", router: with_page_shares(router, shares), limits, counts: Arc::default() }
}

fn shares() -> Arc<ReplyShares> {
    ReplyShares::new((SHARED * PAGE) as u64, |_| {})
}

/// A connection over HTTP/2 that answers pings.
struct Client {
    send: SendRequest<Bytes>,
    driven: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    /// A connection of user `uid`, which lets each reply send `window` bytes before it reads.
    async fn connect(server: &Server, uid: u32, window: u32) -> Self {
        let (near, far) = duplex(1 << 20);
        let server = server.clone();
        tokio::spawn(async move {
            let graceful = GracefulShutdown::new();
            let builder = builder(limits::FIRST_REQUEST, KEEP_ALIVE, server.limits.traffic.http());
            let caller = Caller { identity: Identity::Anyone, peer: Peer::User(uid) };
            server.requests(far, caller, &builder, graceful.watcher()).await;
            drop(graceful);
        });
        let client = h2::client::Builder::new().initial_window_size(window).handshake(near).await;
        let (send, connection) = client.unwrap();
        Self { send, driven: tokio::spawn(connection) }
    }

    /// The head of the reply for another page; `None` if the server does not begin with it within a second.
    async fn ask(&self) -> Option<Response<RecvStream>> {
        let mut send = self.send.clone().ready().await.unwrap();
        let request = Request::get("http://node/").body(()).unwrap();
        let (reply, _) = send.send_request(request, true).unwrap();
        timeout(SECOND, reply).await.ok().map(Result::unwrap)
    }

    /// Whether the server closes the connection within this time.
    async fn is_closed_within(&mut self, time: Duration) -> bool {
        timeout(time, &mut self.driven).await.is_ok()
    }
}

/// Reads all of a reply, with a `pause` after each piece.
async fn read(reply: Response<RecvStream>, pause: Duration) -> usize {
    let (mut body, mut length) = (reply.into_body(), 0);
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap().len();
        length += piece;
        sleep(pause).await;
        body.flow_control().release_capacity(piece).unwrap();
    }
    length
}

#[tokio::test(start_paused = true)]
async fn who_takes_no_reply_holds_a_share_until_it_is_closed_and_others_are_answered() {
    // With a window of one byte the connection takes whole pieces of each reply.
    for window in [0, 1] {
        let shares = shares();
        let server = server(&shares, Traffic::Pages);
        let (mut greedy, mut unread) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let client = Client::connect(&server, 1000, window).await;
            for _ in 0..4 {
                unread.push(client.ask().await.unwrap());
            }
            greedy.push(client);
        }
        assert!(greedy[0].ask().await.is_none(), "four at a time");

        // Three quarters.
        let answered = unread.iter().filter(|reply| reply.status() == StatusCode::OK).count();
        assert_eq!((answered, shares.used()), (12, (12 * PAGE) as u64), "window {window}");
        let refused = unread.iter().filter(|reply| reply.status() == StatusCode::SERVICE_UNAVAILABLE).count();
        assert_eq!(refused, 8);
        let other = Client::connect(&server, 1001, 1 << 20).await;
        let reply = other.ask().await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK, "another user");
        assert_eq!(read(reply, Duration::ZERO).await, PAGE);

        for client in &mut greedy {
            assert!(client.is_closed_within(10 * SECOND).await, "window {window}");
        }
        let freed = async {
            while shares.used() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(SECOND, freed).await.unwrap();
        assert_eq!(server.counts.unread.get(), 5);
        drop(unread);
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_all_of_a_page() {
    let server = server(&shares(), Traffic::Pages);
    let client = Client::connect(&server, 1000, 16 << 10).await;
    let began = timer_now();

    let length = read(client.ask().await.unwrap(), 5 * SECOND).await;

    assert_eq!(length, PAGE);
    assert!(began.elapsed() > 60 * SECOND, "{:?}", began.elapsed());
    assert_eq!(server.counts.unread.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_is_closed_after_ten_minutes() {
    let server = server(&shares(), Traffic::Pages);
    let mut client = Client::connect(&server, 1000, 1 << 20).await;
    assert_eq!(read(client.ask().await.unwrap(), Duration::ZERO).await, PAGE);

    assert!(!client.is_closed_within(599 * SECOND).await);
    assert!(client.is_closed_within(2 * SECOND).await);
    assert_eq!(server.counts.unread.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_may_rest_and_what_is_not_read_of_them_counts() {
    for window in [0, 1] {
        let shares = shares();
        let server = server(&shares, Traffic::Streams);
        let mut client = Client::connect(&server, 1000, window).await;
        let unread = client.ask().await.unwrap();

        assert!(!client.is_closed_within(1800 * SECOND).await);

        assert_eq!(shares.used(), PAGE as u64);
        drop(unread);
    }
}
