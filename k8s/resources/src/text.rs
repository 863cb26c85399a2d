//! Texts of bounded length.

/// `text` without what is beyond `most` bytes, whole characters only.
pub(crate) fn short(mut text: String, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
