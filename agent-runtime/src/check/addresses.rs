//! TCP addresses: whether they can be listened on, and if not, who has them.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::Inspection;

/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// Its command line, arguments separated by spaces; empty if it may not be read.
    pub command: String,
}

impl Inspection {
    /// Checks that `address`, the value of `key`, can be listened on: binds it. An address that the running agent
    /// `running` has is as it should be, for this check is made before it starts again.
    pub fn listen(&mut self, key: &str, address: SocketAddr, running: impl FnOnce(&Process) -> bool) {
        let same = |bound: &SocketAddr| bound.port() == address.port() && address.port() != 0;
        if let Some((other, ..)) = self.bound.iter().find(|(_, bound, _)| same(bound) && overlap(bound, &address)) {
            let what = format!("{address} is also the address of {other}");
            return self.error(key, what, "give one of them another port");
        }
        match TcpListener::bind(address) {
            Ok(listener) => {
                self.ok(key, format!("{address} is free"));
                self.bound.push((key.to_owned(), address, listener));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => match holder(address.port()) {
                Some(process) if running(&process) => {
                    self.ok(key, format!("{address} is in use by the running agent, process {}", process.pid));
                }
                Some(Process { pid, command }) => {
                    let what = format!("{address} is in use by process {pid} ({command})");
                    self.error(key, what, "stop it, or choose another port");
                }
                None => self.error(
                    key,
                    format!("{address} is in use by a process that this user may not look at"),
                    "`ss -ltnp` as root names it; stop it, or choose another port",
                ),
            },
            Err(error) => {
                let advice = match error.kind() {
                    ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one",
                    ErrorKind::AddrNotAvailable => "no interface of this machine has it: see `ip address`",
                    _ => "choose another address",
                };
                self.error(key, format!("cannot listen on {address}: {error}"), advice);
            }
        }
    }
}

/// Whether two addresses with the same port exclude each other.
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified()
}

/// The process that listens on `port`, if this user may look at it.
fn holder(port: u16) -> Option<Process> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<_> = tables.iter().flat_map(|table| sockets(table, port)).collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|&pid| has_one_of(pid, &sockets)).map(|pid| Process { pid, command: command(pid) })
}

/// How the kernel shows descriptors of the sockets that listen on `port`, in the text of /proc/net/tcp.
fn sockets(table: &str, port: u16) -> impl Iterator<Item = String> {
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let (_, digits) = fields.get(1)?.rsplit_once(':')?;
        let listens = u16::from_str_radix(digits, 16) == Ok(port) && fields.get(3) == Some(&LISTENING);
        listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
    })
}

fn has_one_of(pid: u32, sockets: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        sockets.iter().any(|socket| target == Path::new(socket))
    })
}

/// The command line of a process.
fn command(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{Finding, Level};
    use super::*;

    fn found(inspect: impl FnOnce(&mut Inspection)) -> Finding {
        let mut inspection = Inspection::new(0);
        inspect(&mut inspection);
        inspection.findings().last().unwrap().clone()
    }

    #[test]
    fn an_address_in_use_names_the_process_and_is_fine_if_it_is_the_running_agent() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();

        let stranger = found(|to| to.listen("metrics.listen", address, |_| false));
        let own = found(|to| to.listen("metrics.listen", address, |process| process.pid == std::process::id()));

        assert_eq!(stranger.level, Level::Error);
        let process = format!("in use by process {} (", std::process::id());
        assert!(stranger.what.contains(&process), "{stranger}");
        assert_eq!(own.level, Level::Ok, "{own}");
    }

    #[test]
    fn an_address_is_free_after_the_check_and_two_keys_cannot_have_the_same() {
        // Nobody else takes ports there.
        let free = TcpListener::bind("127.0.0.77:0").unwrap().local_addr().unwrap();
        let any = SocketAddr::from(([0, 0, 0, 0], free.port()));
        let mut inspection = Inspection::new(0);

        inspection.listen("a", free, |_| false);
        inspection.listen("b", any, |_| false);

        let levels: Vec<_> = inspection.findings().iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Error], "{inspection}");
        assert!(inspection.to_string().contains("also the address of a"), "{inspection}");
        drop(inspection);
        TcpListener::bind(free).unwrap();
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let finding = found(|to| to.listen("control.listen", "192.0.2.1:9700".parse().unwrap(), |_| false));

        assert!(finding.level == Level::Error && finding.advice.contains("no interface"), "{finding}");
    }

    #[test]
    fn only_listening_sockets_of_the_port_are_taken_from_the_kernels_table() {
        let line = |port: &str, state: &str, inode: u32| {
            format!(
                "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1 0\n"
            )
        };
        let table = format!(
            "  sl  local_address …\n{}{}{}",
            line("25E6", "0A", 7),
            line("25E6", "01", 8),
            line("25E7", "0A", 9)
        );

        assert_eq!(sockets(&table, 9702).collect::<Vec<_>>(), ["socket:[7]"]);
    }
}
