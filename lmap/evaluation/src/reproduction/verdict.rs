//! The verdicts of all pages of reproductions but those of the synopses, whose example has its own.

use core::fmt;

/// The verdict on a claim. It is of the published workload and caption; other readings are rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The published result came out, within the tolerance.
    Holds,
    /// The same on data or a system that stands for the publication's, which cannot be had.
    HoldsOnStandIn,
    /// Our own bar is met, but the publication states no figure, or another method or definition is judged.
    HoldsByOwnBar,
    /// Outside of the tolerance.
    Fails,
    /// What is printed is wrong: a second calculation of another kind agrees with ours and not with it.
    Refuted,
    /// Cannot be measured here; the row says what is missing.
    NotComputable,
}

impl Verdict {
    /// All verdicts, in the order of summaries.
    pub const ALL: [Self; 6] =
        [Self::Holds, Self::HoldsOnStandIn, Self::HoldsByOwnBar, Self::Fails, Self::Refuted, Self::NotComputable];

    /// What the verdicts mean, for the head of each page.
    pub const MEANING: &str = "*Holds*: the published result came out as published. *Holds on the stand-in*: it came \
        out on data or on a system that stands for the publication's, which cannot be had. *Holds by our own bar*: the \
        publication states no figure, or the row is of a method or a definition that is not the publication's; the bar \
        is ours. *Fails*: the bar was missed. *Refuted*: what is printed is wrong, as a second calculation of another \
        kind shows. *Not computable*: the row says what is missing.";

    /// Of a published result.
    #[must_use]
    pub const fn judged(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }

    /// Of a published result, on what stands for the publication's data or system.
    #[must_use]
    pub const fn on_stand_in(holds: bool) -> Self {
        if holds { Self::HoldsOnStandIn } else { Self::Fails }
    }

    /// Of a bar that is not the publication's.
    #[must_use]
    pub const fn by_own_bar(holds: bool) -> Self {
        if holds { Self::HoldsByOwnBar } else { Self::Fails }
    }

    /// Whether the bar is met.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Holds | Self::HoldsOnStandIn | Self::HoldsByOwnBar)
    }

    /// The verdict in a table: in bold type unless it holds.
    #[must_use]
    pub fn cell(self) -> String {
        if self.holds() { self.to_string() } else { format!("**{self}**") }
    }

    /// How many of `verdicts` there are of each kind, in words.
    pub fn summary(verdicts: impl IntoIterator<Item = Self>) -> String {
        let verdicts: Vec<Self> = verdicts.into_iter().collect();
        let count = |kind: Self| verdicts.iter().filter(|verdict| **verdict == kind).count();
        let counts = Self::ALL.into_iter().map(|kind| (count(kind), kind));
        let counts = counts.filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} × {kind}"));
        counts.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::HoldsOnStandIn => "holds on the stand-in",
            Self::HoldsByOwnBar => "holds by our own bar",
            Self::Fails => "fails",
            Self::Refuted => "refuted",
            Self::NotComputable => "not computable",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_bar_fails_whoever_has_set_it() {
        for judge in [Verdict::judged, Verdict::on_stand_in, Verdict::by_own_bar] {
            assert!(judge(true).holds());
            assert_eq!(judge(false), Verdict::Fails);
        }
    }

    #[test]
    fn a_summary_counts_every_kind_that_there_is() {
        let verdicts = [Verdict::Fails, Verdict::HoldsByOwnBar, Verdict::Fails, Verdict::NotComputable];

        assert_eq!(Verdict::summary(verdicts), "1 × holds by our own bar, 2 × fails, 1 × not computable");
        assert_eq!([Verdict::Fails.cell().as_str(), Verdict::Holds.cell().as_str()], ["**fails**", "holds"]);
    }
}
