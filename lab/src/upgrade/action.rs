//! What is done to a node of two releases, one step after the other.

/// One of the two releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    Old,
    New,
}

impl Release {
    /// As the table has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Old => "OLD",
            Self::New => "NEW",
        }
    }
}

/// The worker that is there from the beginning to the end.
pub const FIRST: u32 = 0;
/// The one that comes and goes.
pub const SECOND: u32 = 1;

/// A step of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is done: what this machine does to rows by itself.
    Wait,
    /// The host agent ends in good order, and one of this release starts.
    HostAgent(Release),
    /// The first NIC agent ends in good order, alone, and one of this release starts.
    NicAgent(Release),
    /// The second NIC agent joins.
    Join(Release),
    /// All LMAPs move from this worker to the other one.
    Drain(u32),
    /// The worker takes its share again.
    Undrain(u32),
    /// The second NIC agent ends in good order, while it runs LMAPs.
    Leave,
}

/// Each agent is upgraded first once, and goes back first and last once: every pair of releases is reached from each of
/// its neighbours. While they differ, LMAPs move between NIC agents of both releases.
pub const PLAN: [Action; 14] = [
    Action::Wait,
    Action::HostAgent(Release::New),
    Action::Join(Release::New),
    Action::Drain(FIRST),
    Action::Drain(SECOND),
    Action::Undrain(SECOND),
    Action::Leave,
    Action::NicAgent(Release::New),
    Action::NicAgent(Release::Old),
    Action::HostAgent(Release::Old),
    Action::NicAgent(Release::New),
    Action::HostAgent(Release::New),
    Action::HostAgent(Release::Old),
    Action::NicAgent(Release::Old),
];

impl Action {
    /// In words, for the table.
    pub fn title(self) -> String {
        match self {
            Self::Wait => "nothing".to_owned(),
            Self::HostAgent(release) => format!("host agent: {}", release.name()),
            Self::NicAgent(release) => format!("NIC agent: {}", release.name()),
            Self::Join(release) => format!("a NIC agent joins: {}", release.name()),
            Self::Drain(worker) => format!("worker {worker} is drained"),
            Self::Undrain(worker) => format!("worker {worker} takes LMAPs again"),
            Self::Leave => format!("worker {SECOND} leaves"),
        }
    }

    /// Whether an agent is restarted, so that nobody reads or nobody listens meanwhile.
    pub const fn is_restart(self) -> bool {
        matches!(self, Self::HostAgent(_) | Self::NicAgent(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_pair_of_releases_is_reached_from_each_neighbour_and_the_plan_ends_where_it_began() {
        let (mut pair, mut seen) = ((Release::Old, Release::Old), BTreeSet::new());
        for action in PLAN {
            let before = pair;
            match action {
                Action::HostAgent(release) => pair.0 = release,
                Action::NicAgent(release) => pair.1 = release,
                _ => continue,
            }
            assert!(pair != before && seen.insert((before, pair)), "{action:?} changes something, for the first time");
        }

        assert_eq!((seen.len(), pair), (8, (Release::Old, Release::Old)));
    }
}
