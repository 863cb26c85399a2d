//! The number of cells, and the results to expect. Symbols are those of the paper: d packets that only one end has, k
//! banks of m cells, n packets.

/// How the number of cells follows the number of differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizing {
    /// Cells in all banks for each difference.
    pub per_packet: f64,
    /// Margin, since the number of differences is an estimate: 0.25 for a quarter more cells.
    pub margin: f64,
    /// Minimum number of cells in a bank. The deviation needs many cells.
    pub least: usize,
    /// Maximum number of cells in a bank.
    pub most: usize,
}

impl Default for Sizing {
    /// Four cells for each difference and a quarter more, from 512 to 2¹⁸ in a bank.
    fn default() -> Self {
        Self { per_packet: 4.0, margin: 0.25, least: 512, most: 1 << 18 }
    }
}

impl Sizing {
    /// m, number of cells in each of `banks` banks, for an estimate of d.
    #[must_use]
    pub fn cells(&self, banks: usize, differences: f64) -> usize {
        let all = self.per_packet * differences * (1.0 + self.margin);
        // `as` saturates, and makes 0 of a NaN.
        let cells = libm::ceil(all / banks.max(1) as f64) as usize;
        cells.min(self.most).max(self.least).max(1)
    }
}

/// Bytes sent for `cells` cells and for the times of `requested` packets.
#[must_use]
pub const fn exchanged_bytes(cells: usize, requested: usize) -> usize {
    24 * cells + 16 * requested
}

/// Bytes of all ids and timestamps. If this is less, they are sent instead of cells.
#[must_use]
pub const fn direct_bytes(packets: usize) -> usize {
    16 * packets
}

/// Probability that all d packets are identified in two banks of m cells, d < m: that a random graph has no cycle. The
/// paper's O(d⁻ᵏ) is for a structure with more cells.
#[must_use]
pub fn complete_chance(differences: f64, cells: f64) -> f64 {
    let load = differences / cells;
    libm::sqrt((1.0 - load * load).max(0.0))
}

/// Expected number of unidentified packets of d in two banks of m cells, d < m.
#[must_use]
pub fn expected_unidentified(differences: f64, cells: f64) -> f64 {
    let load = (differences / cells) * (differences / cells);
    if load < 1.0 { load / (1.0 - load) } else { f64::INFINITY }
}

/// Mean absolute error of the published estimate of the deviation, as a share of it, from `pairs` pairs of cells.
#[must_use]
pub fn deviation_error(mean: f64, deviation: f64, pairs: f64) -> f64 {
    0.8 * 0.5 * (1.0 + mean * mean / (deviation * deviation)) * libm::sqrt(2.0 / pairs)
}

/// Number of packets with which the mean is within a share `error` of the true one with probability 1 − `failing`, by
/// sampling of packets, not of cells.
#[must_use]
pub fn packets_for_mean(mean: f64, deviation: f64, error: f64, failing: f64) -> f64 {
    let ratio = deviation / (error * mean);
    2.0 * ratio * ratio * (core::f64::consts::LN_2 - libm::log(failing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_the_differences_between_bounds() {
        let sizing = Sizing::default();

        assert_eq!(sizing.cells(2, 1_000.0), 2_500);
        assert_eq!(sizing.cells(3, 1_000.0), 1_667);
        assert_eq!([0.0, f64::NAN, -5.0].map(|none| sizing.cells(2, none)), [512; 3]);
        assert_eq!(sizing.cells(2, f64::INFINITY), 1 << 18);
        assert_eq!(Sizing { least: 0, ..sizing }.cells(0, 0.0), 1);
    }

    #[test]
    fn everything_is_sent_where_that_is_less() {
        // Four cells for each of d, 192 bits each, against 128 bits for each of n: d/n = 1/6; with two cells 1/3.
        assert_eq!(exchanged_bytes(4 * 1_000, 0), direct_bytes(6_000));
        assert_eq!(exchanged_bytes(2 * 1_000, 0), direct_bytes(3_000));
        assert_eq!(exchanged_bytes(0, 3), 48);
    }

    #[test]
    fn printed_numbers_come_out() {
        assert!((complete_chance(100.0, 200.0) - 0.866).abs() < 1e-3);
        assert!((expected_unidentified(2_000.0, 2_500.0) - 1.78).abs() < 0.01);
        assert_eq!(expected_unidentified(2.0, 1.0), f64::INFINITY);
        assert_eq!(complete_chance(2.0, 1.0), 0.0);
        // Weibull of shape 0.6: mean 10, deviation 17.6.
        assert!((packets_for_mean(10.0, 17.58, 0.01, 0.05) / 228_031.0 - 1.0).abs() < 0.01);
        assert!((deviation_error(8.41, 12.28, 1_000.0) - 0.0263).abs() < 0.001);
    }
}
