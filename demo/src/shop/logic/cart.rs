//! The cart: the visitors' baskets.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use client::{Client, Counter, Histogram, UpDownCounter};

use super::{Order, Page, ServiceLogic};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

/// Number of visitors.
const VISITORS: u64 = 2000;
/// Number of products.
const ITEMS: u64 = 1000;
/// A basket with so many items is emptied.
const FULL: usize = 12;

#[derive(Debug)]
pub(super) struct Cart {
    baskets: Mutex<HashMap<u64, Vec<u64>>>,
    prices: Cache,
    added: Counter,
    emptied: Counter,
    open: UpDownCounter,
    items: Histogram,
}

impl Cart {
    /// Starts with baskets as full as they are on average.
    pub(super) fn new(uview: &Client) -> Self {
        let items = |visitor| (0..mix(visitor) % FULL as u64).map(|item| mix(visitor ^ item) % ITEMS).collect();
        let baskets: HashMap<u64, Vec<u64>> = (0..VISITORS).map(|visitor| (visitor, items(visitor))).collect();
        let open = uview.up_down_counter("cart.open").unit("{cart}").register();
        open.add(baskets.values().filter(|basket| !basket.is_empty()).count() as i64);
        Self {
            baskets: Mutex::new(baskets),
            prices: Cache::new(uview, 800, ITEMS, mix),
            added: uview.counter("cart.items.added").unit("{item}").register(),
            emptied: uview.counter("cart.emptied").unit("{cart}").register(),
            open,
            items: uview.histogram("cart.items").unit("{item}").register(),
        }
    }
}

impl ServiceLogic for Cart {
    fn handle(&self, order: Order) -> Page {
        let mut baskets = self.baskets.lock().unwrap_or_else(PoisonError::into_inner);
        let basket = baskets.entry(mix(order.key) % VISITORS).or_default();
        if order.errand == Errand::Buy {
            self.open.add(i64::from(basket.is_empty()));
            basket.push(order.key % ITEMS);
            self.added.add(1);
        }
        if basket.len() >= FULL {
            basket.clear();
            self.open.add(-1);
            self.emptied.add(1);
        }
        let items = basket.len();
        let sum =
            basket.iter().map(|item| self.prices.get_or(*item, || work(*item, 3000))).fold(order.key, |a, b| a ^ b);
        self.items.observe(items as u64);
        work(sum, 4000 + 500 * items as u32);
        Page::fine(200 + 80 * items)
    }
}
