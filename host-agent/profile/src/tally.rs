//! Stacks of names, and how often each was seen.

use std::collections::{BTreeMap, HashMap};

use wire::proto::operators::IncidentStack;

/// Bytes of names and stacks that a profile keeps. The rarest stacks are left out first.
pub const KEPT_BYTES: usize = 40 << 10;

/// Counts stacks of names.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    known: HashMap<String, u32>,
    names: Vec<String>,
    counts: BTreeMap<Vec<u32>, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, frames: &[&str], samples: u64) {
        let stack = frames.iter().map(|name| self.number(name)).collect();
        *self.counts.entry(stack).or_default() += samples;
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), number);
        number
    }

    /// Names, each once, and stacks within [`KEPT_BYTES`], the most frequent first; and samples that were left out.
    pub(crate) fn finish(self) -> (Vec<String>, Vec<IncidentStack>, u64) {
        let mut all: Vec<_> =
            self.counts.into_iter().map(|(frames, samples)| IncidentStack { frames, samples }).collect();
        all.sort_by(|one, other| other.samples.cmp(&one.samples).then_with(|| one.frames.cmp(&other.frames)));
        let (mut kept, mut names, mut left_out) = (Vec::new(), Vec::new(), 0);
        let (mut renamed, mut bytes) = (HashMap::new(), 0);
        for stack in all {
            let fresh = stack.frames.iter().filter(|name| !renamed.contains_key(*name));
            let fresh: usize = fresh.filter_map(|name| Some(self.names.get(*name as usize)?.len() + 4)).sum();
            let size = 12 + 3 * stack.frames.len() + fresh;
            if bytes + size > KEPT_BYTES {
                left_out += stack.samples;
                continue;
            }
            bytes += size;
            let frames = stack.frames.into_iter().map(|name| {
                *renamed.entry(name).or_insert_with(|| {
                    names.push(self.names.get(name as usize).cloned().unwrap_or_default());
                    names.len() as u32 - 1
                })
            });
            kept.push(IncidentStack { frames: frames.collect(), samples: stack.samples });
        }
        (names, kept, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarest_stacks_make_room_and_are_counted() {
        let mut tally = Tally::default();
        let names: Vec<String> = (0..2_000).map(|of| format!("{of:060}")).collect();
        for (samples, name) in (1..).zip(&names) {
            tally.add(&["all", name], samples);
        }

        let (names, stacks, left_out) = tally.finish();

        let bytes: usize = names.iter().map(String::len).sum();
        assert!(bytes < KEPT_BYTES && stacks.len() > 400, "{bytes} {}", stacks.len());
        assert_eq!(stacks[0].samples, 2_000);
        assert_eq!(stacks.iter().map(|stack| stack.samples).sum::<u64>() + left_out, 2_000 * 2_001 / 2);
    }
}
