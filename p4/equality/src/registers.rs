//! Registers by the names that the programs give them, without those of their controls.

use std::collections::BTreeMap;

use crate::interpreter::Machine;

/// Entries of register arrays, by name.
pub type Registers = BTreeMap<String, Vec<u64>>;

/// All registers of a switch. Those of more than 64 bits are left out.
#[must_use]
pub fn of(machine: &Machine) -> Registers {
    let arrays = machine.program().registers().iter();
    arrays.filter_map(|array| Some((short(&array.name).to_owned(), machine.registers(&array.name)?))).collect()
}

/// The last part of a name.
#[must_use]
pub fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The first few entries that differ, one a line, with what `expected` has; empty if none does.
#[must_use]
pub fn differences(expected: &Registers, found: &Registers) -> String {
    const MOST: usize = 8;
    let mut lines = Vec::new();
    for (name, entries) in expected {
        let Some(others) = found.get(name).filter(|others| others.len() == entries.len()) else {
            lines.push(format!(
                "{name}: {} entries expected, {:?} found",
                entries.len(),
                found.get(name).map(Vec::len)
            ));
            continue;
        };
        let differ = entries.iter().zip(others).enumerate().filter(|(_, (expected, found))| expected != found);
        lines.extend(differ.map(|(at, (expected, found))| format!("{name}[{at}]: {expected} expected, {found} found")));
    }
    let names = found.keys().filter(|name| !expected.contains_key(*name));
    lines.extend(names.map(|name| format!("{name}: not expected")));
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said_with_its_place() {
        let registers = |entries: &[u64]| Registers::from([("ticks".to_owned(), entries.to_vec())]);

        assert_eq!(differences(&registers(&[1, 2]), &registers(&[1, 2])), "");
        assert_eq!(differences(&registers(&[1, 2]), &registers(&[1, 3])), "ticks[1]: 2 expected, 3 found");
        assert_eq!(differences(&registers(&[1]), &registers(&[])), "ticks: 1 entries expected, Some(0) found");
        assert_eq!(differences(&Registers::new(), &registers(&[1])), "ticks: not expected");
        assert_eq!(short("Ingress.frames.refusals"), "refusals");
    }
}
