//! Explanations of the row that an LMAP's detectors have scored last.

use wire::control::GroupShare;
use wire::metric::Group;

use super::{Detectors, Reason};

impl Detectors {
    /// Fills `reasons` with the `top` columns of the row that was scored last, without columns that the LMAP no longer
    /// has, and `groups` with the shares of metric groups in its score, the largest first. The first of each pair is
    /// scratch. Allocates once.
    pub(crate) fn explain(
        &self,
        top: usize,
        (columns, reasons): (&mut Vec<lmap::Reason>, &mut Vec<Reason>),
        (numbers, groups): (&mut Vec<(u16, f64)>, &mut Vec<GroupShare>),
    ) {
        self.current.detector.explain_with_groups(top, columns, numbers);
        self.place(columns, reasons);
        groups.clear();
        numbers.sort_unstable_by(|(_, one), (_, other)| other.total_cmp(one));
        // The group of a column is stored as a number.
        groups.extend(numbers.iter().filter(|(_, share)| *share > 0.0).filter_map(|&(number, share)| {
            let group = Group::ALL.into_iter().find(|group| *group as u16 == number)?;
            Some(GroupShare { group, share })
        }));
    }
}
