//! Which share of an operation's requests a service is advised to record.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use crate::answer::Answer;

/// What is advised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceRule {
    /// The share of an operation's requests while nothing is out of the ordinary, 0 to 1. 0.01 by default.
    pub usual: f64,
    /// The share while something is. 1 by default.
    pub raised: f64,
    /// Requests of each operation that are recorded in a second whatever the share. 0.1 by default: rare ones are seen, too.
    pub floor_per_s: f64,
    /// An operation stays raised for so long after its last bad second: SDKs ask once a minute, and have to find it. 120 s by default.
    pub hold: Nanos,
}

impl Default for AdviceRule {
    fn default() -> Self {
        Self { usual: 0.01, raised: 1.0, floor_per_s: 0.1, hold: Nanos::from_secs(120) }
    }
}

/// Advice that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {found}: {wanted}")]
pub struct AdviceError {
    /// Which number.
    pub what: &'static str,
    /// As asked for.
    pub found: f64,
    /// What is needed.
    pub wanted: &'static str,
}

/// Who decides what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The services, by what they are advised.
    #[default]
    Head,
    /// This node, after it has seen the spans: services are to record everything.
    Tail,
}

/// How long advice took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Services that were told of an operation's raised share for the first time since it was raised.
    pub told: u64,
    /// From the verdict to that answer, all of them together.
    pub waited: Nanos,
    /// The longest.
    pub longest: Nanos,
    /// Operations whose share fell again before anybody had asked.
    pub missed: u64,
}

#[derive(Debug)]
struct Raised {
    since: Nanos,
    last: Nanos,
    told: bool,
}

/// What services are advised. Memory: 100 bytes for a raised operation, `most` of them.
#[derive(Debug)]
pub struct Advice {
    rule: AdviceRule,
    mode: Mode,
    most: usize,
    raised: BTreeMap<Box<str>, BTreeMap<Box<str>, Raised>>,
    count: usize,
    refused: u64,
    effect: Effect,
}

impl Advice {
    /// Nothing is raised. No more than `most` operations are at one time.
    ///
    /// # Errors
    ///
    /// [`AdviceError`] unless shares are from 0 to 1, and the floor is finite and not below 0.
    pub fn new(rule: AdviceRule, mode: Mode, most: usize) -> Result<Self, AdviceError> {
        for (what, found) in [("usual share", rule.usual), ("raised share", rule.raised)] {
            if !(0.0..=1.0).contains(&found) {
                return Err(AdviceError { what, found, wanted: "a share from 0 to 1 is needed" });
            }
        }
        if !(rule.floor_per_s >= 0.0 && rule.floor_per_s.is_finite()) {
            let (what, found) = ("floor per second", rule.floor_per_s);
            return Err(AdviceError { what, found, wanted: "0 or more is needed" });
        }
        Ok(Self { rule, mode, most, raised: BTreeMap::new(), count: 0, refused: 0, effect: Effect::default() })
    }

    /// At `now`, `operation` of `service` is out of the ordinary, as a verdict has said at `verdict`.
    pub fn raise(&mut self, service: &str, operation: &str, verdict: Nanos, now: Nanos) {
        if let Some(raised) = self.raised.get_mut(service).and_then(|of| of.get_mut(operation)) {
            raised.last = now;
            return;
        }
        if self.count >= self.most {
            self.refused += 1;
            return;
        }
        let raised = Raised { since: verdict.min(now), last: now, told: false };
        self.raised.entry(service.into()).or_default().insert(operation.into(), raised);
        self.count += 1;
    }

    /// What `service` is to be told at `now`. It is taken to have been told.
    pub fn answer(&mut self, service: &str, now: Nanos) -> Answer {
        self.lower(now);
        if self.mode == Mode::Tail {
            return Answer::all();
        }
        let mut operations = BTreeSet::new();
        for (operation, raised) in self.raised.get_mut(service).into_iter().flatten() {
            if !core::mem::replace(&mut raised.told, true) {
                let waited = now.since(raised.since).unwrap_or_default();
                self.effect.told += 1;
                self.effect.waited = self.effect.waited.plus(waited);
                self.effect.longest = self.effect.longest.max(waited);
            }
            operations.insert(operation.clone());
        }
        // More than usual, whatever the rule says: it is raised.
        let raised = self.rule.raised.max(self.rule.usual);
        Answer::per_operation(self.rule.usual, self.rule.floor_per_s, operations.into_iter().map(|name| (name, raised)))
    }

