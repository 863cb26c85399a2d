//! Whom an address reaches: this machine only, or others too, and what is said of a listener for others without TLS.

use std::net::{IpAddr, SocketAddr};

/// What to do about a page that has no TLS of its own.
pub const PAGE_ADVICE: &str = "listen on loopback, or let a proxy with TLS and authentication through only";

/// What a listener without TLS leaves open: from another machine, whoever reaches the `address` of `key` may do `what`.
/// `None` if no other machine reaches it. The words end with `advice`.
#[must_use]
pub fn open_listener(key: &str, address: SocketAddr, what: &str, advice: &str) -> Option<String> {
    (!is_loopback(address.ip())).then(|| format!("{key} {address} has no TLS: whoever reaches it may {what}; {advice}"))
}

/// Whether a host, by name or address and without a port, is this machine as seen from itself.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// Whether an address is one of loopback, written as IPv4 in IPv6 too.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_open_unless_its_address_is_of_loopback() {
        let open = |address: &str| open_listener("metrics.listen", address.parse().unwrap(), "read", PAGE_ADVICE);

        for address in ["127.3.2.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(open(address), None, "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let said = open(address).unwrap();
            assert!(said.starts_with(&format!("metrics.listen {address} has no TLS")), "{said}");
        }
    }

    #[test]
    fn a_host_is_this_machine_by_the_name_and_the_addresses_of_loopback() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "10.0.0.1", "fe80::1", "localhost.example", "127.0.0.1:80"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
