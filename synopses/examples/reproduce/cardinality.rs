//! The claims on cardinality in sliding windows.

mod bench;
mod constants;
mod memory;
mod stamps;
mod traces;
mod windows;

use crate::claim::Reproduction;
use crate::scale::Scale;

/// All claims on cardinality.
pub fn reproduction(scale: Scale) -> Reproduction {
    let mut claims = constants::claims();
    claims.extend(windows::claims());
    let (of_traces, by_memory) = traces::claims(scale);
    claims.extend(of_traces);
    let (of_stamps, saw_tooth) = stamps::claims(scale);
    claims.extend(of_stamps);
    claims.extend(memory::claims());
    Reproduction {
        name: "cardinality",
        title: "Cardinality in sliding windows",
        about: "The curves of the figures are not in the text, only the figures below; sampling times, queries and seeds are not stated, nor are K, the \
                prune period and the window of figure 2.17. An error is the mean of its absolute value relative to the true count in the window. C4, C5, \
                C11 and C12 are on the published synthetic traffic, of one packet per flow. The traces of CAIDA (2018 and 2019) cannot be had: C6 to C10, \
                C14 and C15 are on a stand-in of packets. Its flows are independent Poisson sources; A r^−0.7 of them have more than r packets per second, \
                from 0.002 to 2,500, and A gives 75,000 flows per second without these limits: exponent, scale and limits come from the published totals \
                of the traces, and nothing was fitted to a synopsis. Rows named *fitted* are on another stand-in, in which 1 of 11 flows of a window is in \
                every other window, too, and the others are new: that share was chosen because it makes C6 come out, so that C6-fitted says nothing, \
                C7-fitted to C10-fitted little, and C14-fitted and C15-fitted do not depend on it. ST-HLL has the published range correction and exact \
                ages; TS-PCSA has eight slots per window and four positions of slack. By the published rule Sliding HLL (W-HLL) has an eighth of the \
                registers at equal memory.",
        claims,
        figures: vec![by_memory, saw_tooth],
    }
}
