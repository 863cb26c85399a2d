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
    /// Packets out of order, by definition 1: below the sequence number of the packet before, of the same flow. It is
    /// the only one that the programs have, and that of an agent's own path. By the program `reordering`: the kept
    /// `reordering-samples` reports flows with events only, which no agent reads.
    Reordering,
}

/// What of the delay is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedDelay {
    /// What of it is shown.
    pub name: &'static str,
    /// By how much the two may differ, as a share of the larger one.
    pub tolerance: f64,
}

impl Measure {
    /// What it is called in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Handshake => "fridge: TCP handshakes",
            Self::OneWay => "FineComb: one way",
            Self::Reordering => "reordering by prefix",
        }
    }

    /// What is counted.
    pub const fn counted(self) -> &'static str {
        match self {
            Self::Handshake => "requests",
            Self::OneWay => "packets",
            Self::Reordering => "segments",
        }
    }

    /// What both count exactly of what is sent alone.
    pub const fn alone(self) -> &'static str {
        match self {
            Self::Handshake => "requests alone",
            Self::OneWay => "packets alone",
            Self::Reordering => "segments out of order alone",
        }
    }

    /// What of the delay is compared: classes of a histogram are 12 % wide, and there are two; a mean is of other
    /// packets. `None`: none is measured.
    pub const fn delay(self) -> Option<ComparedDelay> {
        match self {
            Self::Handshake => Some(ComparedDelay { name: "median", tolerance: 0.25 }),
            Self::OneWay => Some(ComparedDelay { name: "mean", tolerance: 0.05 }),
            Self::Reordering => None,
        }
    }

    /// What becomes of some packets.
    pub const fn share(self) -> &'static str {
        match self {
            Self::Handshake => "repeated",
            Self::OneWay => "lost",
            Self::Reordering => "out of order",
        }
    }

    /// The namespaces with a switch in front, and the switches' programs.
    pub const fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Handshake => &[(HERE, "fridge")],
            Self::OneWay => &[(HERE, "finecomb-sender"), (THERE, "finecomb-receiver")],
            Self::Reordering => &[(HERE, "reordering")],
        }
    }

    /// The namespace before which a packet passes a switch after that has stamped it, and before the host does.
    pub const fn stamped_before_host(self) -> &'static str {
        match self {
            Self::Handshake | Self::Reordering => HERE,
            Self::OneWay => THERE,
        }
    }

    /// The share of requests or packets that the switch's program samples (`p4/fridge/constants.p4` and
    /// `p4/finecomb-sender/constants.p4`). Of two connections that last, `p4/reordering` checks all packets but the
    /// first one, since both have a row of heavy flows for themselves.
    pub const fn sampled(self) -> f64 {
        match self {
            Self::Handshake => 0.75,
            Self::OneWay => 0.6,
            Self::Reordering => 1.0,
        }
    }

    /// The share of lost packets that the switch's program has to notice, at so many requests a second. A request that
    /// is sent again after a second is a repeated one if its slot has not been taken since.
    pub fn noticed(self, per_second: f64) -> f64 {
        match self {
            Self::Handshake => (-per_second * REPEATED_AFTER_S * self.sampled() / SLOTS).exp(),
            Self::OneWay | Self::Reordering => 1.0,
        }
    }

    /// By how much two shares may differ in any case: of a connection that is not disturbed few packets are out of
    /// order, if any, and one at the end of the time is in an interval of the host or of the switch only.
    pub const fn strays(self) -> f64 {
        match self {
            Self::Handshake | Self::OneWay => 0.0,
            Self::Reordering => 0.001,
        }
    }

    /// Whether an interval that was not read is missing, and not a part of the next one.
    pub const fn misses_intervals(self) -> bool {
        matches!(self, Self::OneWay)
    }

    /// The conditions of the link, in the order in which they are measured.
    pub const fn conditions(self) -> &'static [Condition] {
        match self {
            Self::Handshake | Self::OneWay => &OF_DELAYS,
            Self::Reordering => &OF_ORDER,
        }
    }

    /// The link while something is sent alone, which both count exactly.
    pub const fn link_alone(self) -> LinkConditions {
        match self {
            Self::Handshake | Self::OneWay => USUAL,
            Self::Reordering => REORDERED,
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
/// A link on which packets overtake those that were sent up to 3 ms before.
const REORDERED: LinkConditions = LinkConditions { delay_ms: (1, 4), ..USUAL };

const NOTHING: Condition = Condition { name: "nothing", link: USUAL, alarm: Some(false) };
/// The conditions of measures of delay and loss.
const OF_DELAYS: [Condition; 4] = [
    NOTHING,
    Condition { name: "5 ms more", link: LinkConditions { delay_ms: (6, 6), ..USUAL }, alarm: Some(true) },
    Condition { name: "1 % lost", link: LinkConditions { loss: 0.01, ..USUAL }, alarm: None },
    Condition { name: "reordered", link: REORDERED, alarm: None },
];
/// Those of the measure of order, which a longer delay does not change.
const OF_ORDER: [Condition; 2] = [NOTHING, Condition { name: "reordered", link: REORDERED, alarm: Some(true) }];
