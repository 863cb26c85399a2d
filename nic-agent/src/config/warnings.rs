//! What a configuration leaves open, in words: for the log, and for the status of the host agent.

use agent_runtime::reach::{PAGE_ADVICE, is_this_machine, open_listener};

use super::{Config, UNIX};

impl Config {
    /// What is open to anybody, and what goes where anybody on the way can read and change it.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.plain_control().into_iter().chain(self.open_metrics()).chain(self.network.warnings()).collect()
    }

    /// A connection to the host agent without TLS that is no Unix socket.
    pub(crate) fn plain_control(&self) -> Option<String> {
        let address = &self.control.address;
        self.control.is_open().then(|| {
            format!(
                "control.address {address} is called without TLS (control.insecure): whoever answers there is taken \
                 for the host agent, and whoever is on the way can read and change what is said"
            )
        })
    }

    /// `/metrics` for other machines.
    pub(crate) fn open_metrics(&self) -> Option<String> {
        open_listener("metrics.listen", self.metrics.listen, "read names of services", PAGE_ADVICE)
    }
}

/// Whether an address is a Unix socket or a loopback address, and so on this machine.
pub(crate) fn is_here(address: &str) -> bool {
    if address.starts_with(UNIX) {
        return true;
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    is_this_machine(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        Config::parse(text).unwrap().warnings()
    }

    #[test]
    fn the_default_leaves_nothing_open() {
        assert_eq!(warnings(""), [""; 0]);
        assert_eq!(warnings("metrics: {listen: '[::1]:9703'}\n"), [""; 0]);
        let secure = "{address: 'host:9700', tls: {ca: ca.pem}}";
        assert_eq!(warnings(&format!("control: {secure}\n")), [""; 0]);
    }

    #[test]
    fn what_is_open_is_named_also_on_this_machine() {
        let open = warnings(
            "control: {address: '127.0.0.1:9700', insecure: true}\nmetrics: {listen: '0.0.0.0:9703'}\n\
             network: {peers: {listen: '0.0.0.0:9705', insecure: true, peers_insecure: true}, \
             streams: [{name: a, interface: e, one_way: {synopsis: rda, peer: 'b:1'}}]}\n",
        );

        let keys = [
            "control.address 127.0.0.1:9700 is called without TLS (control.insecure)",
            "metrics.listen 0.0.0.0:9703 has no TLS",
            "network.peers.listen 0.0.0.0:9705 takes whoever connects",
            "network.peers.peers_tls is missing (network.peers.peers_insecure)",
        ];
        assert_eq!(open.len(), keys.len(), "{open:?}");
        for (warning, key) in open.iter().zip(keys) {
            assert!(warning.starts_with(key), "{warning}");
        }
    }

    #[test]
    fn sockets_and_loopback_addresses_are_here_and_others_are_not() {
        for address in ["unix:/run/uview/control.sock", "127.0.0.1:9700", "127.3.2.1:1", "[::1]:9700", "localhost:9700"]
        {
            assert!(is_here(address), "{address}");
        }
        for address in ["10.0.0.1:9700", "[fe80::1]:9700", "host-agent.example:9700"] {
            assert!(!is_here(address), "{address}");
        }
    }
}
