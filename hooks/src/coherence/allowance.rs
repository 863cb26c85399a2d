//! How many decisions of each peer are taken. The table of decisions is shared by all nodes: one that decides about
//! everything, or about traces that do not exist, would have it forget the decisions of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::item::Item;
use crate::coherence::message::Entries;

/// Allowances that are remembered, also of peers that have left.
const MAX_ALLOWANCES: usize = 1 << 14;
/// Share of an allowance that one relayer may take with words about one node.
const PAIR: f64 = 0.25;

/// Who says something about whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A node for itself.
    Node(Arc<str>),
    /// A relayer about a node; about one that this node does not know, `None`.
    Relayed(Arc<str>, Option<Arc<str>>),
    /// One relayer about all.
    Relayer(Arc<str>),
    /// All relayers about one node.
    About(Option<Arc<str>>),
}

/// What is left of an allowance. It fills up with time.
#[derive(Debug)]
struct Allowance {
    decisions: f64,
    at: Nanos,
}

/// Allowances of all peers, by name: a new run does not have a new one.
///
/// What a node says itself has an allowance of its own. What is relayed takes from three: those of the relayer, of the
/// node that it is about, and a quarter of that for the two together. So a liar cannot use up what others may relay of
/// an honest node, nor what an honest node may relay, by having it relay lies; and all that comes of one liar, whoever
/// relays it, is three allowances.
#[derive(Debug)]
pub(super) struct Allowances {
    most: f64,
    per: Nanos,
    by_source: BTreeMap<Source, Allowance>,
}

impl Allowances {
    /// Each peer may announce `most` decisions at once, and as many more in each `per`.
    pub(super) const fn new(most: u32, per: Nanos) -> Self {
        Self { most: most as f64, per, by_source: BTreeMap::new() }
    }

    /// Cuts `block`, which the peer `node` says itself, where its allowance ends, and takes from that. Entries with
    /// numbers below `known` cost nothing. Returns whether it was cut: what is cut is not acknowledged, and comes
    /// again.
    pub(super) fn cut(&mut self, node: &Arc<str>, block: &mut Entries, known: u64, now: Nanos) -> bool {
        self.cut_for(&[Source::Node(Arc::clone(node))], block, known, now)
    }

    /// The same for a block that `relayer` relays. All nodes that this node does not know (`is_known`) have one
    /// allowance.
    pub(super) fn cut_relayed(
        &mut self,
        relayer: &Arc<str>,
        is_known: bool,
        block: &mut Entries,
        known: u64,
        now: Nanos,
    ) -> bool {
        let about = is_known.then(|| Arc::clone(&block.run.node));
        let pair = Source::Relayed(Arc::clone(relayer), about.clone());
        self.cut_for(&[pair, Source::Relayer(Arc::clone(relayer)), Source::About(about)], block, known, now)
    }

    fn cut_for(&mut self, sources: &[Source], block: &mut Entries, known: u64, now: Nanos) -> bool {
        let all = block.entries.len();
        let first = known.saturating_sub(block.first).min(all as u64) as usize;
        let left = sources.iter().map(|source| self.fill(source, now)).fold(f64::INFINITY, f64::min);
        let mut taken = 0.0;
        for (place, entry) in block.entries.iter().enumerate().skip(first) {
            if !matches!(entry.item, Item::Keep(_)) {
                continue;
            }
            if left - taken < 1.0 {
                block.entries.truncate(place);
                break;
            }
            taken += 1.0;
        }
        for source in sources {
            if let Some(allowance) = self.by_source.get_mut(source) {
                allowance.decisions -= taken;
            }
        }
        block.entries.len() < all
    }

    /// What is left for `source` at `now`.
    fn fill(&mut self, source: &Source, now: Nanos) -> f64 {
        let share = if matches!(source, Source::Relayed(..)) { PAIR } else { 1.0 };
        let (most, per) = (self.most * share, self.per.as_secs_f64());
        if !self.by_source.contains_key(source) && self.by_source.len() >= MAX_ALLOWANCES {
            let fullest = self.by_source.iter().max_by(|(_, a), (_, b)| a.decisions.total_cmp(&b.decisions));
            if let Some(fullest) = fullest.map(|(source, _)| source.clone()) {
                self.by_source.remove(&fullest);
            }
        }
        let allowance = self.by_source.entry(source.clone()).or_insert(Allowance { decisions: most, at: now });
        if let Some(passed) = now.since(allowance.at) {
            allowance.decisions = (allowance.decisions + most * passed.as_secs_f64() / per).min(most);
            allowance.at = now;
        }
        allowance.decisions
    }

