//! Explanations of the row that an LMAP's detectors have scored last.

use wire::control::GroupShare;
use wire::metric::Group;

use super::{Detectors, Reason};

impl Detectors {
    /// Fills `reasons` with the `top` columns of the row that was scored last, without columns that the LMAP no longer
    /// has, and `groups` with the shares of metric groups in its score, the largest first. The first of each pair is
    /// scratch. Fills `shares`, if they are asked for, with the share of each column of the LMAP in the squared score
    /// of the row, in no order. Allocates once.
    pub(crate) fn explain(
        &self,
        top: usize,
        (columns, reasons): (&mut Vec<lmap::Reason>, &mut Vec<Reason>),
        (numbers, groups): (&mut Vec<(u16, f64)>, &mut Vec<GroupShare>),
        mut shares: Option<&mut Vec<(usize, f64)>>,
    ) {
        self.current.detector.explain_at_once(top, columns, numbers, shares.as_deref_mut());
        self.place(columns, reasons);
        if let Some(shares) = shares {
            self.place_shares(shares);
        }
        groups.clear();
        numbers.sort_unstable_by(|(_, one), (_, other)| other.total_cmp(one));
        // The group of a column is stored as a number.
        groups.extend(numbers.iter().filter(|(_, share)| *share > 0.0).filter_map(|&(number, share)| {
            let group = Group::ALL.into_iter().find(|group| *group as u16 == number)?;
            Some(GroupShare { group, share })
        }));
    }

    /// Names columns by the LMAP's, without those that it no longer has.
    fn place_shares(&self, shares: &mut Vec<(usize, f64)>) {
        let positions = &self.current.positions;
        shares.retain_mut(|(column, _)| {
            let position = positions.get(*column).copied().flatten();
            *column = position.unwrap_or(*column);
            position.is_some()
        });
    }
}
