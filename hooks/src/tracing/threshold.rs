//! Consistent probability sampling (OpenTelemetry, "TraceState: probability sampling"): every node decides alike from
//! the trace id, without a message.

use core::fmt;

use crate::tracing::span::TraceId;

const BITS: u32 = 56;
const DIGITS: usize = 14;
const END: u64 = 1 << BITS;

/// A trace's random number, below 2^56; uniform where ids are drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Randomness(u64);

impl Randomness {
    /// The randomness of a trace without `rv`: the lower 56 bits of its id.
    #[must_use]
    pub const fn of(trace: TraceId) -> Self {
        Self(trace.halves().1 & (END - 1))
    }

    /// The upper 56 of these `bits`.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits >> (u64::BITS - BITS))
    }

    /// Parses `rv`: 14 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == DIGITS).then(|| hexadecimal(text)).flatten().map(Self)
    }
}

/// Keeps the traces whose [`Randomness`] is at least this, of 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Threshold(u64);

/// A probability that cannot be sampled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a sampling probability of {0} is not between 2^-56 and 1")]
pub struct ProbabilityError(pub f64);

impl Threshold {
    /// Keeps all traces.
    pub const ALL: Self = Self(0);

    /// Keeps the share `probability` of traces.
    ///
    /// # Errors
    ///
    /// [`ProbabilityError`] unless 2^-56 ≤ `probability` ≤ 1.
    pub fn keeping(probability: f64) -> Result<Self, ProbabilityError> {
        let least = 1.0 / END as f64;
        if !(least <= probability && probability <= 1.0) {
            return Err(ProbabilityError(probability));
        }
        // The share kept is what is rounded, not the share refused: one in a million stays exact to 36 bits.
        Ok(Self(END - ((probability * END as f64).round() as u64).clamp(1, END)))
    }

    /// Parses `th`: 1 to 14 hexadecimal digits, trailing zeros left out.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if !(1..=DIGITS).contains(&text.len()) {
            return None;
        }
        hexadecimal(text).map(|value| Self(value << (4 * (DIGITS - text.len()))))
    }

    /// The share of traces that it keeps.
    #[must_use]
    pub fn probability(self) -> f64 {
        (END - self.0) as f64 / END as f64
    }

    /// Whether it keeps a trace with this `randomness`.
    #[must_use]
    pub const fn keeps(self, randomness: Randomness) -> bool {
        randomness.0 >= self.0
    }

    /// The threshold of a trace that passed both: the stricter one.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        earlier.map_or(self, |earlier| self.max(earlier))
    }
}

impl fmt::Display for Threshold {
    /// As the value of `ot=th`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:014x}", self.0);
        let short = digits.trim_end_matches('0');
        f.write_str(if short.is_empty() { "0" } else { short })
    }
}

/// `th` and `rv` of the member `ot` of a tracestate. Invalid values count as absent.
#[must_use]
pub fn sampling_of(tracestate: &str) -> (Option<Threshold>, Option<Randomness>) {
    let member = tracestate.split(',').find_map(|member| member.trim().strip_prefix("ot="));
    let field = |key: &str| {
        let pairs = member.into_iter().flat_map(|member| member.split(';'));
        pairs.filter_map(|pair| pair.split_once(':')).find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    (field("th").and_then(Threshold::parse), field("rv").and_then(Randomness::parse))
}

/// `tracestate` with `th` in its member `ot` replaced, or removed. `th` comes first, everything else stays.
#[must_use]
pub fn with_threshold(tracestate: &str, threshold: Option<Threshold>) -> String {
    let (mut fields, mut others) = (Vec::new(), Vec::new());
    fields.extend(threshold.map(|threshold| format!("th:{threshold}")));
    for member in tracestate.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        match member.strip_prefix("ot=") {
            None => others.push(member.to_owned()),
            Some(ot) => fields.extend(ot.split(';').filter(|field| !field.starts_with("th:")).map(str::to_owned)),
        }
    }
    let ot = if fields.is_empty() { None } else { Some(format!("ot={}", fields.join(";"))) };
    ot.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if digits { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thresholds_are_written_as_the_specification_says() {
        let shown = [1.0, 0.5, 0.25, 0.125, 1.0 / 16.0].map(|p| Threshold::keeping(p).unwrap().to_string());

        assert_eq!(shown, ["0", "8", "c", "e", "f"]);
        assert_eq!(Threshold::parse("c").unwrap().probability(), 0.25);
        assert!(Threshold::keeping(0.0).is_err());
        assert!(Threshold::keeping(f64::NAN).is_err());
        assert!(["", "C", "+1", "123456789abcdef", "g"].iter().all(|text| Threshold::parse(text).is_none()));
    }

    #[test]
    fn a_tracestate_is_read_among_other_vendors_and_other_fields() {
        let (threshold, randomness) = sampling_of("vendor=a:b, ot=p:8;th:8;rv:80000000000001;x:1,other=1");

        assert_eq!(threshold, Some(Threshold::keeping(0.5).unwrap()));
        assert!(threshold.unwrap().keeps(randomness.unwrap()));
        assert_eq!(sampling_of("not=th:8"), (None, None));
        assert_eq!(sampling_of("ot=th:zz;rv:1"), (None, None));
    }

    #[test]
    fn a_threshold_is_put_into_a_tracestate_or_taken_out_and_nothing_else_is_touched() {
        let half = Threshold::keeping(0.5).ok();

        assert_eq!(with_threshold("a=1,ot=th:c;rv:80000000000001,b=2", half), "ot=th:8;rv:80000000000001,a=1,b=2");
        assert_eq!(with_threshold("a=1,ot=th:c;rv:80000000000001", None), "ot=rv:80000000000001,a=1");
        assert_eq!(with_threshold("ot=th:c", None), "");
        assert_eq!(with_threshold("", half), "ot=th:8");
    }

    #[test]
    fn without_rv_the_ids_lower_56_bits_decide() {
        let id = |last: u8| TraceId::new([0xff, 0, 0, 0, 0, 0, 0, 1, 0xff, last, 0, 0, 0, 0, 0, 0]).unwrap();
        let half = Threshold::keeping(0.5).unwrap();

        assert!(half.keeps(Randomness::of(id(0x80))));
        assert!(!half.keeps(Randomness::of(id(0x7f))));
    }

    proptest! {
        #[test]
        fn what_a_lower_probability_keeps_a_higher_one_keeps_too(bytes: [u8; 16], a in 1e-9..1.0_f64, b in 1e-9..1.0_f64) {
            prop_assume!(bytes != [0; 16]);
            let randomness = Randomness::of(TraceId::new(bytes).unwrap());
            let (low, high) = (Threshold::keeping(a.min(b)).unwrap(), Threshold::keeping(a.max(b)).unwrap());

            prop_assert!(!low.keeps(randomness) || high.keeps(randomness));
            prop_assert_eq!(Threshold::parse(&low.to_string()), Some(low));
            prop_assert_eq!(low.after(Some(high)), low);
        }
    }
}
