//! Streams of packets between two services of the map.
//!
//! A stream says which packets it is of, and not whose: addresses and ports. Its name does, if whoever configured it
//! named it CALLER-CALLEE.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::feed::{STREAMS, Stream};

/// Streams that are edges: the first by name.
const MAX_EDGES: usize = 64;

/// Each of `streams` that is named `network.CALLER-CALLEE` after two services of `places`: number of the caller, of the
/// callee, and of the stream's LMAP. A slash in a service's name is a point in that of a stream.
pub(super) fn edges(streams: &[Stream], places: &BTreeMap<&Arc<str>, usize>) -> Vec<Value> {
    let numbers: BTreeMap<String, usize> =
        places.iter().map(|(service, place)| (service.replace('/', "."), *place)).collect();
    let ends = |stream: &str| {
        let mut cuts = stream.match_indices('-');
        cuts.find_map(|(at, _)| Some((*numbers.get(&stream[..at])?, *numbers.get(&stream[at + 1..])?)))
    };
    let edge = |stream: &Stream| {
        let (caller, callee) = ends(stream.service.strip_prefix(STREAMS)?)?;
        Some(json!([caller, callee, stream.lmap]))
    };
    streams.iter().filter_map(edge).take(MAX_EDGES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_an_edge_if_it_is_named_after_caller_and_callee() {
        let names: Vec<Arc<str>> = ["shop", "shop-db", "db", "eu/cart"].map(Arc::from).to_vec();
        let places = names.iter().enumerate().map(|(place, name)| (name, place)).collect();
        let stream = |(lmap, service): (u32, &str)| Stream { lmap, service: service.to_owned() };
        let streams = [
            (7, "network.shop-db"),
            (8, "network.shop-db-db"),
            (9, "network.eu.cart-db"),
            (10, "network.uplink"),
            (11, "network.db-nobody"),
            (12, "shop-db"),
        ]
        .map(stream);

        assert_eq!(edges(&streams, &places), [json!([0, 2, 7]), json!([1, 2, 8]), json!([3, 2, 9])]);
    }

    #[test]
    fn edges_are_bounded() {
        let names: Vec<Arc<str>> = ["a", "b"].map(Arc::from).to_vec();
        let places = names.iter().enumerate().map(|(place, name)| (name, place)).collect();
        let streams: Vec<_> = (0..1_000).map(|lmap| Stream { lmap, service: "network.a-b".to_owned() }).collect();

        assert_eq!(edges(&streams, &places).len(), MAX_EDGES);
    }
}
