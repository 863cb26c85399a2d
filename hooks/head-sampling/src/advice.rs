//! Decides the sampling probability of each operation.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use crate::strategy::StrategyResponse;

/// Probabilities to advise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceRule {
    /// Sampling probability of an operation while it is normal, 0 to 1. 0.01 by default.
    pub default_probability: f64,
    /// Sampling probability while it is anomalous, 0 to 1. 1 by default.
    pub raised_probability: f64,
    /// Requests recorded per second and operation whatever the probability, so that rare operations are seen. 0.1 by
    /// default.
    pub lower_bound_traces_per_s: f64,
    /// How long an operation stays raised after its last anomalous second: SDKs poll once a minute, and have to see it.
    /// 120 s by default.
    pub hold: Nanos,
}

impl Default for AdviceRule {
    fn default() -> Self {
        Self {
            default_probability: 0.01,
            raised_probability: 1.0,
            lower_bound_traces_per_s: 0.1,
            hold: Nanos::from_secs(120),
        }
    }
}

/// A value of the rule is out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {found}: {wanted}")]
pub struct AdviceError {
    /// Name of the value.
    pub what: &'static str,
    /// Value as configured.
    pub found: f64,
    /// Range that it must be in.
    pub wanted: &'static str,
}

/// Where traces are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the services, with the advised probabilities.
    #[default]
    Head,
    /// On this node, after it has seen the spans: services are to record everything.
    Tail,
}

/// Delay from verdicts until services got the raised probability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceLatency {
    /// Raised operations whose service got the raised probability, each counted once.
    pub delivered: u64,
    /// Sum of the delays from the verdict to that response.
    pub total: Nanos,
    /// The longest of these delays.
    pub max: Nanos,
    /// Operations that were lowered before their service had polled.
    pub missed: u64,
}

/// Where the verdict that raises an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictSource {
    /// A detector of this node.
    Own,
    /// Other nodes say so, by numbers of the caller's, a bit for each: believed for half of the raised operations at
    /// most, of which each of them has a fair share.
    Peers(u64),
}

/// How many operations each peer raises, by number; at last, those of nobody in particular.
#[derive(Debug)]
struct Places([usize; u64::BITS as usize + 1]);

impl Places {
    const NONE: Self = Self([0; u64::BITS as usize + 1]);

    fn of(peers: u64) -> impl Iterator<Item = usize> {
        let nobody = (peers == 0).then_some(u64::BITS as usize);
        (0..u64::BITS as usize).filter(move |number| peers >> number & 1 == 1).chain(nobody)
    }

    fn add(&mut self, peers: u64) {
        Self::of(peers).for_each(|place| self.0[place] += 1);
    }

    fn remove(&mut self, peers: u64) {
        Self::of(peers).for_each(|place| self.0[place] -= 1);
    }

    /// Operations of the one of `peers` that raises fewest.
    fn fewest(&self, peers: u64) -> usize {
        Self::of(peers).map(|place| self.0[place]).min().unwrap_or(0)
    }

    fn most(&self) -> usize {
        self.0.into_iter().max().unwrap_or(0)
    }
}

#[derive(Debug)]
struct RaisedOperation {
    since: Nanos,
    last: Nanos,
    delivered: bool,
    source: VerdictSource,
}

/// Sampling advice. Memory: 100 bytes per raised operation, at most `max_raised` of them, of which other nodes raise at
/// most half. Where that is full, a peer that raises fewer than another takes a place of that one's.
#[derive(Debug)]
pub struct Advice {
    rule: AdviceRule,
    mode: Mode,
    max_raised: usize,
    raised: BTreeMap<Box<str>, BTreeMap<Box<str>, RaisedOperation>>,
    count: usize,
    /// Those of the raised operations that only other nodes' verdicts raise.
    by_peers: usize,
    places: Places,
    refused: u64,
    latency: AdviceLatency,
}