    /// Forgets allowances that are full again.
    pub(super) fn forget(&mut self, now: Nanos) {
        self.by_source.retain(|_, allowance| now.since(allowance.at).is_none_or(|passed| passed < self.per));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::coherence::item::{Decision, Entry, PathPiece, Run, RunId};
    use crate::tracing::{Reason, TraceId};
    use wire::time::UnixNanos;

    fn block(first: u64, count: usize) -> Entries {
        let (tenant, trace) = (Arc::<str>::from(""), TraceId::new([7; 16]).unwrap());
        let reason = Arc::new(Reason::Trigger { text: "".into() });
        let piece = PathPiece { tenant: Arc::clone(&tenant), trace, services: Vec::new(), requested: Vec::new() };
        let decision = Item::Keep(Decision { tenant, trace, reason, began: None });
        let entry = |item| Entry { at: UnixNanos(1), carried_out: false, item };
        let entries = (0..count).flat_map(|_| [entry(decision.clone()), entry(Item::Piece(piece.clone()))]);
        Entries { run: Run { node: "b".into(), id: RunId(NonZeroU64::MIN) }, first, entries: entries.collect() }
    }

    #[test]
    fn a_peer_has_so_many_decisions_at_once_and_again_with_time_and_other_entries_cost_nothing() {
        let mut allowances = Allowances::new(10, Nanos::from_secs(100));
        let (b, c, now) = (Arc::<str>::from("b"), Arc::<str>::from("c"), Nanos::from_secs(5));
        let mut taken = |node: &Arc<str>, count, known, now| {
            let mut block = block(0, count);
            let cut = allowances.cut(node, &mut block, known, now);
            (block.entries.len(), cut)
        };

        assert_eq!(taken(&b, 8, 0, now), (16, false));
        assert_eq!(taken(&b, 8, 0, now), (4, true), "two decisions, and what follows each");
        assert_eq!(taken(&b, 1, 0, now), (0, true));
        assert_eq!(taken(&b, 8, 16, now), (16, false), "all of them are known");
        assert_eq!(taken(&c, 8, 0, now), (16, false), "another peer has its own");
        assert_eq!(taken(&b, 8, 0, Nanos::from_secs(25)), (4, true), "two more in 20 s");
    }

    #[test]
    fn one_relayer_uses_up_neither_what_others_may_relay_of_a_node_nor_what_it_may_relay_of_others() {
        let mut allowances = Allowances::new(40, Nanos::from_secs(100));
        let [evil, c] = ["evil", "c"].map(Arc::<str>::from);
        let mut relayed = |relayer: &Arc<str>, is_known| {
            let mut block = block(0, 100);
            allowances.cut_relayed(relayer, is_known, &mut block, 0, Nanos::from_secs(1));
            block.entries.iter().filter(|entry| matches!(entry.item, Item::Keep(_))).count()
        };

        assert_eq!([relayed(&evil, true), relayed(&evil, true)], [10, 0], "evil about b");
        assert_eq!(relayed(&c, true), 10, "c about b");
        assert_eq!([relayed(&evil, false), relayed(&c, false)], [10, 10], "about nodes that nobody knows");
        assert!(!allowances.cut(&c, &mut block(0, 40), 0, Nanos::from_secs(1)), "c for itself");
    }

    #[test]
    fn allowances_are_bounded_in_number_and_forgotten_when_they_are_full() {
        let mut allowances = Allowances::new(10, Nanos::from_secs(100));
        for number in 0..MAX_ALLOWANCES + 10 {
            let _all = allowances.cut(&format!("{number}").into(), &mut block(0, 1), 0, Nanos::from_secs(1));
        }

        assert_eq!(allowances.by_source.len(), MAX_ALLOWANCES);
        allowances.forget(Nanos::from_secs(101));
        assert_eq!(allowances.by_source.len(), 0);
    }
}
