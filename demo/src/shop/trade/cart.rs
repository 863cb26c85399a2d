//! The cart: who has what in the basket.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use client::{Client, Counter, Gauge, Histogram};

use super::{Order, Page, Trade};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

/// Visitors that have a basket.
const VISITORS: u64 = 2000;
/// A basket is emptied when it is as full as that.
const FULL: usize = 12;

#[derive(Debug)]
pub(super) struct Cart {
    baskets: Mutex<HashMap<u64, Vec<u64>>>,
    prices: Cache,
    added: Counter,
    emptied: Counter,
    open: Gauge,
    items: Histogram,
}

impl Cart {
    pub(super) fn new(uview: &Client) -> Self {
        Self {
            baskets: Mutex::default(),
            prices: Cache::new(uview, 800),
            added: uview.counter("cart.items.added").unit("{item}").register(),
            emptied: uview.counter("cart.emptied").unit("{cart}").register(),
            open: uview.gauge("cart.open").unit("{cart}").register(),
            items: uview.histogram("cart.items").unit("{item}").register(),
        }
    }
}

impl Trade for Cart {
    fn carry_out(&self, order: Order) -> Page {
        let mut baskets = self.baskets.lock().unwrap_or_else(PoisonError::into_inner);
        let basket = baskets.entry(mix(order.key) % VISITORS).or_default();
        if order.errand == Errand::Buy {
            basket.push(order.key % 1000);
            self.added.add(1);
        }
        if basket.len() >= FULL {
            basket.clear();
            self.emptied.add(1);
        }
        let items = basket.len();
        let sum =
            basket.iter().map(|item| self.prices.get_or(*item, || work(*item, 3000))).fold(order.key, |a, b| a ^ b);
        self.items.observe(items as u64);
        self.open.set(baskets.len() as f64);
        work(sum, 4000 + 500 * items as u32);
        Page::fine(200 + 80 * items)
    }
}
