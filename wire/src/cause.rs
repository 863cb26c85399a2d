//! What an error is about in the end.

use core::error::Error;
use core::iter;

/// The text of the last cause of `error`, where the errors around it only say "transport error".
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&cause| cause.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("transport error")]
    struct TransportError(#[source] std::io::Error);

    #[test]
    fn the_last_cause_is_what_it_is_about() {
        let error = TransportError(std::io::Error::other("disk on fire"));

        assert_eq!(innermost(&error), "disk on fire");
        assert_eq!(innermost(&std::io::Error::other("alone")), "alone");
    }
}
