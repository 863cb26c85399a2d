//! Three network namespaces with an address each, joined by a bridge in a fourth, where the backend runs.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Number of the namespace with the bridge and the backend; the nodes' are 1 to 3.
pub const HUB: u8 = 9;
pub const NODES: [u8; 3] = [1, 2, 3];

/// Removed with all its interfaces on drop.
pub struct Network(String);

impl Network {
    /// The network; `None`, with a message, where it cannot be created.
    pub fn create() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            support::harness::not_run("network namespaces take root");
            return None;
        }
        let network = Self(std::process::id().to_string());
        for space in NODES.into_iter().chain([HUB]) {
            if !ip(&["netns", "add", &network.name(space)]) {
                support::harness::not_run("`ip netns add` does not work here");
                return None;
            }
            assert!(ip(&["-n", &network.name(space), "link", "set", "lo", "up"]));
        }
        let hub = network.name(HUB);
        if !ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"]) {
            support::harness::not_run("this kernel has no bridges");
            return None;
        }
        for space in NODES {
            let (port, name) = (format!("port{space}"), network.name(space));
            assert!(ip(&["-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name]));
            assert!(ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"]));
            network.up(space, "eth0");
        }
        network.up(HUB, "bridge");
        Some(network)
    }

    fn up(&self, space: u8, link: &str) {
        let (name, address) = (self.name(space), format!("{}/24", Self::address(space)));
        assert!(ip(&["-n", &name, "address", "add", &address, "dev", link]));
        assert!(ip(&["-n", &name, "link", "set", link, "up"]));
    }

    /// The address of a namespace.
    pub fn address(space: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, 0, space)
    }

    /// Runs `work` in a namespace and waits for it. Its threads and processes stay in the namespace.
    pub fn run<T: Send>(&self, space: u8, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name(space));
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let file = File::open(path).expect("the namespace is there");
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
                work()
            });
            inside.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
        })
    }

    fn name(&self, space: u8) -> String {
        format!("uview-node{space}-{}", self.0)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for space in NODES.into_iter().chain([HUB]) {
            let _ = ip(&["netns", "delete", &self.name(space)]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}
