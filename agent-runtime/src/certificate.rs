//! From when and until when an X.509 certificate is valid, and the common name of its subject. rustls checks dates at
//! each handshake, but tells neither. Reads these and nothing else (RFC 5280, sections 4.1.2.5 and 4.1.2.6); any bytes
//! give a value or `None`.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// The explicit tag of a version other than the first.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SET: u8 = 0x31;
/// An attribute of a name is the common name: its object identifier, 2.5.4.3.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
/// Strings that are UTF-8 as they are: UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];
const DAY_S: i64 = 86_400;

/// When a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from_s: i64,
    /// The last second.
    pub until_s: i64,
}

impl Validity {
    /// Reads a certificate in DER; `None` if it is none.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (validity, _) = validity_and_rest(certificate)?;
        let (from_s, rest) = time(validity)?;
        let (until_s, _) = time(rest)?;
        Some(Self { from_s, until_s })
    }
}

/// The content of a certificate's validity, and the fields behind it, of which the first one is the subject.
fn validity_and_rest(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = expect(fields, tag)?;
    }
    expect(fields, SEQUENCE)
}

/// The common name of the subject of a certificate in DER; `None` if there is none, or several.
#[must_use]
pub fn common_name(certificate: &[u8]) -> Option<&str> {
    let (_, rest) = validity_and_rest(certificate)?;
    let (mut attributes, _) = expect(rest, SEQUENCE)?;
    let mut found = None;
    while !attributes.is_empty() {
        let (set, rest) = expect(attributes, SET)?;
        attributes = rest;
        let (attribute, _) = expect(set, SEQUENCE)?;
        let Some(value) = attribute.strip_prefix(&COMMON_NAME) else { continue };
        let (tag, text, _) = element(value)?;
        let text = core::str::from_utf8(text).ok().filter(|_| STRINGS.contains(&tag))?;
        if found.replace(text).is_some() {
            return None;
        }
    }
    found
}

/// The content of the first element, which must have `tag`, and what follows it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Tag and content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The time in the first element, in seconds since 1970, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    let digits = content.strip_suffix(b"Z")?;
    let (year, digits) = match tag {
        UTC_TIME => {
            let (year, digits) = number(digits, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, digits)
        }
        GENERALIZED_TIME => number(digits, 4)?,
        _ => return None,
    };
    let (month, digits) = number(digits, 2)?;
    let (day, digits) = number(digits, 2)?;
    let (hour, digits) = number(digits, 2)?;
    let (minute, digits) = number(digits, 2)?;
    let (second, digits) = number(digits, 2)?;
    let possible = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    (possible && digits.is_empty())
        .then(|| (days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second, rest))
}

fn number(digits: &[u8], length: usize) -> Option<(i64, &[u8])> {
    let (number, rest) = digits.split_at_checked(length)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((number.iter().fold(0, |number, &digit| number * 10 + i64::from(digit - b'0')), rest))
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. A year is counted from March, so that a leap day is its
/// last day.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    // 719,468 days from the first of March of the year 0 to 1970.
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use support::certificates::{Day, Subject};

    use super::*;

    fn made(from: Day, until: Day) -> Vec<u8> {
        Subject::new(&["a.example"]).valid(from, until).self_signed().der()
    }

    #[test]
    fn both_forms_of_a_date_are_read() {
        let found = Validity::of(&made((2000, 2, 29), (2049, 12, 31))).unwrap();
        assert_eq!((found.from_s, found.until_s), (951_782_400, 2_524_521_600));
        let found = Validity::of(&made((1970, 1, 1), (2100, 3, 1))).unwrap();
        assert_eq!((found.from_s, found.until_s), (0, 4_107_542_400));
    }

    #[test]
    fn bytes_that_are_no_certificate_or_are_cut_give_nothing() {
        let whole = made((2020, 1, 1), (2030, 1, 1));

        assert_eq!(Validity::of(b""), None);
        assert_eq!(Validity::of(b"\x30\x84\xff\xff\xff\xff"), None);
        for length in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len().min(200) {
            let mut wrong = whole.clone();
            wrong[at] ^= 0xff;
            // It must not panic.
            let _ = Validity::of(&wrong);
        }
    }

    #[test]
    fn a_common_name_is_the_subjects_and_the_only_one() {
        let of_nodes = || Subject::new(&[]).organization("nodes");
        let certificate = of_nodes().common_name("front-proxy-client").self_signed().der();

        assert_eq!(common_name(&certificate), Some("front-proxy-client"));
        assert_eq!(common_name(&of_nodes().self_signed().der()), None);
        for length in 0..certificate.len() / 2 {
            // It must not panic.
            let _ = common_name(&certificate[..length]);
        }
    }
}
