//! Messages that releases have sent, as `tests/protocol/recorded` keeps them.

use std::fs;

use crate::workspace;

/// Names and bytes of the messages in `file` of a protocol.
///
/// # Panics
///
/// There is no such file, or a line of it is no name with hexadecimal digits.
#[must_use]
pub fn recorded(protocol: u32, file: &str) -> Vec<(String, Vec<u8>)> {
    let path = workspace().join(format!("tests/protocol/recorded/{protocol}/{file}"));
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
    let line = |line: &str| {
        let (name, digits) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), bytes(digits).expect("bytes are written as hexadecimal digits"))
    };
    text.expect("each protocol has its files").lines().map(line).collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_a_byte_and_other_texts_are_none() {
        assert_eq!(bytes("00ff1a"), Some(vec![0, 0xff, 0x1a]));
        assert_eq!(bytes(""), Some(Vec::new()));
        assert_eq!((bytes("0g"), bytes("ü")), (None, None));
    }
}
