//! The store: an ordered map with a log that is flushed when it is full.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use client::{Client, Counter, Gauge, Histogram};

use super::{Order, Page, ServiceLogic};
use crate::graph::Errand;
use crate::noise::{mix, work};
use crate::shop::cache::Cache;

const KEYS: u64 = 50_000;
const ROWS_PER_PAGE: u64 = 16;
/// The log is flushed at so many bytes.
const LONG: usize = 24_000;

#[derive(Debug)]
pub(super) struct Store {
    table: Mutex<Table>,
    pages: Cache,
    rows_read: Counter,
    rows_written: Counter,
    log_bytes: Counter,
    flushes: Counter,
    log_pending: Gauge,
    row_size: Histogram,
}

#[derive(Debug)]
struct Table {
    rows: BTreeMap<u64, u64>,
    log: Vec<u8>,
}

impl Store {
    pub(super) fn new(uview: &Client) -> Self {
        let rows = (0..KEYS).map(|key| (key, mix(key))).collect();
        Self {
            table: Mutex::new(Table { rows, log: Vec::with_capacity(2 * LONG) }),
            pages: Cache::new(uview, 2000, KEYS / ROWS_PER_PAGE, mix),
            rows_read: uview.counter("store.rows.read").unit("{row}").register(),
            rows_written: uview.counter("store.rows.written").unit("{row}").register(),
            log_bytes: uview.counter("store.log.written").unit("By").register(),
            flushes: uview.counter("store.log.flushes").unit("{flush}").register(),
            log_pending: uview.gauge("store.log.pending").unit("By").register(),
            row_size: uview.histogram("store.row.size").unit("By").register(),
        }
    }

    fn write(&self, table: &mut Table, key: u64, number: u64) -> Page {
        let bytes = 60 + (mix(number) % 200) as usize;
        table.rows.insert(key, number);
        table.log.resize(table.log.len() + bytes, number as u8);
        self.rows_written.add(1);
        self.log_bytes.add(bytes as u64);
        self.row_size.observe(bytes as u64);
        if table.log.len() >= LONG {
            work(number, 2 * LONG as u32);
            table.log.clear();
            self.flushes.add(1);
        }
        self.log_pending.set(table.log.len() as f64);
        Page::fine(20)
    }

    fn read(&self, table: &Table, key: u64) -> Page {
        let rows = table.rows.range(key..).take(1 + (mix(key) % 40) as usize);
        let (count, sum) = rows.fold((0, 0), |(count, sum), (_, row)| (count + 1, sum ^ row));
        self.pages.get_or(key / ROWS_PER_PAGE, || work(sum, 6000));
        self.rows_read.add(count);
        Page::fine(30 + 25 * count as usize)
    }
}

impl ServiceLogic for Store {
    fn handle(&self, order: Order) -> Page {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        work(order.key, 3000);
        match order.errand {
            Errand::Browse => self.read(&table, order.key % KEYS),
            Errand::Buy => self.write(&mut table, order.key % KEYS, order.key),
        }
    }
}
