//! The rules of the definitions, each in two languages: CEL, for API servers, and Rust, for files. A test finds a rule
//! that has no twin.

use serde_json::Value;

use crate::duration;

/// Shortest and longest time between two rows or fetches, in microseconds.
const DURATIONS: core::ops::RangeInclusive<u64> = 1_000..=3_600_000_000;

/// A rule about a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// In CEL, about `self`.
    pub(crate) cel: &'static str,
    /// What to do, for those whose value breaks it.
    pub(crate) message: &'static str,
    /// The same in Rust. What is of another type than the schema says counts as absent.
    pub(crate) holds: fn(&Value) -> bool,
}

/// An `Lmap` says in one way what it is about.
pub(crate) const ONE_OF_THREE: Rule = Rule {
    cel: "[has(self.workload), has(self.selector), has(self.together)].filter(is, is).size() == 1",
    message: "set exactly one of workload (one workload), selector (pods by their labels) and together (one LMAP over \
              several workloads)",
    holds: |of| ["workload", "selector", "together"].into_iter().filter(|key| has(of, key)).count() == 1,
};

/// Metrics are those of a workload.
pub(crate) const TOGETHER_METRICS: Rule = Rule {
    cel: "!has(self.together) || !has(self.metrics)",
    message: "with together, name the metrics of each workload beside it: together[].metrics",
    holds: |of| !has(of, "together") || !has(of, "metrics"),
};

/// What is no duration is refused with the same words as one that is out of range.
pub(crate) const INTERVAL: Rule = Rule {
    cel: "!has(self.interval) || (self.interval.matches('^[0-9]{1,7}(us|ms|s|m|h)$') && \
          duration(self.interval) >= duration('1ms') && duration(self.interval) <= duration('1h'))",
    message: "interval must be from 1ms to 1h, such as 200ms",
    holds: |of| text(of, "interval").is_none_or(|text| is_duration(text, DURATIONS)),
};

/// The same of `adaptive`, which can be off.
pub(crate) const ADAPTIVE: Rule = Rule {
    cel: "!has(self.adaptive) || self.adaptive == 'off' || \
          (self.adaptive.matches('^[0-9]{1,7}(us|ms|s|m|h)$') && \
          duration(self.adaptive) >= duration('1ms') && duration(self.adaptive) <= duration('1h'))",
    message: "adaptive must be off, or from 1ms to 1h, such as 50ms",
    holds: |of| text(of, "adaptive").is_none_or(|text| text == "off" || is_duration(text, DURATIONS)),
};

/// Whether there are values depends on the operator.
pub(crate) const VALUES: Rule = Rule {
    cel: "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
    message: "In and NotIn need values, Exists and DoesNotExist have none",
    holds: |of| {
        let takes_values = text(of, "operator").is_some_and(|operator| ["In", "NotIn"].contains(&operator));
        takes_values == of["values"].as_array().is_some_and(|values| !values.is_empty())
    },
};

/// A derived column is computed from columns.
pub(crate) const DERIVED_OR_AGGREGATED: Rule = Rule {
    cel: "!(has(self.aggregation) && has(self.derived))",
    message: "a derived column has no aggregation: leave one of them out",
    holds: |of| !(has(of, "aggregation") && has(of, "derived")),
};

/// Metrics have units of their own.
pub(crate) const UNIT: Rule = Rule {
    cel: "!has(self.unit) || has(self.derived)",
    message: "unit is for derived columns: metrics have the unit that they are registered with",
    holds: |of| !has(of, "unit") || has(of, "derived"),
};

/// A sketch shrinks to its rank, so it needs a row more.
pub(crate) const SKETCH_ROWS: Rule = Rule {
    cel: "!has(self.rank) || !has(self.sketchRows) || self.rank < self.sketchRows",
    message: "sketchRows must be more than rank: the sketch has a row to spare",
    holds: |of| number(of, "rank").zip(number(of, "sketchRows")).is_none_or(|(rank, rows)| rank < rows),
};

/// What is learnt from so few rows is none.
pub(crate) const ROWS_KEPT: Rule = Rule {
    cel: "!has(self.rowsKept) || self.rowsKept == 0 || self.rowsKept >= 120",
    message: "rowsKept must be 0, or 120 to 10000: fewer rows are no fit",
    holds: |of| number(of, "rowsKept").is_none_or(|rows| rows <= 0.0 || rows >= 120.0),
};

