//! The catalogue: all products, in memory.

use client::{Client, Counter, Histogram};

use super::{Order, Page, ServiceLogic};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

const PRODUCTS: usize = 16_000;
/// Bytes of one product's description.
const DESCRIPTION: usize = 1536;

/// Number of search terms.
const TERMS: u64 = 900;

#[derive(Debug)]
pub(super) struct Catalogue {
    descriptions: Descriptions,
    searches: Cache,
    found: Counter,
    unknown: Counter,
    prices: Counter,
    matches: Histogram,
}

impl Catalogue {
    /// Writes 24 MB of descriptions, most of this service's memory.
    pub(super) fn new(uview: &Client, seed: u64) -> Self {
        let word = |at: usize| b'a' + (mix(seed ^ at as u64) % 26) as u8;
        let descriptions = Descriptions((0..PRODUCTS * DESCRIPTION).map(word).collect());
        Self {
            searches: Cache::new(uview, 400, TERMS, |term| descriptions.search(term)),
            descriptions,
            found: uview.counter("catalogue.products.found").unit("{product}").register(),
            unknown: uview.counter("catalogue.products.unknown").unit("{product}").register(),
            prices: uview.counter("catalogue.prices").unit("{price}").register(),
            matches: uview.histogram("catalogue.matches").unit("{product}").register(),
        }
    }
}

/// The descriptions of all products, concatenated.
#[derive(Debug)]
struct Descriptions(Vec<u8>);

impl Descriptions {
    fn of(&self, product: u64) -> &[u8] {
        let start = product as usize % PRODUCTS * DESCRIPTION;
        self.0.get(start..start + DESCRIPTION).unwrap_or_default()
    }

    /// Of 20 products, the number that have a letter twice in a row near the beginning.
    fn search(&self, term: u64) -> u64 {
        let letter = b'a' + (term % 26) as u8;
        let matches = |product| self.of(product).windows(2).take(512).any(|pair| pair == [letter; 2]);
        (0..20).filter(|at| matches(mix(term + at))).count() as u64
    }
}

impl ServiceLogic for Catalogue {
    fn handle(&self, order: Order) -> Page {
        if order.key.is_multiple_of(64) {
            self.unknown.add(1);
            return Page { status: 404, bytes: 40 };
        }
        if order.errand == Errand::Buy {
            self.prices.add(1);
            work(self.descriptions.of(order.key).iter().map(|byte| u64::from(*byte)).sum(), 3000);
            return Page::fine(60);
        }
        let term = order.key % TERMS;
        let matches = self.searches.get_or(term, || self.descriptions.search(term));
        self.found.add(matches);
        self.matches.observe(matches);
        work(matches, 4000);
        Page::fine(150 + 110 * matches as usize)
    }
}