impl Advice {
    /// Makes advice with no raised operation, and at most `max_raised` at a time.
    ///
    /// # Errors
    ///
    /// [`AdviceError`] unless probabilities are from 0 to 1, and the lower bound is finite and at least 0.
    pub fn new(rule: AdviceRule, mode: Mode, max_raised: usize) -> Result<Self, AdviceError> {
        for (what, found) in
            [("default_probability", rule.default_probability), ("raised_probability", rule.raised_probability)]
        {
            if !(0.0..=1.0).contains(&found) {
                return Err(AdviceError { what, found, wanted: "must be from 0 to 1" });
            }
        }
        if !(rule.lower_bound_traces_per_s >= 0.0 && rule.lower_bound_traces_per_s.is_finite()) {
            let (what, found) = ("lower_bound_traces_per_s", rule.lower_bound_traces_per_s);
            return Err(AdviceError { what, found, wanted: "must be finite and at least 0" });
        }
        Ok(Self {
            rule,
            mode,
            max_raised,
            raised: BTreeMap::new(),
            count: 0,
            by_peers: 0,
            places: Places::NONE,
            refused: 0,
            latency: AdviceLatency::default(),
        })
    }

    /// Raises `operation` of `service` at `now`, because of a verdict of `source` at `verdict`.
    pub fn raise(&mut self, service: &str, operation: &str, source: VerdictSource, verdict: Nanos, now: Nanos) {
        if let Some(raised) = self.raised.get_mut(service).and_then(|of| of.get_mut(operation)) {
            raised.last = now;
            if let VerdictSource::Peers(before) = raised.source {
                // A peer that does not say it any more has its place again.
                raised.source = source;
                self.places.remove(before);
                match raised.source {
                    VerdictSource::Own => self.by_peers -= 1,
                    VerdictSource::Peers(all) => self.places.add(all),
                }
            }
            return;
        }
        // Peers never take the places of this node's own verdicts.
        let has_place = match source {
            VerdictSource::Own => self.count < self.max_raised,
            VerdictSource::Peers(peers) => {
                let is_free = self.count < self.max_raised && 2 * self.by_peers < self.max_raised;
                is_free || self.take_place(peers)
            }
        };
        if !has_place {
            self.refused += 1;
            return;
        }
        let raised = RaisedOperation { since: verdict.min(now), last: now, delivered: false, source };
        self.raised.entry(service.into()).or_default().insert(operation.into(), raised);
        self.count += 1;
        if let VerdictSource::Peers(peers) = source {
            self.by_peers += 1;
            self.places.add(peers);
        }
    }

    /// Lowers an operation of the peer that raises most, if that is two more than one of `peers` does. O(1) unless it
    /// is; then O(operations).
    fn take_place(&mut self, peers: u64) -> bool {
        let least = self.places.fewest(peers) + 1;
        if self.places.most() <= least {
            return false;
        }
        let Self { raised, places, .. } = self;
        let all = raised.iter().flat_map(|(service, of)| of.iter().map(move |(name, raised)| (service, name, raised)));
        let by_peers = all.filter_map(|(service, name, raised)| match raised.source {
            VerdictSource::Own => None,
            VerdictSource::Peers(by) => Some((places.fewest(by), service, name, by)),
        });
        let most = by_peers.max_by_key(|(operations, ..)| *operations).filter(|(operations, ..)| *operations > least);
        let Some((_, service, name, by)) = most else { return false };
        let (service, name) = (service.clone(), name.clone());
        let of = raised.get_mut(&service).and_then(|of| of.remove(&name));
        self.latency.missed += u64::from(of.is_some_and(|lowered| !lowered.delivered));
        self.places.remove(by);
        self.count -= 1;
        self.by_peers -= 1;
        true
    }

    /// The response for `service` at `now`. It counts as delivered.
    pub fn respond(&mut self, service: &str, now: Nanos) -> StrategyResponse {
        self.lower(now);
        if self.mode == Mode::Tail {
            return StrategyResponse::all();
        }
        let mut operations = BTreeSet::new();
        for (operation, raised) in self.raised.get_mut(service).into_iter().flatten() {
            if !core::mem::replace(&mut raised.delivered, true) {
                let waited = now.since(raised.since).unwrap_or_default();
                self.latency.delivered += 1;
                self.latency.total = self.latency.total.plus(waited);
                self.latency.max = self.latency.max.max(waited);
            }
            operations.insert(operation.clone());
        }
        // Never below the default probability, whatever the rule says.
        let raised = self.rule.raised_probability.max(self.rule.default_probability);
        StrategyResponse::per_operation(
            self.rule.default_probability,
            self.rule.lower_bound_traces_per_s,
            operations.into_iter().map(|name| (name, raised)),
        )
    }

