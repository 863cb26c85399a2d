//! Who connects by TCP, and places for connections. Every user of a machine has all addresses of loopback, so a
//! connection within the machine is of its user, whom the kernel names ([`socket_owner`](crate::socket_owner)). One
//! from another machine is of its address.

use core::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::clock::timer_now;
use crate::count::Count;
use crate::shares::{ShareError, Shares};
use crate::socket_owner::{OwnerLookup, SocketOwner, socket_owner};

/// How long a listener counts as full after it has refused a connection.
const FULL_FOR: Duration = Duration::from_mins(1);

/// Whose share a connection is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A user of this machine.
    User(u32),
    /// Somebody on this machine: the kernel says of no socket whose it is, or nobody has the other end open any more.
    ThisMachine,
    /// Somebody on another machine.
    Address(IpAddr),
}

impl Peer {
    /// Whose the other end of a connection is. Asks the kernel, which takes some microseconds.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Self {
        Self::asking(socket_owner, stream)
    }

    fn asking(ask: OwnerLookup, stream: &TcpStream) -> Self {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return Self::ThisMachine };
        Self::from_answer(ask(peer, local).ok(), peer.ip().to_canonical(), local.ip().to_canonical())
    }

    /// Who connects from `address` to the `own` one, if the kernel says that `owner` has the other end. A user of this
    /// machine may bind to the address of any of its interfaces.
    fn from_answer(owner: Option<SocketOwner>, address: IpAddr, own: IpAddr) -> Self {
        match owner {
            Some(owner) => Self::User(owner.uid),
            None if address.is_loopback() || own.is_loopback() || address == own => Self::ThisMachine,
            None => Self::Address(address),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::ThisMachine => f.write_str("this machine"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Why a connection has no place.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error("{peer} has {held} connections, as many as one peer may have")]
    Peer { peer: Peer, held: u64 },
    #[error(transparent)]
    Share(#[from] ShareError<Peer>),
}

/// Places for connections, of which a peer may have three times what is free: some are left for others, whatever one
/// does.
#[derive(Debug)]
pub struct Places {
    listener: &'static str,
    per_peer: u64,
    shares: Mutex<Shares<Peer>>,
    refusals: Count,
    /// The last refusal, and when.
    last: Mutex<Option<(Instant, PlaceError)>>,
}

impl Places {
    /// Nobody has connected to `listener`, which is its name in the log. There are `connections` places, at least four,
    /// and at most `per_peer` of them for one peer.
    #[must_use]
    pub fn new(listener: &'static str, connections: usize, per_peer: usize) -> Arc<Self> {
        let shares = Shares::new("connections", "a limit of the program", connections.max(4) as u64);
        let shares = Mutex::new(shares);
        let (refusals, last) = (Count::default(), Mutex::default());
        Arc::new(Self { listener, per_peer: per_peer as u64, shares, refusals, last })
    }

    /// A place for a connection of `peer`; `None` if it has its share already, or all are taken. The first time, the
    /// log says so, and who has most.
    #[must_use]
    pub fn take(self: &Arc<Self>, peer: Peer) -> Option<ConnectionPermit> {
        match self.try_take(peer) {
            Ok(permit) => Some(permit),
            Err(error) => {
                if self.refusals.is_first() {
                    tracing::warn!(listener = self.listener, %error, "connections are refused: too many are open");
                }
                *self.last() = Some((timer_now(), error));
                None
            }
        }
    }

    /// Says so if a connection was refused within the last minute, and who has most.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let last = self.last();
        let (at, error) = last.as_ref()?;
        let (listener, refused) = (self.listener, self.refusals.get());
        let is_full = timer_now().saturating_duration_since(*at) < FULL_FOR;
        is_full.then(|| format!("{listener}: connections are refused, {refused} so far: {error}"))
    }

    fn try_take(self: &Arc<Self>, peer: Peer) -> Result<ConnectionPermit, PlaceError> {
        let mut shares = self.shares();
        let held = shares.held(&peer);
        if held >= self.per_peer {
            return Err(PlaceError::Peer { peer, held });
        }
        shares.take(peer.clone(), 1)?;
        Ok(ConnectionPermit { places: Arc::clone(self), peer })
    }

    // No code under these locks panics. If one did, the state would still be usable.
    fn shares(&self) -> MutexGuard<'_, Shares<Peer>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, PlaceError)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listeners of a program, for whoever reports which of them are full.
#[derive(Debug, Default)]
pub struct FullListeners(Mutex<Vec<Weak<Places>>>);

impl FullListeners {
    /// Reports the listener of `places`, too, as long as there is one.
    pub fn watch(&self, places: &Arc<Places>) {
        let mut known = self.known();
        known.retain(|places| places.strong_count() > 0);
        known.push(Arc::downgrade(places));
    }

    /// A line for each listener that refuses connections now, or has within the last minute.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.known().iter().filter_map(|places| places.upgrade()?.problem()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Weak<Places>>> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection, given back on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    places: Arc<Places>,
    peer: Peer,
}

impl ConnectionPermit {
    /// Whose connection it is.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.shares().release(&self.peer, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Write};
    use std::net::{Shutdown, SocketAddr, TcpStream as Client};

    use nix::unistd::{Uid, geteuid, setfsuid};
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    use tokio::net::{TcpListener, TcpSocket};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const STRANGER: u32 = 65534;

    /// What was logged.
    #[derive(Clone, Debug, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged while each of `peers` takes what it can of `places`, and what each has then.
    fn filled(places: &Arc<Places>, peers: &[Peer]) -> (String, Vec<usize>) {
        let log = Log::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        let held = tracing::subscriber::with_default(subscriber, || {
            let all = |peer: &Peer| core::iter::from_fn(|| places.take(peer.clone())).collect::<Vec<_>>();
            let held: Vec<_> = peers.iter().map(all).collect();
            held.iter().map(Vec::len).collect()
        });
        let bytes = log.0.lock().unwrap().clone();
        (String::from_utf8(bytes).unwrap(), held)
    }

    #[test]
    fn the_first_refusal_is_in_the_log_with_who_has_most() {
        let peers = [7, 8, 9].map(Peer::User);

        let (log, held) = filled(&Places::new("spans", 8, 8), &peers);

        assert_eq!(held, [6, 2, 0], "three times what is free");
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("connections are refused: too many are open") && log.contains("\"spans\""), "{log}");
        assert!(log.contains("user 7 would have 7 of 8 connections") && log.contains("user 7 has most, 6"), "{log}");

        let (log, held) = filled(&Places::new("spans", 8, 2), &peers);

        assert_eq!(held, [2, 2, 2]);
        assert!(log.contains("user 7 has 2 connections, as many as one peer may have"), "{log}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_is_full_for_a_minute_after_a_refusal_and_says_who_has_most() {
        let listeners = FullListeners::default();
        let [spans, pages] = ["spans", "pages"].map(|name| Places::new(name, 8, 8));
        listeners.watch(&spans);
        listeners.watch(&pages);
        let held: Vec<_> = core::iter::from_fn(|| spans.take(Peer::User(7))).collect();
        assert_eq!((held.len(), listeners.problems().len()), (6, 1));

        tokio::time::sleep(FULL_FOR / 2).await;
        assert!(spans.take(Peer::User(7)).is_none());
        tokio::time::sleep(FULL_FOR / 2).await;

        let problems = listeners.problems();
        let said = "spans: connections are refused, 2 so far: user 7 would have 7 of 8 connections";
        assert!(problems[0].starts_with(said) && problems[0].contains("user 7 has most, 6"), "{problems:?}");
        tokio::time::sleep(FULL_FOR / 2).await;
        assert_eq!(listeners.problems(), [""; 0], "a minute after the last one");
        assert!(spans.take(Peer::User(7)).is_none());
        drop((held, spans));
        assert_eq!(listeners.problems(), [""; 0], "there is no such listener any more");
    }

    /// A connection from an address of loopback.
    fn connect(from: u8, to: SocketAddr) -> Client {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
        rustix::net::connect(&socket, &to).unwrap();
        socket.into()
    }

    /// Connections of another user from these addresses; `None` without the right to be one.
    fn of_a_stranger(from: impl Iterator<Item = u8> + Send + 'static, to: SocketAddr) -> Option<Vec<Client>> {
        if !geteuid().is_root() {
            support::harness::not_run("only root may open sockets of others");
            return None;
        }
        // The user of a thread's sockets is that of its files.
        let connects = std::thread::spawn(move || {
            setfsuid(Uid::from_raw(STRANGER));
            from.map(|from| connect(from, to)).collect()
        });
        Some(connects.join().unwrap())
    }

    async fn accepted(listener: &TcpListener) -> TcpStream {
        listener.accept().await.unwrap().0
    }

    #[tokio::test]
    async fn a_user_of_this_machine_has_one_share_whatever_addresses_it_uses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Places::new("test", 8, 8);
        let mut held = Vec::new();
        let Some(_theirs) = of_a_stranger(1..8, address) else { return };
        for _ in 0..7 {
            let stream = accepted(&listener).await;
            let peer = Peer::of(&stream);
            assert_eq!(peer, Peer::User(STRANGER));
            held.extend(places.take(peer));
        }
        assert_eq!(held.len(), 6, "three times the two that are free");

        let _own = connect(1, address);
        let own = accepted(&listener).await;
        let peer = Peer::of(&own);
        assert_eq!(peer, Peer::User(0));
        let place = places.take(peer);
        assert!(place.is_some(), "another user has its own share, whatever the addresses");
        drop((place, held));
        assert_eq!(places.shares().used(), 0);
    }

    #[tokio::test]
    async fn whoever_binds_to_the_interface_or_sends_no_more_is_known_and_who_is_gone_is_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = Peer::User(geteuid().as_raw());
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind_device(Some(b"lo")).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap().into_std().unwrap();
        let server = accepted(&listener).await;
        assert_eq!(Peer::of(&server), own);

        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(Peer::of(&server), own);

        drop(client);
        assert_eq!(Peer::of(&server), Peer::ThisMachine);
    }

    #[test]
    fn a_user_is_one_peer_from_any_interface_and_another_machine_is_its_address() {
        let of = |uid: Option<u32>, address: &str, own: &str| {
            let owner = uid.map(|uid| SocketOwner { uid, cgroup: None });
            Peer::from_answer(owner, address.parse().unwrap(), own.parse().unwrap())
        };

        assert_eq!(of(Some(7), "10.0.0.1", "127.0.0.1"), Peer::User(7));
        assert_eq!(of(Some(7), "10.0.0.1", "10.0.0.2"), Peer::User(7), "two interfaces of this machine");
        assert_eq!(of(None, "10.0.0.9", "10.0.0.2"), Peer::Address("10.0.0.9".parse().unwrap()));
        for (address, own) in [("127.0.0.3", "127.0.0.1"), ("10.0.0.1", "127.0.0.1"), ("10.0.0.2", "10.0.0.2")] {
            assert_eq!(of(None, address, own), Peer::ThisMachine, "{address} to {own}");
        }
    }

    #[tokio::test]
    async fn where_the_kernel_says_nothing_all_addresses_of_loopback_are_one_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = connect(2, listener.local_addr().unwrap());
        let server = accepted(&listener).await;

        assert_eq!(Peer::asking(|_, _| Err(ErrorKind::NotFound.into()), &server), Peer::ThisMachine);
    }
}
