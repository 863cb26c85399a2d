//! What is measured, and under which conditions.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use support::network::{HERE, THERE};
use support::relay::LinkConditions;

/// Length of an interval of both streams and of a row of their LMAPs, in milliseconds: long enough for the samples that
/// a median takes.
pub const INTERVAL_MS: u64 = 1_000;
/// The same as a duration.
pub const INTERVAL: Duration = Duration::from_millis(INTERVAL_MS);
/// The server's port.
pub const PORT: u16 = 7_000;
/// Slots of the fridge in the switch (`p4/fridge/constants.p4`).
const SLOTS: f64 = 256.0;
/// After so many seconds Linux sends a request for a connection again.
const REPEATED_AFTER_S: f64 = 1.0;
/// The two streams: that of the host's own interface, and that of the switch.
pub const STREAMS: [&str; 2] = ["host", "switch"];

/// What is measured, and by which synopsis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The delay of TCP handshakes, by a fridge.
    Handshake,
    /// Delay and loss of one direction, by FineComb.
    OneWay,
}

impl Measure {
    /// What it is called in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Handshake => "fridge: TCP handshakes",
            Self::OneWay => "FineComb: one way",
        }
    }

    /// What is counted.
    pub const fn counted(self) -> &'static str {
        match self {
            Self::Handshake => "requests",
            Self::OneWay => "packets",
        }
    }

    /// What of the delay is shown.
    pub const fn delay(self) -> &'static str {
        match self {
            Self::Handshake => "median",
            Self::OneWay => "mean",
        }
    }

    /// What becomes of a lost packet.
    pub const fn loss(self) -> &'static str {
        match self {
            Self::Handshake => "repeated",
            Self::OneWay => "lost",
        }
    }

    /// The namespaces with a switch in front, and the switches' programs.
    pub const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Handshake => &[(HERE, "fridge")],
            Self::OneWay => &[(HERE, "finecomb-sender"), (THERE, "finecomb-receiver")],
        }
    }

    /// The namespace before which a packet passes a switch after that has stamped it, and before the host does.
    pub const fn stamped_before_host(self) -> &'static str {
        match self {
            Self::Handshake => HERE,
            Self::OneWay => THERE,
        }
    }

    /// The share of requests or packets that the switch's program samples (`p4/fridge/constants.p4` and
    /// `p4/finecomb-sender/constants.p4`).
    pub const fn sampled(self) -> f64 {
        match self {
            Self::Handshake => 0.75,
            Self::OneWay => 0.6,
        }
    }

    /// The share of lost packets that the switch's program has to notice, at so many requests a second. A request that
    /// is sent again after a second is a repeated one if its slot has not been taken since.
    pub fn noticed(self, per_second: f64) -> f64 {
        match self {
            Self::Handshake => (-per_second * REPEATED_AFTER_S * self.sampled() / SLOTS).exp(),
            Self::OneWay => 1.0,
        }
    }

    /// Whether an interval that was not read is missing, and not a part of the next one.
    pub const fn misses_intervals(self) -> bool {
        matches!(self, Self::OneWay)
    }

    /// By how much the two delays may differ, as a share of the larger one: classes of a histogram are 12 % wide, and
    /// there are two; a mean is of other packets.
    pub const fn tolerance(self) -> f64 {
        match self {
            Self::Handshake => 0.25,
            Self::OneWay => 0.05,
        }
    }
}

/// A condition of the link.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub name: &'static str,
    /// What the relay does.
    pub link: LinkConditions,
    /// Whether an alarm has to come; `None`: both or none.
    pub alarm: Option<bool>,
}

/// The link without a fault.
pub const USUAL: LinkConditions = LinkConditions { delay_ms: (1, 1), loss: 0.0, duplication: 0.0, seed: 9 };

/// All conditions, in the order in which they are measured.
pub const CONDITIONS: [Condition; 4] = [
    Condition { name: "nothing", link: USUAL, alarm: Some(false) },
    Condition { name: "5 ms more", link: LinkConditions { delay_ms: (6, 6), ..USUAL }, alarm: Some(true) },
    Condition { name: "1 % lost", link: LinkConditions { loss: 0.01, ..USUAL }, alarm: None },
    Condition { name: "reordered", link: LinkConditions { delay_ms: (1, 4), ..USUAL }, alarm: None },
];
