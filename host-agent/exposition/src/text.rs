//! Prometheus text 0.0.4 and OpenMetrics 1.0 text. One pass, nothing allocated for samples that are known.
//!
//! Timestamps and exemplars are read over. A line that is no sample refuses the whole body.

use crate::format::{Description, FamilyKind, FormatError, Role, Sink};

/// Most bytes of a line that an error shows.
const SHOWN: usize = 80;

/// The family that the last `# TYPE` line announced.
#[derive(Clone, Copy, Default)]
struct Family<'b> {
    name: &'b [u8],
    kind: FamilyKind,
    unit: &'b [u8],
}

/// Reads `body` into `sink`. With `open_metrics` it has to end with `# EOF`.
pub fn read(body: &[u8], open_metrics: bool, sink: &mut impl Sink) -> Result<(), FormatError> {
    let mut family = Family::default();
    let mut rest = body;
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let refused = |why| {
            let shown = String::from_utf8_lossy(line.get(..SHOWN).unwrap_or(line)).into_owned();
            FormatError::Line { line: number, why, text: shown }
        };
        let text = trim_start(line);
        if let Some(comment) = text.strip_prefix(b"#") {
            if open_metrics && text == b"# EOF" {
                return if rest.is_empty() { Ok(()) } else { Err(refused("something follows `# EOF`")) };
            }
            announce(comment, &mut family).map_err(refused)?;
        } else if !text.is_empty() {
            sample(text, &family, sink).map_err(refused)?;
        }
    }
    if open_metrics { Err(FormatError::NoEnd) } else { Ok(()) }
}

/// Takes a `# TYPE` or `# UNIT` line; other comments say nothing.
fn announce<'b>(comment: &'b [u8], family: &mut Family<'b>) -> Result<(), &'static str> {
    let mut words = comment.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (keyword, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match keyword {
        b"TYPE" => {
            let kind = words.next().unwrap_or_default();
            let kind = FamilyKind::from_name(kind).ok_or("the type is not known")?;
            let unit = if family.name == name { family.unit } else { &[] };
            *family = Family { name, kind, unit };
        }
        b"UNIT" => {
            let unit = words.next().unwrap_or_default();
            if family.name == name {
                family.unit = unit;
            } else {
                *family = Family { name, kind: FamilyKind::Unknown, unit };
            }
        }
        _ => {}
    }
    Ok(())
}

fn sample(line: &[u8], family: &Family<'_>, sink: &mut impl Sink) -> Result<(), &'static str> {
    let name_end = line.iter().position(|byte| !is_name(*byte)).unwrap_or(line.len());
    let name = line.get(..name_end).unwrap_or_default();
    if name.is_empty() || name.first().is_some_and(u8::is_ascii_digit) {
        return Err("a name begins with a letter, _ or :");
    }
    let (key_end, labels) = match trim_start(line.get(name_end..).unwrap_or_default()) {
        after @ [b'{', inside @ ..] => {
            let length = closing(inside).ok_or("its labels do not end")?;
            (line.len() - after.len() + length + 2, inside.get(..length).unwrap_or_default())
        }
        _ => (name_end, &[][..]),
    };
    let key = line.get(..key_end).unwrap_or_default();
    let rest = line.get(key_end..).unwrap_or_default();
    let mut words = rest.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let value = words.next().and_then(number).ok_or("its value is no number")?;
    match words.next() {
        None | Some(b"#") => {}
        Some(time) => {
            number(time).ok_or("its timestamp is no number")?;
            if words.next().is_some_and(|word| word != b"#") {
                return Err("something follows its timestamp");
            }
        }
    }
    sink.sample(key, value, || describe(name, labels, family));
    Ok(())
}

/// A number as both formats write it.
fn number(word: &[u8]) -> Option<f64> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

fn trim_start(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    line.get(start..).unwrap_or_default()
}

/// The length of the labels before their closing brace. Braces in values do not count.
fn closing(labels: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    labels.iter().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        !quoted && *byte == b'}'
    })
}

/// What a sample that was never seen before is of. `None` if its labels cannot be read.
fn describe(name: &[u8], labels: &[u8], family: &Family<'_>) -> Option<Description> {
    let mut labels = pairs(labels)?;
    let of_family = name.strip_prefix(family.name).filter(|_| !family.name.is_empty());
    let role = of_family.and_then(|suffix| family.kind.suffixes().iter().find(|(known, _)| *known == suffix));
    let name = String::from_utf8(name.to_vec()).ok()?;
    let (own, kind, role) = match role {
        // The name of a counter has `_total` in OpenMetrics and in Prometheus text, whose families differ in that.
        Some((_, role @ Role::Counter)) => (name, family.kind, *role),
        Some((_, role)) => {
            let own = String::from_utf8(family.name.to_vec()).ok()?;
            let lacks_total = family.kind == FamilyKind::Counter && !own.ends_with("_total");
            (if lacks_total { own + "_total" } else { own }, family.kind, *role)
        }
        // Nothing says what it is. By convention, a name that ends in `_total` is a counter's.
        None if name.ends_with("_total") => (name, FamilyKind::Unknown, Role::Counter),
        None => (name, FamilyKind::Unknown, Role::Gauge),
    };
    let role = if role == Role::Gauge && kind == FamilyKind::Unknown && own.ends_with("_total") {
        Role::Counter
    } else {
        role
    };
    let mut bound = f64::INFINITY;
    if role == Role::Bucket {
        let at = labels.iter().position(|(key, _)| key == "le")?;
        bound = number(labels.remove(at).1.as_bytes())?;
    }
    let unit = core::str::from_utf8(family.unit).ok().filter(|unit| !unit.is_empty()).map(str::to_owned);
    Some(Description { family: own, kind, role, labels, bound, unit })
}

/// The pairs between the braces. `None` if they are not pairs.
fn pairs(mut rest: &[u8]) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    loop {
        rest = trim_start(rest);
        if rest.is_empty() {
            return Some(found);
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let key = String::from_utf8(rest.get(..equals)?.trim_ascii().to_vec()).ok()?;
        rest = trim_start(rest.get(equals + 1..)?).strip_prefix(b"\"")?;
        let (mut value, mut at) = (Vec::new(), 0);
        loop {
            match *rest.get(at)? {
                b'"' => break,
                b'\\' => {
                    at += 1;
                    match *rest.get(at)? {
                        b'n' => value.push(b'\n'),
                        other => value.push(other),
                    }
                }
                byte => value.push(byte),
            }
            at += 1;
        }
        found.push((key, String::from_utf8(value).ok()?));
        rest = trim_start(rest.get(at + 1..)?);
        match rest.split_first() {
            Some((b',', after)) => rest = after,
            Some(_) => return None,
            None => {}
        }
    }
}