/// The schema has no bound that is excluded.
pub(crate) const PERCENTILE: Rule = Rule {
    cel: "!has(self.percentile) || self.percentile > 0.0",
    message: "percentile must be above 0, up to 100",
    holds: |of| number(of, "percentile").is_none_or(|percentile| percentile > 0.0),
};

/// A `SamplingPolicy` says in one way what it is about.
pub(crate) const ONE_OF_TWO: Rule = Rule {
    cel: "[has(self.workload), has(self.selector)].filter(is, is).size() == 1",
    message: "set exactly one of workload (one workload) and selector (pods by their labels)",
    holds: |of| has(of, "workload") != has(of, "selector"),
};

/// Spans do not say which container sends them.
pub(crate) const NO_CONTAINER: Rule = Rule {
    cel: "!has(self.workload) || !has(self.workload.container)",
    message: "spans are of the whole pod, whichever container sends them: leave container out",
    holds: |of| !has(&of["workload"], "container"),
};

/// A policy changes something.
pub(crate) const SHARE_OR_REASONS: Rule = Rule {
    cel: "has(self.share) || has(self.reasons)",
    message: "set share, reasons, or both: without either nothing would change",
    holds: |of| has(of, "share") || has(of, "reasons"),
};

/// The schema has no bound that is excluded.
pub(crate) const SHARE: Rule = Rule {
    cel: "!has(self.share) || self.share > 0.0",
    message: "share must be above 0, up to 1, such as 0.1 for a tenth of the traces",
    holds: |of| number(of, "share").is_none_or(|share| share > 0.0),
};

/// A reason that is named twice is a slip.
pub(crate) const REASONS: Rule = Rule {
    cel: "!has(self.reasons) || self.reasons.all(one, self.reasons.exists_one(other, other == one))",
    message: "name each of the reasons once",
    holds: |of| {
        let reasons = of["reasons"].as_array().map_or(&[][..], Vec::as_slice);
        reasons.iter().all(|one| reasons.iter().filter(|other| *other == one).count() == 1)
    },
};

/// Packets do not say which container sends them.
pub(crate) const NO_CONTAINER_OF_PACKETS: Rule = Rule {
    cel: "!(has(self.workload) && has(self.workload.container))",
    message: "packets are of the whole pod, whichever container sends them: leave container out",
    holds: |of| !has(&of["workload"], "container"),
};

/// What one node can measure alone.
pub(crate) const ONE_END: Rule = Rule {
    cel: "!has(self.oneWay)",
    message: "one-way delay and loss (Rda, Finecomb, Lda) need the same stream at both ends at once, and nodes apply \
              policies each by itself: configure network.streams of both NIC agents",
    holds: |of| !has(of, "oneWay"),
};

/// A policy measures something.
pub(crate) const ANY_SYNOPSIS: Rule = Rule {
    cel: "has(self.delay) || has(self.reordering) || has(self.heavyHitters) || has(self.cardinality)",
    message: "set at least one of delay, reordering, heavyHitters and cardinality, such as cardinality: {}",
    holds: |of| ["delay", "reordering", "heavyHitters", "cardinality"].into_iter().any(|key| has(of, key)),
};

/// Streams have longer intervals than LMAPs can have.
pub(crate) const STREAM_INTERVAL: Rule = Rule {
    cel: "!has(self.interval) || (self.interval.matches('^[0-9]{1,7}(us|ms|s|m|h)$') && \
          duration(self.interval) >= duration('100ms') && duration(self.interval) <= duration('1m'))",
    message: "interval must be from 100ms to 1m, such as 1s",
    holds: |of| text(of, "interval").is_none_or(|text| is_duration(text, 100_000..=60_000_000)),
};

/// The same of the window of distinct items.
pub(crate) const WINDOW: Rule = Rule {
    cel: "!has(self.window) || (self.window.matches('^[0-9]{1,7}(us|ms|s|m|h)$') && \
          duration(self.window) >= duration('100ms') && duration(self.window) <= duration('1h'))",
    message: "window must be from 100ms to 1h, such as 1m",
    holds: |of| text(of, "window").is_none_or(|text| is_duration(text, 100_000..=3_600_000_000)),
};