    /// Delay until services polled.
    #[must_use]
    pub const fn latency(&self) -> AdviceLatency {
        self.latency
    }

    /// Number of raised operations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no operation is raised.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Times that an operation was not raised because of the limit.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Lowers operations that have been normal for long enough.
    pub fn lower(&mut self, now: Nanos) {
        let (hold, latency) = (self.rule.hold, &mut self.latency);
        for of in self.raised.values_mut() {
            of.retain(|_, raised| {
                let stays = now.since(raised.last).is_none_or(|age| age < hold);
                latency.missed += u64::from(!stays && !raised.delivered);
                stays
            });
        }
        self.raised.retain(|_, of| !of.is_empty());
        self.count = self.raised.values().map(BTreeMap::len).sum();
        (self.by_peers, self.places) = (0, Places::NONE);
        for raised in self.raised.values().flat_map(BTreeMap::values) {
            if let VerdictSource::Peers(by) = raised.source {
                self.by_peers += 1;
                self.places.add(by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Nanos {
        Nanos::from_secs(second)
    }

    fn probabilities(answer: &StrategyResponse) -> Vec<(&str, f64)> {
        answer.operations().collect()
    }

    #[test]
    fn an_operation_is_raised_while_it_is_bad_and_until_everyone_may_have_asked() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 10).unwrap();
        assert_eq!(probabilities(&advice.respond("frontend", at(0))), []);

        advice.raise("frontend", "POST /pay", VerdictSource::Own, at(8), at(10));
        advice.raise("frontend", "POST /pay", VerdictSource::Own, at(19), at(20));

        assert_eq!(probabilities(&advice.respond("frontend", at(50))), [("POST /pay", 1.0)]);
        assert_eq!(probabilities(&advice.respond("catalog", at(50))), []);
        assert_eq!(probabilities(&advice.respond("frontend", at(139))), [("POST /pay", 1.0)]);
        assert_eq!(probabilities(&advice.respond("frontend", at(140))), []);
        // From the first verdict to the first response; an operation that was never polled is counted.
        assert_eq!(advice.latency(), AdviceLatency { delivered: 1, total: at(42), max: at(42), missed: 0 });
        advice.raise("catalog", "GET /list", VerdictSource::Own, at(200), at(200));
        advice.lower(at(320));
        assert_eq!(advice.latency().missed, 1);
    }

    #[test]
    fn where_this_node_decides_everything_is_to_be_recorded() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Tail, 10).unwrap();

        assert_eq!(advice.respond("frontend", at(0)), StrategyResponse::all());
    }

