//! What a user of the crate can rely on, through its public interface.

mod life;
mod oracle;
mod support;
