//! The claims on RDA.

mod accuracy;
mod decoding;
mod prototype;

use std::path::Path;

use crate::analysis;
use crate::claim::Reproduction;
use crate::scale::Scale;
use crate::streams::Delays;

pub use decoding::{Decoded, Decoder, decoded};

/// The delays of the publication: Weibull's shape, and scale in nanoseconds.
pub const WEIBULL: (f64, f64) = (0.7, 6_647.0);

/// All claims. `two_agents` names the figures of two agents, which the example cannot measure itself.
pub fn reproduction(scale: Scale, two_agents: Option<&Path>) -> Reproduction {
    let (mut claims, decoded) = decoding::claims(scale);
    claims.extend(decoding::times(scale));
    let (of_errors, errors) = accuracy::claims(scale);
    claims.extend(of_errors);
    claims.push(prototype::bytes());
    claims.extend(prototype::two_agents(two_agents));
    claims.push(prototype::ping());
    claims.extend(prototype::scaling(scale));
    claims.extend(analysis::claims(scale));
    Reproduction {
        name: "rda",
        title: "RDA",
        about: "Synthetic intervals of a second in place of two traces that are not here, and of which only the number of packets matters (2,041,744 of \
                the larger one): unique random ids sent evenly, delays of Weibull's law of shape 0.7, 8.4 µs in the mean; d packets that only \
                one end has, half of them lost at random, half there too much at the borders. In R5, R6 and R9 all have as much memory: FineComb's stash takes half of \
                its. In R7 and R8 all have as many cells, and the stash is not counted. FineComb and LDA sample all packets. FineComb is told which packets came too much; RDA's caches (24 to 32 bytes per packet at each end) are not counted, as in the paper. \
                Errors are relative. The publication states means of ten runs; they are judged, and medians stand beside them, since a mean is that of \
                the few runs that cannot be decoded whole (A2). With whole nanoseconds errors are exactly 0 where everything is decoded, which no ratio can \
                express: 10⁻¹⁴ stands for it, the least error that the publication's text names. Times depend on the machine.",
        claims,
        figures: vec![decoded, errors],
    }
}
