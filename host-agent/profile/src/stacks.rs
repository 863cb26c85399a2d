//! Stacks as they are sampled: places in files, and how often each stack was seen.

use std::collections::HashMap;

/// Different stacks of one profile.
pub(crate) const MAX_STACKS: usize = 2_048;
/// Frames of a stack; those nearest to where the thread began are left out first.
pub(crate) const MAX_FRAMES: usize = 64;

/// Where code lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CodePlace {
    /// Index of the file.
    pub(crate) file: u32,
    /// Offset in the file, or the address where there is no file.
    pub(crate) at: u64,
}

/// Stacks and how often each was seen. At most [`MAX_STACKS`] × ([`MAX_FRAMES`] × 16 + 64) bytes: 2.3 MB.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// By index of the process and frames, the innermost first.
    counts: HashMap<(u32, Box<[CodePlace]>), u64>,
    /// All counts together.
    samples: u64,
    /// Counts of stacks that did not fit.
    left_out: u64,
}

impl Stacks {
    /// Adds a sample of `process` with `frames`, the innermost first, which counts `counts` times.
    pub(crate) fn add(&mut self, process: u32, frames: &[CodePlace], counts: u64) {
        self.samples = self.samples.saturating_add(counts);
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        let key = (process, frames.into());
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_add(counts);
        } else if self.counts.len() < MAX_STACKS {
            self.counts.insert(key, counts);
        } else {
            self.left_out = self.left_out.saturating_add(counts);
        }
    }

    /// All counts, those included that were left out.
    pub(crate) const fn samples(&self) -> u64 {
        self.samples
    }

    /// Counts of stacks that did not fit.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Each stack with its process and count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[CodePlace], u64)> {
        self.counts.iter().map(|((process, frames), count)| (*process, &**frames, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut stacks = Stacks::default();
        for at in 0..MAX_STACKS as u64 + 3 {
            stacks.add(0, &[CodePlace { file: 0, at }], 1);
        }
        stacks.add(0, &[CodePlace { file: 0, at: 1 }], 1);
        stacks.add(0, &[CodePlace { file: 0, at: 1 }; MAX_FRAMES + 9], 1);

        assert_eq!((stacks.samples(), stacks.left_out()), (MAX_STACKS as u64 + 5, 4));
        assert_eq!(stacks.iter().map(|(_, _, count)| count).max(), Some(2));
    }
}
