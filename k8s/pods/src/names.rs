//! Names and other words as they are kept: bounded in bytes.

/// Most bytes of a name that is kept; those of Kubernetes have at most 253.
pub(crate) const MAX_NAME: usize = 253;

/// At most [`MAX_NAME`] bytes of `text`.
pub(crate) fn short(text: &str) -> String {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
