//! Payment: computes a risk, accepts or declines.

use client::{Client, Counter, Gauge, Histogram};

use super::{Order, Page, ServiceLogic};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

/// Number of cards.
const CARDS: u64 = 4000;

#[derive(Debug)]
pub(super) struct Payment {
    cards: Cache,
    quotes: Counter,
    accepted: Counter,
    declined: Counter,
    revenue: Counter,
    risk: Histogram,
    last_amount: Gauge,
}

impl Payment {
    pub(super) fn new(uview: &Client) -> Self {
        Self {
            cards: Cache::new(uview, 1000, CARDS, mix),
            quotes: uview.counter("payment.quotes").unit("{quote}").register(),
            accepted: uview.counter("payment.accepted").unit("{payment}").register(),
            declined: uview.counter("payment.declined").unit("{payment}").register(),
            revenue: uview.counter("payment.revenue").unit("{cent}").register(),
            risk: uview.histogram("payment.risk").unit("{point}").register(),
            last_amount: uview.gauge("payment.last_amount").unit("{cent}").register(),
        }
    }
}

impl ServiceLogic for Payment {
    fn handle(&self, order: Order) -> Page {
        let card = self.cards.get_or(order.key % CARDS, || work(order.key, 9000));
        let risk = mix(card ^ order.key) % 1000;
        work(risk, 6000);
        self.risk.observe(risk);
        if order.errand == Errand::Browse {
            self.quotes.add(1);
            return Page::fine(180);
        }
        if risk >= 970 {
            self.declined.add(1);
            return Page { status: 402, bytes: 50 };
        }
        let amount = 500 + mix(order.key) % 9500;
        self.accepted.add(1);
        self.revenue.add(amount);
        self.last_amount.set(amount as f64);
        Page::fine(240)
    }
}
