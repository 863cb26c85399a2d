//! The words of a region that a reader wants: runs of words. What lies between costs neither reading nor memory.

use core::ops::Range;

use wire::layout::{PAGE_BYTES, SLOT_BYTES};

/// Words of a page. Two used words that are nearer than that are in one run: a run of its own costs a READ, and a gap
/// that is shorter contains no whole page.
const PAGE_WORDS: usize = PAGE_BYTES / SLOT_BYTES;

/// Runs of a region's words: in ascending order, none empty, at least a page between two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(Vec<Run>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// In the region.
    words: Range<usize>,
    /// Words of the runs before it, which is its place in a buffer.
    before: usize,
}

impl Runs {
    /// The first `words` words of a region; no run if that is 0.
    #[must_use]
    pub fn first(words: usize) -> Self {
        Self(if words == 0 { Vec::new() } else { vec![Run { words: 0..words, before: 0 }] })
    }

    /// The fewest runs that cover `used`, in any order, with gaps of less than a page filled. Empty ranges are ignored.
    #[must_use]
    pub fn covering(used: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut used: Vec<_> = used.into_iter().filter(|words| !words.is_empty()).collect();
        used.sort_unstable_by_key(|words| words.start);
        let mut runs: Vec<Run> = Vec::new();
        for words in used {
            match runs.last_mut() {
                Some(last) if words.start < last.words.end.saturating_add(PAGE_WORDS) => {
                    last.words.end = last.words.end.max(words.end);
                }
                last => {
                    let before = last.map_or(0, |last| last.before + last.words.len());
                    runs.push(Run { words, before });
                }
            }
        }
        runs.shrink_to_fit();
        Self(runs)
    }

    /// The runs, each as a range of the region's words.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|run| run.words.clone())
    }

    /// The run number `at`, from 0.
    pub(crate) fn get(&self, at: usize) -> Option<Range<usize>> {
        self.0.get(at).map(|run| run.words.clone())
    }

    /// Words of all runs together: the length of a buffer for them.
    #[must_use]
    pub fn words(&self) -> usize {
        self.0.last().map_or(0, |last| last.before + last.words.len())
    }

    /// The end of the last run, in words from the region's start.
    #[must_use]
    pub fn end(&self) -> usize {
        self.0.last().map_or(0, |last| last.words.end)
    }

    /// Where the region's word number `word` is in a buffer for these runs; `None` if it is in no run.
    #[must_use]
    pub fn position(&self, word: usize) -> Option<usize> {
        let run = self.0.get(self.0.partition_point(|run| run.words.end <= word))?;
        word.checked_sub(run.words.start).map(|inside| run.before + inside)
    }

    /// The pages that the runs touch, each once, as ranges of page numbers in ascending order.
    pub fn pages(&self) -> impl Iterator<Item = Range<usize>> {
        // A page is in one run only, since two runs are at least a page apart.
        self.iter().map(|words| words.start / PAGE_WORDS..words.end.div_ceil(PAGE_WORDS))
    }

    /// Bytes of the pages that the runs touch: the most that reading them can make a reader's system allocate.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pages().map(|pages| pages.len() as u64).sum::<u64>() * PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_lies_between_used_words_is_left_out_from_a_page_on() {
        let runs = Runs::covering([0..8, 519..520, 2_097_151..2_097_152]);

        assert_eq!(runs.iter().collect::<Vec<_>>(), [0..520, 2_097_151..2_097_152]);
        assert_eq!((runs.words(), runs.end()), (521, 2_097_152));
        assert_eq!((runs.position(519), runs.position(520), runs.position(2_097_151)), (Some(519), None, Some(520)));
        assert_eq!(runs.pages().collect::<Vec<_>>(), [0..2, 4095..4096]);
        assert_eq!(runs.page_bytes(), 3 * 4096);
    }

    #[cfg(not(miri))] // Pure: Miri would need minutes for it and see nothing.
    proptest! {
        #[test]
        fn every_used_word_has_a_place_of_its_own_and_no_page_without_one_is_read(
            used in prop::collection::vec((0_usize..20_000, 0_usize..1500), 0..20),
        ) {
            let used: Vec<_> = used.into_iter().map(|(start, words)| start..start + words).collect();
            let runs = Runs::covering(used.clone());
            let buffer: Vec<usize> = runs.iter().flatten().collect();

            prop_assert!(buffer.is_sorted() && buffer.len() == runs.words());
            for word in used.iter().cloned().flatten() {
                prop_assert_eq!(runs.position(word).map(|at| buffer[at]), Some(word));
            }
            for page in runs.pages().flatten() {
                let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
                prop_assert!(used.iter().any(|of| of.start < words.end && words.start < of.end && !of.is_empty()));
            }
            let pages: Vec<usize> = runs.pages().flatten().collect();
            prop_assert!(pages.windows(2).all(|two| two[0] < two[1]), "{:?}", pages);
        }
    }
}
