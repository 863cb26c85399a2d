//! Faults that the admin port injects into a service: threads that really burn CPU, real delays, errors and memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::time::Nanos;

use crate::clock::Clock;
use crate::fault::Kind;

/// Interval between two allocations of a leak.
const LEAK_STEP: Duration = Duration::from_millis(100);

/// Maximal memory of a leak. Larger than any block that the allocator keeps when it is freed (32 MiB).
const RESERVE: usize = 96 << 20;

/// A request to the admin port to inject a fault.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Injection {
    /// The fault. A service refuses hangs, which are signals from outside, and slow links, which only the link has.
    pub(crate) kind: Kind,
    /// Its duration in milliseconds.
    pub(crate) ms: u64,
    /// Latency and slow link: additional milliseconds per request or packet. Errors: failing requests in a thousand.
    /// CPU hog: threads. Leak: ignored.
    pub(crate) amount: u64,
}

impl Injection {
    /// Path and query of the request.
    pub(crate) fn target(&self) -> String {
        format!("/fault?kind={}&ms={}&amount={}", self.kind, self.ms, self.amount)
    }
}

/// The faults of one service. Without an active fault they cost two atomic loads per request.
#[derive(Debug)]
pub(crate) struct Faults {
    delay_ms: AtomicU64,
    failing_permille: AtomicU64,
    /// Address space is reserved at the start and again after a leak, so that it does not reveal the leak.
    hoard: Mutex<Hoard>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { delay_ms: AtomicU64::new(0), failing_permille: AtomicU64::new(0), hoard: Mutex::new(Hoard::new()) }
    }
}

impl Faults {
    /// Additional delay of each request.
    pub(crate) fn delay(&self) -> Option<Duration> {
        // Relaxed: a switch that nothing else depends on.
        let delay = self.delay_ms.load(Ordering::Relaxed);
        (delay > 0).then(|| Duration::from_millis(delay))
    }

    /// Whether a request fails; `lot` is its random number, uniform in \[0, 1).
    pub(crate) fn fails(&self, lot: f64) -> bool {
        // Relaxed: as above.
        lot < self.failing_permille.load(Ordering::Relaxed) as f64 / 1000.0
    }

    /// Starts a fault, which ends by itself. Refuses a kind that a service cannot inject into itself.
    pub(crate) fn inject(self: &Arc<Self>, injection: Injection) -> Result<(), Kind> {
        let lasts = Duration::from_millis(injection.ms);
        match injection.kind {
            Kind::CpuHog => (0..injection.amount).for_each(|_| burn(lasts)),
            Kind::Latency => self.switch(|faults| &faults.delay_ms, injection.amount, lasts),
            Kind::Errors => self.switch(|faults| &faults.failing_permille, injection.amount, lasts),
            Kind::Leak => self.leak(lasts),
            Kind::Hang | Kind::SlowLink => return Err(injection.kind),
        }
        Ok(())
    }

    fn switch(self: &Arc<Self>, which: fn(&Self) -> &AtomicU64, amount: u64, lasts: Duration) {
        let faults = Arc::clone(self);
        which(&faults).store(amount, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            which(&faults).store(0, Ordering::Relaxed);
        });
    }

    /// Allocates as much memory as this process has now, step by step over `lasts`, then returns it to the system.
    fn leak(self: &Arc<Self>, lasts: Duration) {
        let faults = Arc::clone(self);
        let whole = resident_bytes();
        tokio::spawn(async move {
            let steps = (lasts.as_millis() / LEAK_STEP.as_millis()).max(1) as usize;
            let mut tick = tokio::time::interval(LEAK_STEP);
            for step in 1..=steps {
                tick.tick().await;
                faults.hoard.lock().unwrap_or_else(PoisonError::into_inner).grow_to(whole / steps * step);
            }
            faults.hoard.lock().unwrap_or_else(PoisonError::into_inner).give_back();
        });
    }
}

/// Starts a thread that computes for the time `lasts`.
fn burn(lasts: Duration) {
    let hog = move || burn_the_processor(&Clock::start(), Nanos::from(lasts));
    // Without a thread there is no fault, and the report shows that.
    let _ = std::thread::Builder::new().name("hog".to_owned()).spawn(hog);
}

/// Computes for the time `lasts`. A profile is to show this function, so that it is a function of its own, and calls
/// none while it computes.
#[inline(never)]
fn burn_the_processor(clock: &Clock, lasts: Nanos) {
    let mut number = 1_u64;
    while clock.now() < lasts {
        let mut round = 0;
        while round < 20_000 {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            round += 1;
        }
        core::hint::black_box(number);
    }
}

/// Unused memory. Its address space is reserved at once, so that growing copies nothing; pages are allocated as it
/// grows.
#[derive(Debug)]
struct Hoard(Vec<u8>);

impl Hoard {
    fn new() -> Self {
        Self(Vec::with_capacity(RESERVE))
    }

    /// Writes every byte up to `bytes`, which makes the pages resident.
    fn grow_to(&mut self, bytes: usize) {
        self.0.resize(bytes.min(RESERVE), 0x5A);
        core::hint::black_box(&self.0);
    }

    /// Frees all pages, then reserves new address space.
    fn give_back(&mut self) {
        self.0 = Vec::new();
        *self = Self::new();
    }
}

/// The resident set of this process in bytes; 0 if it cannot be read.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn errors_hit_the_share_that_was_asked_for() {
        let faults = Faults::default();
        assert!(!faults.fails(0.0));

        faults.failing_permille.store(300, Ordering::Relaxed);

        assert!(faults.fails(0.29));
        assert!(!faults.fails(0.31));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_ends_by_itself() {
        let faults = Arc::new(Faults::default());

        faults.inject(Injection { kind: Kind::Latency, ms: 500, amount: 80 }).unwrap();

        assert_eq!(faults.delay(), Some(Duration::from_millis(80)));
        tokio::time::sleep(Duration::from_millis(501)).await;
        assert_eq!(faults.delay(), None);
    }

    #[tokio::test]
    async fn a_service_cannot_stop_itself() {
        let faults = Arc::new(Faults::default());

        assert_eq!(faults.inject(Injection { kind: Kind::Hang, ms: 1, amount: 0 }), Err(Kind::Hang));
    }

    /// Resident bytes of the hoard that begins or began at `address`, counted page by page: the kernel merges adjacent
    /// mappings, so that its sums may include other hoards and stacks.
    fn resident_at(address: usize) -> usize {
        let (page, present_or_swapped) = (rustix::param::page_size(), 0b11 << 62);
        let mut entries = vec![0; RESERVE / page * 8];
        let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
        pages.read_exact_at(&mut entries, (address / page * 8) as u64).unwrap();
        let entries = entries.chunks_exact(8).map(|entry| u64::from_le_bytes(entry.try_into().unwrap()));
        entries.filter(|entry| entry & present_or_swapped != 0).count() * page
    }

    #[test]
    fn a_hoard_is_resident_as_far_as_it_grew_and_given_back_to_the_system() {
        let mut hoard = Hoard::new();
        let address = hoard.0.as_ptr() as usize;
        assert!(resident_at(address) < 1 << 20);

        hoard.grow_to(40 << 20);
        let grown = resident_at(address);
        hoard.give_back();

        assert!((40 << 20..44 << 20).contains(&grown), "{grown}");
        assert!(resident_at(address) < 40 << 20);
        assert!(resident_bytes() > 1 << 20);
    }
}
