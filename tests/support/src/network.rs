//! Two network namespaces, each with one end of a veth pair whose other end belongs to the relay.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getcpu, sched_setaffinity};

use crate::harness::not_run;

/// Prefix of the name of one namespace.
pub const HERE: &str = "here";
/// Prefix of the name of the other namespace.
pub const THERE: &str = "there";
/// Prefix of the name of the relay's namespace.
pub const BETWEEN: &str = "between";

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// One network at a time, since tests measure delays.
static ALONE: Mutex<()> = Mutex::new(());

/// The three namespaces. Dropping it deletes them with all interfaces.
#[derive(Debug)]
pub struct Network {
    suffix: String,
    _alone: std::sync::MutexGuard<'static, ()>,
}

impl Network {
    /// Creates the network. Returns `None` and prints why if that is not possible.
    pub fn create() -> Option<Self> {
        Self::create_with_switches(&[])
    }

    /// The same with room for a switch between each of `spaces` and the relay: two more interfaces in that namespace,
    /// its [ports](Self::switch_ports), which somebody has to forward between.
    pub fn create_with_switches(spaces: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            not_run("network namespaces take root");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let suffix = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let network = Self { suffix, _alone: alone };
        for space in [HERE, THERE, BETWEEN] {
            if !ip(&["netns", "add", &network.name(space)]) {
                not_run("`ip netns add` does not work here");
                return None;
            }
        }
        for space in [HERE, THERE] {
            let (host, relay) = ((space, format!("{space}0")), (BETWEEN, format!("{space}1")));
            if spaces.contains(&space) {
                let [near, far] = Self::switch_ports(space);
                network.pair((space, &near), (host.0, &host.1));
                network.pair((space, &far), (relay.0, &relay.1));
                // The kernel answers nothing there: the interfaces are the switch's.
                for port in [near, far] {
                    assert!(ip(&["-n", &network.name(space), "link", "set", &port, "arp", "off"]));
                }
            } else {
                network.pair((relay.0, &relay.1), (host.0, &host.1));
            }
            network.add_address(host.0, &host.1, Self::address(space));
        }
        Some(network)
    }

    /// Makes a pair of interfaces, each in a namespace.
    fn pair(&self, first: (&str, &str), second: (&str, &str)) {
        let (name, peer) = (self.name(first.0), self.name(second.0));
        let made = ip(&["-n", &name, "link", "add", first.1, "type", "veth", "peer", "name", second.1, "netns", &peer]);
        assert!(made, "a pair of interfaces can be made");
        for (space, interface) in [first, second] {
            // Without IPv6 the kernel sends no packets of its own.
            assert!(ip(&["-n", &self.name(space), "link", "set", interface, "addrgenmode", "none", "up"]));
        }
    }

    fn add_address(&self, space: &str, interface: &str, address: Ipv4Addr) {
        let address = format!("{address}/24");
        assert!(ip(&["-n", &self.name(space), "address", "add", &address, "dev", interface]));
    }

    /// Sets up the loopback interface of a namespace: programs in it can talk to each other.
    pub fn set_up_loopback(&self, space: &str) {
        assert!(ip(&["-n", &self.name(space), "link", "set", "lo", "up"]), "a namespace has a loopback interface");
    }

    /// The ports of the switch between a namespace and the relay, which are in that namespace: towards its own end, and
    /// towards the relay.
    pub fn switch_ports(space: &str) -> [String; 2] {
        [format!("{space}3"), format!("{space}4")]
    }

    /// Connects the two namespaces by a second veth pair without a relay, `here2` to `there2`. Frames of any size pass
    /// unchanged.
    pub fn connect_directly(&self) {
        self.pair((HERE, "here2"), (THERE, "there2"));
        for space in [HERE, THERE] {
            self.add_address(space, &format!("{space}2"), Self::direct_address(space));
        }
    }

    /// Has what `THERE` sends to `HERE` take the direct link: the path with the relay has the packets of one direction.
    pub fn answer_directly(&self) {
        let (to, from) = (Self::address(HERE).to_string(), Self::address(THERE).to_string());
        let route = ["-n", &self.name(THERE), "route", "add", &to, "dev", "there2", "src", &from];
        assert!(ip(&route), "{route:?}");
        // A kernel with strict filters refuses what does not come by the interface by which it would answer: here the
        // answers, there the requests.
        for (space, own) in [(HERE, "here2"), (THERE, "there0")] {
            self.run(space, move || {
                for interface in ["all", own] {
                    let filter = format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
                    std::fs::write(filter, "0").expect("root may set it");
                }
            });
        }
    }

    /// Disables segmentation offload at `here0`, so that frames are as on a wire: like
    /// `ethtool -K here0 tso off gso off`.
    pub fn disable_segmentation_offload(&self) {
        self.disable_segmentation_offload_of(HERE);
    }

    /// The same of the interface by which a namespace sends to the relay.
    pub fn disable_segmentation_offload_of(&self, space: &str) {
        let (name, interface) = (self.name(space), format!("{space}0"));
        assert!(ip(&["-n", &name, "link", "set", "dev", &interface, "gso_max_segs", "1"]), "a veth takes it");
    }

    /// The address of a namespace on the direct link.
    pub fn direct_address(space: &str) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 0, if space == HERE { 1 } else { 2 })
    }

    /// The address of a namespace on the link with the relay.
    pub fn address(space: &str) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, if space == HERE { 1 } else { 2 })
    }

    /// Runs `work` in a thread inside a namespace.
    pub fn thread<T: Send + 'static>(
        &self,
        space: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name(space));
        thread::spawn(move || {
            let file = File::open(path).expect("the namespace exists");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
            work()
        })
    }

    /// Runs `work` inside a namespace, and waits for it.
    pub fn run<T: Send + 'static>(&self, space: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.thread(space, work).join().expect("it does not fail")
    }

    fn name(&self, space: &str) -> String {
        format!("uview-{space}-{}", self.suffix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for space in [HERE, THERE, BETWEEN] {
            let _ = ip(&["netns", "delete", &self.name(space)]);
        }
    }
}

/// Has this thread stay on the core where it is, so that the frames that it sends wait in one queue of the kernel, and
/// come in their order.
pub fn stay_on_one_core() {
    let mut cores = CpuSet::new();
    cores.set(sched_getcpu());
    sched_setaffinity(None, &cores).expect("a thread may stay where it is");
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}
