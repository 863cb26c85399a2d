//! The clients of the test. They write whole frames: so there is no TCP of the kernel, which sends segments again when
//! a machine stalls, and any address can be a client's. Nobody answers, since the frames are for nobody's hardware
//! address.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etherparse::{PacketBuilder, TcpHeader};
use packets::ring::{Ring, RingSettings};
use support::network::{HERE, Network, stay_on_one_core};

/// Clients, each with an address and a connection of its own.
pub const CLIENTS: usize = 24;
/// Prefixes (/24) of their addresses.
const PREFIXES: usize = 4;
/// What they send to.
pub const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, 2), 443);
/// Who scans ports.
pub const SCANNER: Ipv4Addr = Ipv4Addr::new(10, 77, 66, 6);
/// The client that takes half of the bytes.
pub const GREEDY: usize = 2;
/// The client that looks for peers.
pub const INFECTED: usize = 5;
/// Time between two sends of a client. One that was missed is not made up for: nothing comes in a row after a stall.
const BEAT: Duration = Duration::from_millis(5);
/// Beats after which other clients are away. Real clients come and go, too, so that no count is the same all the time.
const PERIOD: u64 = 200;

/// What is sent beside the clients' usual segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// [`SCANNER`] tries the ports of the server.
    PortScan,
    /// SYN packets to the server, each from another forged address.
    SynFlood,
    /// [`GREEDY`] sends as much as all others together.
    Greedy,
    /// [`INFECTED`] tries one port of other addresses.
    Worm,
}

/// What is to be sent.
struct Plan {
    /// How often each client has been replaced by one with another address.
    replaced: [u8; CLIENTS],
    attack: Option<Attack>,
}

/// The thread that sends for all clients.
pub struct Senders {
    stop: Arc<AtomicBool>,
    plan: Arc<Mutex<Plan>>,
    thread: JoinHandle<()>,
}

fn locked(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of a client that has been replaced so often. Each time, all of a prefix move to another one.
fn address(client: usize, replaced: u8) -> Ipv4Addr {
    let (prefix, number) = ((client % PREFIXES) as u8, (client / PREFIXES) as u8);
    Ipv4Addr::new(10, 77, 1 + prefix + 10 * replaced, 10 + number)
}

/// Whether a client sends nothing in a period: one of sixteen, each time others.
const fn is_away(client: usize, period: u64) -> bool {
    ((client as u64) << 32 | period).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
}

/// A frame with a segment; without payload, it opens a connection.
fn frame(from: SocketAddrV4, to: SocketAddrV4, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = TcpHeader::new(from.port(), to.port(), sequence, 1_024);
    (header.syn, header.ack) = (payload.is_empty(), !payload.is_empty());
    let built = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let built = built.ipv4(from.ip().octets(), to.ip().octets(), 64).tcp_header(header);
    let mut bytes = Vec::new();
    built.write(&mut bytes, payload).unwrap();
    bytes
}

/// What the thread knows of the clients' connections, and how many packets of attacks it has sent.
struct Connections {
    sequences: [u32; CLIENTS],
    attacked: u32,
}

impl Connections {
    /// The next segment of a client.
    fn segment(&mut self, client: usize, replaced: u8, payload: &[u8]) -> Vec<u8> {
        let from = SocketAddrV4::new(address(client, replaced), 40_000);
        let sequence = self.sequences[client];
        self.sequences[client] = sequence.wrapping_add(payload.len() as u32);
        frame(from, SERVER, sequence, payload)
    }

    /// What one beat of an attack sends.
    fn attack(&mut self, attack: Attack, replaced: u8) -> Vec<Vec<u8>> {
        let packets = match attack {
            Attack::Greedy => return (0..2).map(|_| self.segment(GREEDY, replaced, &[9; 1_400])).collect(),
            Attack::PortScan => 4,
            Attack::SynFlood => 10,
            Attack::Worm => 2,
        };
        let numbers = (0..packets).map(|_| {
            self.attacked = self.attacked.wrapping_add(1);
            self.attacked
        });
        let syn = |number: u32| {
            let [_, _, high, low] = number.to_be_bytes();
            let (from, to) = match attack {
                Attack::PortScan => {
                    let port = 10_000 + (number % 20_000) as u16;
                    (SocketAddrV4::new(SCANNER, 5_555), SocketAddrV4::new(*SERVER.ip(), port))
                }
                Attack::SynFlood => (SocketAddrV4::new(Ipv4Addr::new(172, 16, high, low), 1_024), SERVER),
                Attack::Greedy | Attack::Worm => {
                    let peer = Ipv4Addr::new(10, 79, high, low);
                    (SocketAddrV4::new(address(INFECTED, replaced), 50_000), SocketAddrV4::new(peer, 445))
                }
            };
            frame(from, to, number, &[])
        };
        numbers.map(syn).collect()
    }
}

impl Senders {
    /// Starts sending from `here0`.
    pub fn start(network: &Network) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let plan = Arc::new(Mutex::new(Plan { replaced: [0; CLIENTS], attack: None }));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&plan));
        let thread = network.thread(HERE, move || {
            stay_on_one_core();
            let settings = RingSettings { interface: "here0".to_owned(), incoming: true, ..RingSettings::default() };
            send(&Ring::open(&settings).unwrap(), &stopped, &shared);
        });
        Self { stop, plan, thread }
    }

    /// A client is replaced by one with another address.
    pub fn replace(&self, client: usize) {
        locked(&self.plan).replaced[client] += 1;
    }

    /// All clients are replaced, from one packet to the next.
    pub fn replace_all(&self) {
        locked(&self.plan).replaced.iter_mut().for_each(|replaced| *replaced += 1);
    }

    /// The present address of a client.
    pub fn address(&self, client: usize) -> Ipv4Addr {
        address(client, locked(&self.plan).replaced[client])
    }

    /// From now on, this is sent beside the usual.
    pub fn attack(&self, attack: Option<Attack>) {
        locked(&self.plan).attack = attack;
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

fn send(ring: &Ring, stop: &AtomicBool, plan: &Mutex<Plan>) {
    let mut connections = Connections { sequences: [0; CLIENTS], attacked: 0 };
    let mut beat = 0;
    while !stop.load(Ordering::Acquire) {
        let (replaced, attack) = {
            let plan = locked(plan);
            (plan.replaced, plan.attack)
        };
        let here = (0..CLIENTS).filter(|client| !is_away(*client, beat / PERIOD));
        let mut frames: Vec<_> = here.map(|client| connections.segment(client, replaced[client], &[7; 100])).collect();
        if let Some(attack) = attack {
            let by = if attack == Attack::Greedy { GREEDY } else { INFECTED };
            frames.extend(connections.attack(attack, replaced[by]));
        }
        // What a full queue does not take is lost, which puts nothing out of order.
        for frame in &frames {
            drop(ring.send(frame));
        }
        beat += 1;
        thread::sleep(BEAT);
    }
}