/// All of them.
const ALL: [Rule; 20] = [
    ONE_OF_THREE,
    TOGETHER_METRICS,
    INTERVAL,
    ADAPTIVE,
    VALUES,
    DERIVED_OR_AGGREGATED,
    UNIT,
    SKETCH_ROWS,
    ROWS_KEPT,
    PERCENTILE,
    ONE_OF_TWO,
    NO_CONTAINER,
    SHARE_OR_REASONS,
    SHARE,
    REASONS,
    NO_CONTAINER_OF_PACKETS,
    ONE_END,
    ANY_SYNOPSIS,
    STREAM_INTERVAL,
    WINDOW,
];

/// The rule that says `cel`.
pub(crate) fn of_cel(cel: &str) -> Option<Rule> {
    ALL.into_iter().find(|rule| rule.cel == cel)
}

/// What CEL's `has` says: an API server drops what is null.
fn has(of: &Value, key: &str) -> bool {
    of.get(key).is_some_and(|value| !value.is_null())
}

fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}

fn number(of: &Value, key: &str) -> Option<f64> {
    of.get(key)?.as_f64()
}

/// Whether `text` is a duration within these microseconds.
fn is_duration(text: &str, within: core::ops::RangeInclusive<u64>) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=7).contains(&digits) && duration::micros(text).is_some_and(|micros| within.contains(&micros))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_in_rust_says_what_it_says_in_cel() {
        for (rule, good, bad) in [
            (ONE_OF_THREE, json!({"workload": {}}), json!({"workload": {}, "together": []})),
            (TOGETHER_METRICS, json!({"together": []}), json!({"together": [], "metrics": []})),
            (INTERVAL, json!({"interval": "60m"}), json!({"interval": "61m"})),
            (INTERVAL, json!({"interval": "1000us"}), json!({"interval": "999us"})),
            (INTERVAL, json!({"interval": "3600000ms"}), json!({"interval": "00000001s"})),
            (ADAPTIVE, json!({"adaptive": "off"}), json!({"adaptive": "on"})),
            (VALUES, json!({"operator": "Exists"}), json!({"operator": "In"})),
            (VALUES, json!({"operator": "In", "values": ["a"]}), json!({"operator": "Exists", "values": ["a"]})),
            (DERIVED_OR_AGGREGATED, json!({"derived": "a"}), json!({"derived": "a", "aggregation": "max"})),
            (UNIT, json!({"unit": "s", "derived": "a"}), json!({"unit": "s"})),
            (SKETCH_ROWS, json!({"rank": 3, "sketchRows": 4}), json!({"rank": 4, "sketchRows": 4})),
            (ROWS_KEPT, json!({"rowsKept": 120}), json!({"rowsKept": 119})),
            (ROWS_KEPT, json!({"rowsKept": 0}), json!({"rowsKept": 1})),
            (PERCENTILE, json!({"percentile": 0.1}), json!({"percentile": 0})),
            (ONE_OF_TWO, json!({"selector": {}}), json!({})),
            (NO_CONTAINER, json!({"workload": {"name": "a"}}), json!({"workload": {"container": "a"}})),
            (SHARE_OR_REASONS, json!({"reasons": []}), json!({"share": null})),
            (SHARE, json!({"share": 1}), json!({"share": 0.0})),
            (REASONS, json!({"reasons": ["error", "lmap"]}), json!({"reasons": ["error", "error"]})),
            (NO_CONTAINER_OF_PACKETS, json!({"workload": {"name": "a"}}), json!({"workload": {"container": "a"}})),
            (ONE_END, json!({"delay": "Dns"}), json!({"oneWay": "Rda"})),
            (ANY_SYNOPSIS, json!({"cardinality": {}}), json!({"port": 80})),
            (STREAM_INTERVAL, json!({"interval": "100ms"}), json!({"interval": "99ms"})),
            (STREAM_INTERVAL, json!({"interval": "1m"}), json!({"interval": "61s"})),
            (WINDOW, json!({"window": "1h"}), json!({"window": "2h"})),
        ] {
            assert!((rule.holds)(&good), "{} {good}", rule.cel);
            assert!(!(rule.holds)(&bad), "{} {bad}", rule.cel);
        }
    }
}
