//! The figures of the test with TCP, for the table of reproductions.

use serde_json::json;

use super::{Comparison, GRACE_MS, LENGTH_MS, median};
use support::relay::LinkConditions;

/// Names the file for the figures.
const FILE: &str = "UVIEW_TWO_AGENTS_JSON";

/// Writes the figures of the sender's end, of intervals without a flag, to the file that the environment names, if it
/// does.
#[expect(clippy::disallowed_methods, reason = "the environment names the file")]
pub fn write(compared: &Comparison, of_intervals: usize, link: &LinkConditions) {
    let Some(file) = std::env::var_os(FILE).filter(|file| !file.is_empty()) else { return };
    let intervals = compared.means.len() as f64;
    let exchange_ms = median(&compared.pipeline_ms);
    let figures = json!({
        "release": !cfg!(debug_assertions),
        "conditions": format!(
            "five TCP connections over a relay that delays by {} to {} ms, loses {} % and sends {} % twice",
            link.delay_ms.0, link.delay_ms.1, 100.0 * link.loss, 100.0 * link.duplication
        ),
        "intervals": compared.means.len(),
        "of_intervals": of_intervals,
        "packets_per_second": compared.sent as f64 / intervals,
        "mbits_per_second": compared.bytes as f64 * 8e-6 / intervals,
        "mean_us": median(&compared.mean_ns) / 1e3,
        "mean_error": median(&compared.means),
        "deviation_error": median(&compared.deviations),
        // The exchange begins when the grace period of the next interval ends; see `Comparison`.
        "exchange_ms": exchange_ms,
        "slowest_exchange_ms": compared.pipeline_ms.iter().copied().fold(0.0, f64::max),
        "after_end_ms": exchange_ms + LENGTH_MS + GRACE_MS,
    });
    std::fs::write(file, format!("{figures:#}\n")).expect("the file can be written");
}
