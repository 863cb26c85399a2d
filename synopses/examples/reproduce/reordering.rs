//! The claims on reordering by prefix.

mod lemmas;
mod measure;
mod memory;
mod parameters;
mod traffic;

use synopses::reordering::{Settings, Threshold};

use crate::claim::Reproduction;
use crate::scale::Scale;
use measure::{Case, Quality, quality_with};

/// Cases of all profiles, and how many seeds of hashes each point has.
struct Bench {
    seeds: u64,
    full: bool,
}

impl Bench {
    fn quality(&self, cases: &[Case], settings: Settings) -> Quality {
        self.quality_with(cases, settings, Threshold::Any)
    }

    fn quality_with(&self, cases: &[Case], settings: Settings, threshold: Threshold) -> Quality {
        quality_with(cases, settings, threshold, self.seeds)
    }

    /// Seeds of traffic.
    const fn cases() -> u64 {
        3
    }
}

/// All claims on reordering.
pub fn reproduction(scale: Scale) -> Reproduction {
    // The reduced form has the same seeds, since few prefixes are to be found, and fewer points.
    let bench = Bench { seeds: 5, full: scale.full };
    let (mut claims, accuracy) = memory::claims(&bench);
    let (of_parameters, timeouts) = parameters::claims(&bench);
    claims.extend(of_parameters);
    claims.extend(lemmas::claims(&bench));
    Reproduction {
        name: "reordering",
        title: "Reordering by prefix",
        about: "The traces of a campus (82,359,405 packets of 545,973 flows and 16,988 prefixes in 5 minutes) and of CAIDA (2019, 61,791,947 packets of \
                2,717,709 flows and 54,148 prefixes in 10 minutes) cannot be had, and the curves of the figures are not in the text: all verdicts are on a \
                stand-in, four seconds of synthetic TCP traffic of flows with windows and round trips, in which 12 % of the prefixes are bad and flows of \
                a prefix differ much. R1 has 1,024 prefixes, 32,768 flows, 40 µs between packets of a window, and 85 % of the events are swapped \
                neighbours; in R2 90 % are losses, which come again a round trip later; R1L has 4,096 prefixes, 131,072 flows and 10 µs; R3 2,048 \
                prefixes, 65,536 flows and 20 % bad ones. Accuracy is the share of the prefixes with at least 128 packets and more than 1 % out of order \
                that are flagged; false positives are per prefix with more than 16 packets and more than 1 %, so that they may exceed 1; overhead is \
                reports per packet. Parameters are the publication's: T = 2⁻¹⁵ s, C = 16, R = 1, two stages, α = 16. Means are of three seeds of traffic \
                and five of hashes.",
        claims,
        figures: vec![accuracy, timeouts],
    }
}
