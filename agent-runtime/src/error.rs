//! Errors as one line of text.

use core::error::Error;
use core::iter;

/// `error` and its causes in one line, the outermost first, joined by `: `.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the file")]
    struct OpenError(#[source] std::io::Error);

    #[test]
    fn causes_follow_the_error_that_they_caused() {
        let error = OpenError(std::io::Error::other("disk on fire"));

        assert_eq!(chain(&error), "cannot open the file: disk on fire");
    }
}
