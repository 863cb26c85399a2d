//! What a function returns: a code, and for each thread the text of its last problem. No panic gets past it.
#![expect(unsafe_code, reason = "symbols without mangled names")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Done as the caller wanted.
pub(crate) const OK: c_int = 0;
/// The handle works, no agent reads it.
pub(crate) const DETACHED: c_int = 1;
/// An argument is NULL that must not be.
pub(crate) const NULL: c_int = -1;
/// An argument's text is not UTF-8.
pub(crate) const NOT_TEXT: c_int = -2;
/// An argument has a value that it must not have.
pub(crate) const OUT_OF_RANGE: c_int = -3;
/// The library has an error of its own: it panicked.
pub(crate) const INTERNAL: c_int = -4;

/// How a call was wrong. Nothing was done then.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    /// This argument must not be NULL.
    Null(&'static str),
    /// This argument is not UTF-8.
    NotText(&'static str),
    /// An argument is out of range, in words.
    OutOfRange(String),
}

impl Misuse {
    fn told(self) -> (c_int, String) {
        match self {
            Self::Null(what) => (NULL, format!("{what} must not be NULL")),
            Self::NotText(what) => (NOT_TEXT, format!("{what} is not UTF-8")),
            Self::OutOfRange(text) => (OUT_OF_RANGE, text),
        }
    }
}

/// How a call that was right ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As the caller wanted.
    Done,
    /// With a handle that no agent reads, for this reason.
    Detached(String),
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps `text` for [`uview_last_problem`]. A thread that is ending has nobody to ask for it.
fn note(text: &str) {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Calls `function` and turns its end, also by a panic, into a code.
pub(crate) fn guarded(function: impl FnOnce() -> Result<Outcome, Misuse>) -> c_int {
    // What a panic leaves half done is the client's: it takes its locks again after one.
    let (code, text) = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(Outcome::Done)) => return OK,
        Ok(Ok(Outcome::Detached(cause))) => (DETACHED, cause),
        Ok(Err(misuse)) => misuse.told(),
        Err(_) => (INTERNAL, "libuview panicked: please report it".to_owned()),
    };
    // Text that cannot be kept is no reason to unwind either.
    let _ = catch_unwind(AssertUnwindSafe(|| note(&text)));
    code
}

/// Calls `function` and gives `otherwise` if it panics.
pub(crate) fn guarded_or<T>(otherwise: T, function: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or(otherwise)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_last_problem() -> *const c_char {
    // The text stays where it is until the thread's next problem.
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| CStr::as_ptr(&last))).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        LAST.with(|last| last.borrow().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        assert_eq!(guarded(|| panic!("as code may")), INTERNAL);
        assert!(last().contains("panicked"));
        assert_eq!(guarded_or(7, || panic!("as code may")), 7);
    }

    #[test]
    fn a_success_leaves_the_last_problem_and_zeros_in_a_text_do_not_end_it() {
        assert_eq!(guarded(|| Ok(Outcome::Detached("a\0b".to_owned()))), DETACHED);
        assert_eq!(guarded(|| Ok(Outcome::Done)), OK);

        assert_eq!(last(), "ab");
    }
}
