//! How often whatever samples services is to sample them while something seems wrong with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::name::ServiceName;
use wire::time::Interval;

use super::replica::Replica;

/// Time between two fetches of each service that is fetched faster than its rows are due.
pub type Paces = Arc<BTreeMap<ServiceName, Interval>>;

/// Least time between two fetches of an LMAP of `replicas` for which `asked` is in effect: where no replica writes its
/// values itself, one of its samplers has to be as fast. `None`: nothing would change between rows.
pub fn bounded<'a>(asked: Option<Interval>, replicas: impl Iterator<Item = &'a Replica>) -> Option<Interval> {
    let asked = asked?;
    let mut least: Option<Interval> = None;
    for replica in replicas {
        if replica.writes_itself() {
            return Some(asked);
        }
        least = replica.fastest.into_iter().chain(least).min();
    }
    least.map(|least| asked.max(least))
}
