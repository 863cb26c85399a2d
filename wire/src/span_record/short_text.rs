//! Texts that are kept without an allocation.

use core::fmt;

use super::TEXT_BYTES;

/// A text of at most [`TEXT_BYTES`], without an allocation. The excess is cut at a character.
#[derive(Clone, Copy)]
pub struct ShortText {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self { bytes: [0; TEXT_BYTES], length: 0 }
    }
}

impl ShortText {
    /// The formatted `value`, as far as it fits.
    #[must_use]
    pub fn of(value: fmt::Arguments<'_>) -> Self {
        let mut line = Self::default();
        // An error is the line's own: it is full.
        _ = fmt::Write::write_fmt(&mut line, value);
        line
    }

    /// Removes the text.
    pub const fn clear(&mut self) {
        self.length = 0;
    }

    /// The text as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = &text[..text.floor_char_boundary(TEXT_BYTES - self.length)];
        self.bytes[self.length..self.length + fits.len()].copy_from_slice(fits.as_bytes());
        self.length += fits.len();
        if fits.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
