//! What a user of the crate can rely on, through its public interface.

mod bad_input;
mod beginning;
mod budget;
mod canary;
mod cap;
mod estimated;
mod explanation;
mod groups;
mod indicator;
mod intervals;
mod lasting;
mod life;
mod look;
mod model;
mod noise;
mod novelty;
mod oracle;
mod poisoning;
mod saturation;
mod sketch;
mod staggering;
mod support;
mod warm;
