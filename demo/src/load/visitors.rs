//! From which addresses the requests come.
//!
//! A place is what one request at a time has: a connection of its own, from the address of its place. Places are
//! reused, the first ones most. So there are as many connections as requests at once, whatever the number of addresses,
//! and the first address sends most.

use core::net::Ipv4Addr;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::http::HttpClient;

/// The last byte of the first address, in 127.0.0.0/24.
const FIRST: u8 = 11;

/// The addresses, and which places have a request under way.
#[derive(Debug)]
pub(super) struct Visitors {
    clients: Vec<HttpClient>,
    taken: BTreeSet<usize>,
}

impl Visitors {
    /// Visitors from so many addresses; 0: from the one that the system selects.
    pub(super) fn new(addresses: u8, patience: Duration) -> Self {
        let address = |number: u8| Ipv4Addr::new(127, 0, 0, FIRST.saturating_add(number));
        let clients: Vec<_> =
            (0..addresses).map(|number| HttpClient::from_address(address(number), patience)).collect();
        let clients = if clients.is_empty() { vec![HttpClient::new(patience)] } else { clients };
        Self { clients, taken: BTreeSet::new() }
    }

    /// The first free place, and what sends from there.
    pub(super) fn take(&mut self) -> (usize, HttpClient) {
        let place = (0..=self.taken.len()).find(|place| !self.taken.contains(place)).unwrap_or_default();
        self.taken.insert(place);
        (place, self.clients[place % self.clients.len()].clone())
    }

    /// Frees a place.
    pub(super) fn free(&mut self, place: usize) {
        self.taken.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener};
    use std::thread;

    use axum::http::Method;

    use super::*;

    #[test]
    fn the_first_free_place_is_taken() {
        let mut visitors = Visitors::new(2, Duration::from_secs(1));
        let places: Vec<_> = (0..3).map(|_| visitors.take().0).collect();
        assert_eq!(places, [0, 1, 2]);

        visitors.free(1);
        visitors.free(0);
        assert_eq!([visitors.take().0, visitors.take().0, visitors.take().0], [0, 1, 3]);
    }

    #[tokio::test]
    async fn requests_at_once_come_from_different_addresses_and_the_addresses_are_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        // Connections are closed at once: that they were made is enough.
        let from = thread::spawn(move || [(); 3].map(|()| listener.accept().unwrap().1.ip()));
        let mut visitors = Visitors::new(2, Duration::from_mins(1));
        for _ in 0..3 {
            let (_, http) = visitors.take();
            let _ = http.request(Method::GET, target, "/").await;
        }

        let expected = [11, 12, 11].map(|last| IpAddr::from([127, 0, 0, last]));
        assert_eq!(from.join().unwrap(), expected);
    }
}
