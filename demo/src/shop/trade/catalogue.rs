//! The catalogue: what there is to buy, all of it in memory.

use client::{Client, Counter, Histogram};

use super::{Order, Page, Trade};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

const PRODUCTS: usize = 16_000;
/// Bytes of one product's description.
const DESCRIPTION: usize = 1536;

#[derive(Debug)]
pub(super) struct Catalogue {
    descriptions: Vec<u8>,
    searches: Cache,
    found: Counter,
    unknown: Counter,
    prices: Counter,
    matches: Histogram,
}

impl Catalogue {
    /// Writes 24 MB of descriptions: this service's memory is its stock.
    pub(super) fn new(uview: &Client, seed: u64) -> Self {
        let word = |at: usize| b'a' + (mix(seed ^ at as u64) % 26) as u8;
        Self {
            descriptions: (0..PRODUCTS * DESCRIPTION).map(|at| word(at / 7)).collect(),
            searches: Cache::new(uview, 400),
            found: uview.counter("catalogue.products.found").unit("{product}").register(),
            unknown: uview.counter("catalogue.products.unknown").unit("{product}").register(),
            prices: uview.counter("catalogue.prices").unit("{price}").register(),
            matches: uview.histogram("catalogue.matches").unit("{product}").register(),
        }
    }

    fn description(&self, product: u64) -> &[u8] {
        let start = product as usize % PRODUCTS * DESCRIPTION;
        self.descriptions.get(start..start + DESCRIPTION).unwrap_or_default()
    }

    /// How many of 20 products have a letter twice in a row somewhere.
    fn search(&self, term: u64) -> u64 {
        let letter = b'a' + (term % 26) as u8;
        let matches = (0..20).filter(|at| self.description(mix(term + at)).windows(2).any(|pair| pair == [letter; 2]));
        matches.count() as u64
    }
}

impl Trade for Catalogue {
    fn carry_out(&self, order: Order) -> Page {
        if order.key.is_multiple_of(64) {
            self.unknown.add(1);
            return Page { status: 404, bytes: 40 };
        }
        if order.errand == Errand::Buy {
            self.prices.add(1);
            work(self.description(order.key).iter().map(|byte| u64::from(*byte)).sum(), 3000);
            return Page::fine(60);
        }
        let term = order.key % 900;
        let matches = self.searches.get_or(term, || self.search(term));
        self.found.add(matches);
        self.matches.observe(matches);
        work(matches, 4000);
        Page::fine(150 + 110 * matches as usize)
    }
}
