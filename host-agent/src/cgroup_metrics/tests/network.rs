//! The network of a container: that of a real namespace.

use super::*;

/// A shell in a network namespace of its own, with an interface that counts what is sent through it. Each line on its
/// input sends a datagram, and is answered.
struct Elsewhere {
    shell: std::process::Child,
    answers: std::io::BufReader<std::process::ChildStdout>,
}

impl Elsewhere {
    fn start() -> Option<Self> {
        use std::process::{Command, Stdio};

        let script = "ip link add d0 type ifb && ip addr add 192.0.2.1/24 dev d0 && ip link set d0 up && echo ready \
            && while read -r line; do echo x > /dev/udp/192.0.2.2/9; echo sent; done";
        let mut command = Command::new("unshare");
        command
            .args(["--net", "bash", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell = command.spawn().ok()?;
        let answers = std::io::BufReader::new(shell.stdout.take().unwrap());
        let mut elsewhere = Self { shell, answers };
        (elsewhere.answer() == "ready\n").then_some(elsewhere)
    }

    fn answer(&mut self) -> String {
        use std::io::BufRead as _;

        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line
    }

    fn send(&mut self) {
        use std::io::Write as _;

        self.shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.answer(), "sent\n");
    }

    /// What the kernel counts of the interface: the first column of received bytes.
    fn received(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.shell.id())).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("d0:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn the_network_of_a_container_is_that_of_its_namespace() {
    let Some(mut elsewhere) = Elsewhere::start() else {
        return not_run("the network of a container: it takes root, ip, unshare and an interface of type ifb");
    };
    let tree = Tree::new(&["shop/far", "shop/here"]);
    tree.write("shop/far", "cgroup.procs", &format!("{}\n", elsewhere.shell.id()));
    tree.write("shop/here", "cgroup.procs", &format!("{}\n", std::process::id()));
    let (node, mut cgroups) = (node(), tree.cgroups(&[("shop/*", "{name}")], 10));
    elsewhere.send();

    // Nobody else sends there but the kernel itself, now and then.
    let mut last = 0;
    for second in 0..3 {
        let before = elsewhere.received();
        cgroups.round(&node, &|| Nanos::from_secs(second));
        let (value, after) = (value(&cgroups, "shop/far", Measure::NetworkReceived), elsewhere.received());
        assert!(before <= value && value <= after, "{before} {value} {after}");
        assert!(value > last, "a datagram was sent: {last} {value}");
        last = value;
        elsewhere.send();
    }

    let found = services(&node);
    let metrics = |name: &str| found.iter().find(|(service, ..)| service == name).map(|(_, _, metrics)| *metrics);
    assert!(metrics("far") > metrics("here"), "a process in this namespace adds no network: {found:?}");
    let here = &cgroups.replicas["shop/here"].region;
    assert_eq!(here.slot(series::slot(Measure::NetworkReceived)).unwrap().load(Ordering::Relaxed), 0);
}
