//! The frontend: visitors' sessions and pages.

use client::{Client, Counter, Histogram};

use super::{Order, Page, ServiceLogic};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

/// Number of visitors with sessions.
const VISITORS: u64 = 3000;

#[derive(Debug)]
pub(super) struct Frontend {
    sessions: Cache,
    pages: Counter,
    checkouts: Counter,
    page_size: Histogram,
}

impl Frontend {
    pub(super) fn new(uview: &Client) -> Self {
        Self {
            sessions: Cache::new(uview, 1500, VISITORS, mix),
            pages: uview.counter("shop.pages").unit("{page}").register(),
            checkouts: uview.counter("shop.checkouts").unit("{order}").register(),
            page_size: uview.histogram("shop.page.size").unit("By").register(),
        }
    }
}

impl ServiceLogic for Frontend {
    fn handle(&self, order: Order) -> Page {
        let session = self.sessions.get_or(order.key % VISITORS, || work(order.key, 4000));
        let bytes = 2000 + (mix(session ^ order.key) % 6000) as usize;
        work(session, 2 * bytes as u32);
        self.pages.add(1);
        self.page_size.observe(bytes as u64);
        if order.errand == Errand::Buy {
            self.checkouts.add(1);
        }
        Page::fine(bytes)
    }
}
