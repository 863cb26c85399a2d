//! Who looks at each metric of which LMAPs: they are fetched while anybody does.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use wire::id::LmapId;

/// Who it is that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onlooker {
    /// Viewers of the live page.
    Page,
    /// Incidents that are followed.
    Incidents,
}

/// At what each of them looks.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<[BTreeSet<LmapId>; 2]>);

impl Looks {
    /// `who` looks at `looked` from now on. Returns at what anybody looks.
    pub(super) fn all(&self, who: Onlooker, looked: BTreeSet<LmapId>) -> BTreeSet<LmapId> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [page, incidents] = &mut *looks;
        match who {
            Onlooker::Page => *page = looked,
            Onlooker::Incidents => *incidents = looked,
        }
        page.union(incidents).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_looks_at_no_more_the_other_may_still_look_at() {
        let looks = Looks::default();
        let set = |lmaps: &[u32]| lmaps.iter().copied().map(LmapId).collect::<BTreeSet<_>>();
        assert_eq!(looks.all(Onlooker::Page, set(&[1, 2])), set(&[1, 2]));
        assert_eq!(looks.all(Onlooker::Incidents, set(&[2, 3])), set(&[1, 2, 3]));
        assert_eq!(looks.all(Onlooker::Page, set(&[])), set(&[2, 3]));
    }
}
