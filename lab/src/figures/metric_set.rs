//! The hundred metrics of a service, the same on both sides of a figure: 80 counters, 16 gauges, 4 histograms.

/// Number of counters: eight metrics with ten routes each.
pub const COUNTERS: usize = 80;
/// Number of gauges.
pub const GAUGES: usize = 16;
/// Number of histograms.
pub const HISTOGRAMS: usize = 4;
/// Routes of a counter.
pub const ROUTES: usize = 10;

/// The name of counter `at`, and the value of its label `route`.
pub fn counter(at: usize) -> (String, String) {
    (format!("shop.requests.kind{}", at / ROUTES), format!("/route/{}", at % ROUTES))
}

/// The name of gauge `at`.
pub fn gauge(at: usize) -> String {
    format!("shop.queue{at}.depth")
}

/// The name of histogram `at`.
pub fn histogram(at: usize) -> String {
    format!("shop.step{at}.duration")
}

/// A cheap random number generator for metric values, 0 to 999.
#[derive(Clone, Copy, Debug)]
pub struct Noise(pub u64);

impl Noise {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % 1000
    }
}
