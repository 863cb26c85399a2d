//! A limit for each group of columns, so that the restless columns of one group do not hide another.
//!
//! γ is set by the most restless columns of all. A service's own gauge that jumps by 16 of its deviations may stay
//! below it. So the deviations of each group, zⱼ, are also compared with what they were in training, and the largest
//! group counts as much as a whole row: with √(Σⱼ zⱼ²) over its columns at its limit, the row's score is γ.
//!
//! A limit is [`Settings::group_margin`](crate::Settings::group_margin) times the percentile of that root which γ is of
//! the score, found as γ is (in sample and crosswise). Tried without success: residuals in their deviations in place of
//! z, since bursts of other groups leave large ones in calm columns; and a limit for every single column, which raised
//! false alarms in many rows (`docs/decisions/D48`). O(m) a row.

use crate::column::Column;

/// Groups that are judged, the first ones among the columns.
pub(crate) const MAX_GROUPS: usize = 16;

/// The groups of a pipeline's columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// The group of each column, as an index; [`MAX_GROUPS`] for one that is not judged.
    of: Vec<u8>,
    /// The limit of each group. Empty: none is judged.
    limits: Vec<f64>,
}

impl Groups {
    /// The groups of `columns`, without limits.
    pub(crate) fn new(columns: &[Column]) -> Self {
        let mut known = Vec::new();
        let index = |column: &Column| {
            if !known.contains(&column.group) && known.len() < MAX_GROUPS {
                known.push(column.group);
            }
            known.iter().position(|group| *group == column.group).unwrap_or(MAX_GROUPS) as u8
        };
        Self { of: columns.iter().map(index).collect(), limits: Vec::new() }
    }

    /// Number of groups that are judged, if they have limits.
    pub(crate) fn len(&self) -> usize {
        self.of.iter().filter(|group| usize::from(**group) < MAX_GROUPS).max().map_or(0, |last| usize::from(*last) + 1)
    }

    /// The group of `column`, as an index; [`MAX_GROUPS`] for one that is not judged.
    pub(crate) fn index(&self, column: usize) -> usize {
        self.of.get(column).map_or(MAX_GROUPS, |group| usize::from(*group))
    }

    /// With a limit for each group. A single group is the whole row, and is not judged.
    pub(crate) fn limited(mut self, limits: Vec<f64>) -> Self {
        debug_assert_eq!(limits.len(), self.len());
        self.limits = if limits.len() > 1 { limits } else { Vec::new() };
        self
    }

    /// The groups of `columns` by the limits of a model, one for each column; 0 is none. A group has the largest limit
    /// of its columns, and one without any is not judged.
    pub(crate) fn restored(columns: &[Column], limits: &[f64]) -> Self {
        let groups = Self::new(columns);
        let mut of_groups = vec![0.0_f64; groups.len()];
        for (group, limit) in groups.of.iter().zip(limits) {
            if let Some(most) = of_groups.get_mut(usize::from(*group)) {
                *most = most.max(*limit);
            }
        }
        if of_groups.iter().all(|limit| *limit == 0.0) {
            return Self { limits: Vec::new(), ..groups };
        }
        of_groups.iter_mut().filter(|limit| **limit == 0.0).for_each(|limit| *limit = f64::MAX);
        groups.limited(of_groups)
    }

    /// The limit of the group of `column`; 0: it is not judged.
    pub(crate) fn limit(&self, column: usize) -> f64 {
        self.limits.get(self.index(column)).copied().filter(|limit| *limit < f64::MAX).unwrap_or(0.0)
    }

    /// Per group, Σⱼ zⱼ² of a row. O(m). Never allocates.
    pub(crate) fn squares(&self, z: &[f64]) -> [f64; MAX_GROUPS] {
        let mut squares = [0.0; MAX_GROUPS + 1];
        // Columns of a group are neighbours, mostly: their sum stays in a register until another group comes.
        let (mut known, mut sum) = (MAX_GROUPS, 0.0);
        for (group, z) in self.of.iter().map(|group| usize::from(*group)).zip(z) {
            if group != known {
                squares[known] = sum;
                (known, sum) = (group, squares[group]);
            }
            sum += z * z;
        }
        squares[known] = sum;
        let mut judged = [0.0; MAX_GROUPS];
        judged.copy_from_slice(&squares[..MAX_GROUPS]);
        judged
    }

    /// The largest square of a group of a row, in units of its limit: 1 is as much as a score of γ. 0 without limits.
    /// O(m). Never allocates.
    pub(crate) fn largest(&self, z: &[f64]) -> f64 {
        if self.limits.is_empty() {
            return 0.0;
        }
        let squares = self.squares(z);
        let each = squares.iter().zip(&self.limits).map(|(square, limit)| square / limit / limit);
        each.fold(0.0, f64::max)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.of.len() + size_of::<f64>() * self.limits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::ColumnKind;
    use crate::random::Random;

    #[test]
    fn squares_are_added_up_by_group_in_the_order_of_columns_whoever_is_between() {
        let mut random = Random::new(3);
        for groups in [1, 3, MAX_GROUPS, MAX_GROUPS + 4] {
            let groups_of: Vec<u16> = (0..90).map(|at| (at / 2 % groups * 5) as u16).collect();
            let column = |group: &u16| Column { group: *group, ..Column::new(ColumnKind::Gauge, 0) };
            let of = Groups::new(&groups_of.iter().map(column).collect::<Vec<_>>());
            let z: Vec<f64> = (0..96).map(|_| random.unit() - 0.5).collect();

            let found = of.squares(&z);

            assert_eq!(of.len(), groups.min(MAX_GROUPS));
            for (group, square) in found.iter().enumerate() {
                let of_group = groups_of.iter().zip(&z).filter(|(of, _)| usize::from(**of) == group * 5);
                let expected: f64 = of_group.fold(0.0, |sum, (_, z)| sum + z * z);
                assert_eq!(square.to_bits(), expected.to_bits(), "group {group} of {groups}");
            }
        }
    }
}
