//! When a report without its node is deleted: once it has been without for long. A node that is new reports before the
//! watch of nodes tells of it. Pure: the time comes as an argument.

use core::time::Duration;
use std::collections::BTreeMap;

/// Reports without a node, since when: by the node's name and the report's uid.
#[derive(Debug, Default)]
pub(crate) struct GoneReports {
    since: BTreeMap<(String, String), Duration>,
}

impl GoneReports {
    /// Those of `orphans` (uids by node) that have been orphans for `grace`. Each is due again after as long, if it is
    /// still there.
    pub(crate) fn overdue(
        &mut self,
        orphans: BTreeMap<String, String>,
        grace: Duration,
        now: Duration,
    ) -> Vec<(String, String)> {
        self.since.retain(|(node, uid), _| orphans.get(node) == Some(uid));
        let mut overdue = Vec::new();
        for report in orphans {
            let since = self.since.entry(report.clone()).or_insert(now);
            if now.saturating_sub(*since) >= grace {
                *since = now;
                overdue.push(report);
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_overdue_after_the_grace_and_anew_when_its_node_was_there_or_it_is_another_one() {
        let (mut gone, grace) = (GoneReports::default(), Duration::from_mins(5));
        let mut at = |seconds, uid: Option<&str>| {
            let orphans = uid.map(|uid| ("node-1".to_owned(), uid.to_owned())).into_iter().collect();
            gone.overdue(orphans, grace, Duration::from_secs(seconds)).len()
        };

        assert_eq!([at(0, Some("a")), at(299, Some("a")), at(300, Some("a")), at(301, Some("a"))], [0, 0, 1, 0]);
        assert_eq!([at(599, Some("a")), at(600, Some("a"))], [0, 1], "the deletion has failed");
        assert_eq!([at(700, None), at(701, Some("a")), at(1000, Some("a"))], [0, 0, 0], "its node was there");
        assert_eq!([at(1001, Some("b")), at(1300, Some("b")), at(1301, Some("b"))], [0, 0, 1], "another report");
    }
}
