//! What a user of the crate can rely on, through its public interface.

mod bad_input;
mod life;
mod model;
mod noise;
mod oracle;
mod sketch;
mod support;