    /// How long it took until services had asked.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        self.effect
    }

    /// Operations that are raised.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many times an operation was not raised since too many are.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Lets fall what has been in order for long enough.
    pub fn lower(&mut self, now: Nanos) {
        let (hold, effect) = (self.rule.hold, &mut self.effect);
        for of in self.raised.values_mut() {
            of.retain(|_, raised| {
                let stays = now.since(raised.last).is_none_or(|age| age < hold);
                effect.missed += u64::from(!stays && !raised.told);
                stays
            });
        }
        self.raised.retain(|_, of| !of.is_empty());
        self.count = self.raised.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Nanos {
        Nanos::from_secs(second)
    }

    fn shares(answer: &Answer) -> Vec<(&str, f64)> {
        answer.operations().collect()
    }

    #[test]
    fn an_operation_is_raised_while_it_is_bad_and_until_everyone_may_have_asked() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 10).unwrap();
        assert_eq!(shares(&advice.answer("frontend", at(0))), []);

        advice.raise("frontend", "POST /pay", at(8), at(10));
        advice.raise("frontend", "POST /pay", at(19), at(20));

        assert_eq!(shares(&advice.answer("frontend", at(50))), [("POST /pay", 1.0)]);
        assert_eq!(shares(&advice.answer("catalog", at(50))), []);
        assert_eq!(shares(&advice.answer("frontend", at(139))), [("POST /pay", 1.0)]);
        assert_eq!(shares(&advice.answer("frontend", at(140))), []);
        // From the first verdict to the first answer; an operation that nobody asked for is counted.
        assert_eq!(advice.effect(), Effect { told: 1, waited: at(42), longest: at(42), missed: 0 });
        advice.raise("catalog", "GET /list", at(200), at(200));
        advice.lower(at(320));
        assert_eq!(advice.effect().missed, 1);
    }

    #[test]
    fn where_this_node_decides_everything_is_to_be_recorded() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Tail, 10).unwrap();

        assert_eq!(advice.answer("frontend", at(0)), Answer::all());
    }

    #[test]
    fn a_flood_of_names_raises_so_many_and_no_more() {
        let mut advice = Advice::new(AdviceRule::default(), Mode::Head, 3).unwrap();

        (0..10).for_each(|number| advice.raise("frontend", &format!("GET /{number}"), at(0), at(0)));

        assert_eq!((advice.len(), advice.refused()), (3, 7));
        assert_eq!(shares(&advice.answer("frontend", at(1))).len(), 3);
    }

    #[test]
    fn shares_beyond_one_are_refused_by_name() {
        let rule = AdviceRule { usual: 1.5, ..AdviceRule::default() };

        let error = Advice::new(rule, Mode::Head, 1).unwrap_err();

        assert_eq!(error.to_string(), "usual share is 1.5: a share from 0 to 1 is needed");
        for (floor_per_s, is_one) in
            [(f64::NAN, false), (f64::INFINITY, false), (-0.1, false), (0.0, true), (5.0, true)]
        {
            let rule = AdviceRule { floor_per_s, ..AdviceRule::default() };
            assert_eq!(Advice::new(rule, Mode::Head, 1).is_ok(), is_one, "{floor_per_s}");
        }
    }

    #[test]
    fn a_raised_share_is_never_below_the_usual_one_and_nobody_waits_for_a_verdict_to_come() {
        let rule = AdviceRule { usual: 0.5, raised: 0.1, ..AdviceRule::default() };
        let mut advice = Advice::new(rule, Mode::Head, 1).unwrap();

        advice.raise("frontend", "POST /pay", at(12), at(10));

        assert_eq!(shares(&advice.answer("frontend", at(20))), [("POST /pay", 0.5)]);
        assert_eq!(advice.effect().waited, at(10));
    }
}
