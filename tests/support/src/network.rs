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
        let between = network.name(BETWEEN);
        for space in [HERE, THERE] {
            let (end, name) = (format!("{space}0"), network.name(space));
            let relays = format!("{space}1");
            let made =
                ip(&["-n", &between, "link", "add", &relays, "type", "veth", "peer", "name", &end, "netns", &name]);
            assert!(made, "a pair of interfaces can be made");
            // Without IPv6 the kernel sends no packets of its own.
            let address = format!("{}/24", Self::address(space));
            for arguments in [
                vec!["-n", &between, "link", "set", &relays, "addrgenmode", "none", "up"],
                vec!["-n", &name, "link", "set", &end, "addrgenmode", "none", "up"],
                vec!["-n", &name, "address", "add", &address, "dev", &end],
            ] {
                assert!(ip(&arguments), "{arguments:?}");
            }
        }
        Some(network)
    }

    /// Connects the two namespaces by a second veth pair without a relay, `here2` to `there2`. Frames of any size pass
    /// unchanged.
    pub fn connect_directly(&self) {
        let (here, there) = (self.name(HERE), self.name(THERE));
        let pair = ["-n", &here, "link", "add", "here2", "type", "veth", "peer", "name", "there2", "netns", &there];
        assert!(ip(&pair), "a pair of interfaces can be made");
        for (space, name) in [(HERE, &here), (THERE, &there)] {
            let (end, address) = (format!("{space}2"), format!("{}/24", Self::direct_address(space)));
            assert!(ip(&["-n", name, "link", "set", &end, "addrgenmode", "none", "up"]));
            assert!(ip(&["-n", name, "address", "add", &address, "dev", &end]));
        }
    }

    /// Disables segmentation offload at `here0`, so that frames are as on a wire: like
    /// `ethtool -K here0 tso off gso off`.
    pub fn disable_segmentation_offload(&self) {
        assert!(ip(&["-n", &self.name(HERE), "link", "set", "dev", "here0", "gso_max_segs", "1"]), "a veth takes it");
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
