//! Names of functions as people write them.

use core::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Characters of a name; a longer one ends with `…`.
const LONGEST: usize = 160;
/// Levels of a C++ name. One that is deeper stays as the linker has it.
const DEEPEST: u32 = 64;

/// A text that takes so much and then refuses: names of some bytes unfold to any length.
#[derive(Debug, Default)]
struct BoundedText {
    text: String,
    is_full: bool,
}

impl Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.text.chars().count() >= LONGEST {
                self.is_full = true;
                return Err(fmt::Error);
            }
            self.text.push(character);
        }
        Ok(())
    }
}

impl BoundedText {
    fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<String> {
        let mut bounded = Self::default();
        let ended = write(&mut bounded);
        if bounded.is_full {
            bounded.text.push('…');
        }
        (ended.is_ok() || bounded.is_full).then_some(bounded.text)
    }
}

/// The name of the symbol `symbol`, without parameters and hashes.
pub(crate) fn readable(symbol: &str) -> String {
    let rust = rustc_demangle::try_demangle(symbol).ok();
    let rust = rust.and_then(|name| BoundedText::of(|text| write!(text, "{name:#}")));
    rust.or_else(|| cpp(symbol)).or_else(|| BoundedText::of(|text| text.write_str(symbol))).unwrap_or_default()
}

fn cpp(symbol: &str) -> Option<String> {
    let parsed = symbol.starts_with("_Z").then(|| Symbol::new(symbol).ok())??;
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(DEEPEST);
    BoundedText::of(|text| parsed.structured_demangle(text, &options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_become_names_as_they_are_written() {
        assert_eq!(readable("_ZN4demo3hog4burn17h0123456789abcdefE"), "demo::hog::burn");
        assert_eq!(readable("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(readable("_ZNSt6vectorIiSaIiEE9push_backEOi"), "std::vector<int, std::allocator<int> >::push_back");
        assert_eq!(readable("ServerCron"), "ServerCron");
    }

    #[test]
    fn a_name_that_unfolds_without_end_is_cut() {
        let deep = format!("_Z{}i", "P".repeat(10_000));
        let wide = format!("_Z1f{}", "St6vectorIS_S0_E".repeat(500));

        for symbol in [deep, wide, "x".repeat(5_000), "_Z".to_owned(), "_R".to_owned()] {
            assert!(readable(&symbol).chars().count() <= LONGEST + 1);
        }
    }
}
