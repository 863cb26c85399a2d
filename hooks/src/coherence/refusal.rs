//! Words of peers that are not believed: counted by reason, and named to the operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::printable;
use wire::time::Nanos;

/// Peers and reasons that are remembered.
const MAX_PROBLEMS: usize = 32;
/// How long a refusal is reported after the last one of its kind.
const REPORT_FOR: Nanos = Nanos::from_secs(600);
/// Bytes of a peer's name in a report.
const NAME_BYTES: usize = 253;

/// Why words of a peer are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Its connection's identity does not have the role of a peer.
    NoPeer,
    /// Its message is malformed.
    Malformed,
    /// Its connection's identity does not have the name that it speaks in.
    Impostor,
    /// It has this node's own name.
    SameName,
    /// It is one peer more than a cluster may have.
    TooManyPeers,
    /// It relays entries of a run beyond what that run has announced.
    Unannounced,
    /// It relays entries of more runs than a cluster may have.
    TooManyRuns,
    /// It announces more decisions than are taken of one peer.
    TooManyDecisions,
    /// It says that it has entries which this node has not appended.
    Overclaimed,
    /// It says that it has evicted more than it may withhold from its own verdicts.
    Level,
    /// Two of its runs speak by turns.
    Alternating,
}

impl Refusal {
    /// All reasons, in the order of the declaration.
    pub const ALL: [Self; 11] = [
        Self::NoPeer,
        Self::Malformed,
        Self::Impostor,
        Self::SameName,
        Self::TooManyPeers,
        Self::Unannounced,
        Self::TooManyRuns,
        Self::TooManyDecisions,
        Self::Overclaimed,
        Self::Level,
        Self::Alternating,
    ];

    /// Name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPeer => "no_peer",
            Self::Malformed => "malformed",
            Self::Impostor => "impostor",
            Self::SameName => "same_name",
            Self::TooManyPeers => "too_many_peers",
            Self::Unannounced => "unannounced",
            Self::TooManyRuns => "too_many_runs",
            Self::TooManyDecisions => "too_many_decisions",
            Self::Overclaimed => "overclaimed",
            Self::Level => "level",
            Self::Alternating => "alternating",
        }
    }

    /// The rest of a sentence that begins with the peer's name.
    const fn sentence(self) -> &'static str {
        match self {
            Self::NoPeer => {
                "is no peer: its certificate needs the URI uview:peer, or its name in access.peers.certificates"
            }
            Self::Malformed => "sends malformed messages",
            Self::Impostor => "speaks in a name that its certificate does not have",
            Self::SameName => "has the name of this node: set otlp.traces.node to a different one",
            Self::TooManyPeers => "is one node too many: at most 1024 peers are taken",
            Self::Unannounced => "relayed words with numbers that their node has not announced: one of the two lies",
            Self::TooManyRuns => "relayed words of more than 1024 runs of other nodes; the rest is not taken",
            Self::TooManyDecisions => "decides about more traces than are taken of one node; the rest waits",
            Self::Overclaimed => "says that it has decisions that this node has not made; that is not believed",
            Self::Level => {
                "says that it has evicted more than 7/8 of its traces: its verdicts go on choosing among the rest"
            }
            Self::Alternating => "speaks for two runs by turns: another node has its name",
        }
    }
}

#[derive(Debug)]
struct Report {
    count: u64,
    last: Nanos,
}

/// Refused words. Memory: at most 32 reports with a name of at most 253 bytes each.
#[derive(Debug, Default)]
pub struct Refusals {
    counts: [u64; Refusal::ALL.len()],
    reports: BTreeMap<(Arc<str>, Refusal), Report>,
}

impl Refusals {
    /// No word was refused.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; Refusal::ALL.len()], reports: BTreeMap::new() }
    }

    /// Words of the peer `who` are refused at `now`. Of too many peers and reasons, the oldest are forgotten.
    pub fn add(&mut self, who: &str, why: Refusal, now: Nanos) {
        self.counts[why as usize] += 1;
        let key = (Arc::from(&who[..who.floor_char_boundary(NAME_BYTES)]), why);
        if !self.reports.contains_key(&key) && self.reports.len() >= MAX_PROBLEMS {
            let oldest = self.reports.iter().min_by_key(|(_, report)| report.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.reports.remove(&oldest);
            }
        }
        let report = self.reports.entry(key).or_insert(Report { count: 0, last: now });
        (report.count, report.last) = (report.count + 1, now);
    }

    /// How many times words were refused for this reason.
    #[must_use]
    pub const fn count(&self, why: Refusal) -> u64 {
        self.counts[why as usize]
    }

    /// Refusals of the last ten minutes in words, one line for each peer and reason. Names are escaped.
    pub fn lines(&self, now: Nanos) -> impl Iterator<Item = String> {
        let recent = move |report: &Report| now.since(report.last).is_none_or(|age| age < REPORT_FOR);
        self.reports.iter().filter(move |(_, report)| recent(report)).map(|((who, why), report)| {
            format!("gossip: {} {} ({} times)", printable::line(who), why.sentence(), report.count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_named_for_ten_minutes_and_their_number_is_bounded() {
        let mut refusals = Refusals::new();
        refusals.add("b\u{1b}[2J", Refusal::Unannounced, Nanos::from_secs(1));
        refusals.add("b\u{1b}[2J", Refusal::Unannounced, Nanos::from_secs(2));

        let lines: Vec<_> = refusals.lines(Nanos::from_secs(3)).collect();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("gossip: b\\u{1b}[2J relayed") && lines[0].ends_with("(2 times)"), "{lines:?}");
        assert_eq!(refusals.lines(Nanos::from_secs(603)).count(), 0);

        for number in 0..1_000_u64 {
            refusals.add(&format!("{number}{}", "ü".repeat(500)), Refusal::Impostor, Nanos::from_secs(10 + number));
        }
        assert_eq!((refusals.reports.len(), refusals.count(Refusal::Impostor)), (MAX_PROBLEMS, 1_000));
        assert!(refusals.lines(Nanos::from_secs(1_000)).all(|line| line.contains("speaks in a name")));
    }
}