    #[test]
    fn a_flood_of_names_raises_so_many_and_no_more() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 3).unwrap();

        (0..10)
            .for_each(|number| advice.raise("frontend", &format!("GET /{number}"), VerdictSource::Own, at(0), at(0)));

        assert_eq!((advice.len(), advice.refused()), (3, 7));
        assert_eq!(probabilities(&advice.respond("frontend", at(1))).len(), 3);
    }

    #[test]
    fn peers_raise_at_most_half_and_what_this_node_finds_itself_is_its_own() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 4).unwrap();

        (0..10).for_each(|n| advice.raise("frontend", &format!("GET /{n}"), VerdictSource::Peers(1), at(0), at(0)));
        assert_eq!((advice.len(), advice.refused()), (2, 8));
        // Found here, too: a place is free for what others say.
        advice.raise("frontend", "GET /0", VerdictSource::Own, at(1), at(1));
        advice.raise("frontend", "GET /5", VerdictSource::Peers(1), at(1), at(1));
        assert_eq!((advice.len(), advice.refused()), (3, 8));
        advice.raise("frontend", "POST /pay", VerdictSource::Own, at(1), at(1));
        assert_eq!((advice.len(), advice.refused()), (4, 8));

        advice.lower(at(500));
        advice.raise("frontend", "GET /7", VerdictSource::Peers(1), at(500), at(500));
        assert_eq!(advice.len(), 1, "places are free again");
    }

    #[test]
    fn a_peer_that_raises_everything_leaves_others_their_places() {
        const LOUD: VerdictSource = VerdictSource::Peers(1);
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 8).unwrap();
        (0..10).for_each(|n| advice.raise("frontend", &format!("GET /{n}"), LOUD, at(0), at(0)));
        assert_eq!((advice.len(), advice.refused()), (4, 6));

        // Two of four for either, and no more.
        for name in ["POST /pay", "POST /cart", "GET /cart"] {
            advice.raise("shop", name, VerdictSource::Peers(2), at(1), at(1));
        }
        assert_eq!((advice.len(), advice.refused()), (4, 7));
        assert_eq!(advice.respond("shop", at(2)).operations().count(), 2);
        // What several say is of the one that says least: here, of a third.
        advice.raise("shop", "GET /list", VerdictSource::Peers(0b101), at(2), at(2));
        assert_eq!((advice.len(), advice.refused()), (4, 7));
        (0..10).for_each(|n| advice.raise("frontend", &format!("PUT /{n}"), LOUD, at(3), at(3)));
        assert_eq!((advice.len(), advice.refused()), (4, 17), "it gets none of them back");
        // What this node finds itself is nobody's place.
        advice.raise("shop", "POST /pay", VerdictSource::Own, at(4), at(4));
        advice.raise("shop", "GET /cart", VerdictSource::Peers(2), at(4), at(4));
        assert_eq!(advice.len(), 5);
    }

    #[test]
    fn a_peer_has_its_places_again_when_it_names_an_operation_no_more() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 8).unwrap();
        let (loud, quiet, both) = (VerdictSource::Peers(1), VerdictSource::Peers(2), VerdictSource::Peers(3));
        let mut raise = |names: &[&str], source, second| {
            for name in names {
                advice.raise("shop", name, source, at(second), at(second));
            }
        };
        raise(&["GET /a", "GET /b"], quiet, 0);
        raise(&["GET /c", "GET /d"], loud, 0);
        raise(&["GET /a", "GET /b"], both, 1);

        // The loud one repeats all that the quiet one said, which finds others now.
        raise(&["GET /a", "GET /b"], loud, 2);
        raise(&["GET /e", "GET /f", "GET /g"], quiet, 2);

        let raised = advice.respond("shop", at(3));
        let raised: Vec<_> = probabilities(&raised).into_iter().map(|(name, _)| name.to_owned()).collect();
        assert!(["GET /e", "GET /f"].iter().all(|name| raised.contains(&(*name).to_owned())), "{raised:?}");
        assert_eq!((raised.len(), advice.refused()), (4, 1), "half of what peers have, and no more");
    }

    #[test]
    fn probabilities_beyond_one_are_refused_by_name() {
        let rule = AdviceRule { default_probability: 1.5, ..AdviceRule::default() };

        let error = Advice::new(rule, Mode::Head, 1).unwrap_err();

        assert_eq!(error.to_string(), "default_probability is 1.5: must be from 0 to 1");
        for (lower_bound_traces_per_s, is_valid) in
            [(f64::NAN, false), (f64::INFINITY, false), (-0.1, false), (0.0, true), (5.0, true)]
        {
            let rule = AdviceRule { lower_bound_traces_per_s, ..AdviceRule::default() };
            assert_eq!(Advice::new(rule, Mode::Head, 1).is_ok(), is_valid, "{lower_bound_traces_per_s}");
        }
    }

    #[test]
    fn a_raised_probability_is_never_below_the_default_and_a_later_verdict_gives_no_negative_delay() {
        let rule = AdviceRule { default_probability: 0.5, raised_probability: 0.1, ..AdviceRule::default() };
        let mut advice = Advice::new(rule, Mode::Head, 1).unwrap();

        advice.raise("frontend", "POST /pay", VerdictSource::Own, at(12), at(10));

        assert_eq!(probabilities(&advice.respond("frontend", at(20))), [("POST /pay", 0.5)]);
        assert_eq!(advice.latency().total, at(10));
    }
}
