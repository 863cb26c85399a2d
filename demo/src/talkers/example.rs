//! A few intervals of the visitors' stream, for the tests of the reports.

use wire::proto::operators::{ListReply, LmapInfo, MetricInfo, RowEvent};

use super::{SHARE, Talkers};
use crate::graph::Target;

/// A row of the stream: its titles, unless they are as before, and its values in their order.
pub(crate) fn row(titles: &[&str], values: &[f64]) -> RowEvent {
    let columns = titles.iter().map(|title| (*title).to_owned()).collect();
    RowEvent { columns, values: values.to_vec(), ..RowEvent::default() }
}

/// A list in which the share of `service` is about `about`.
pub(crate) fn list(service: &str, about: &str) -> ListReply {
    let metric = |name: &str, about: &str| MetricInfo {
        name: name.to_owned(),
        about: about.to_owned(),
        ..MetricInfo::default()
    };
    let metrics = vec![metric("network.flows.distinct", "to 127.0.0.1:8080 (9 flows)"), metric(SHARE, about)];
    ListReply { lmaps: vec![LmapInfo { service: service.to_owned(), metrics, ..LmapInfo::default() }] }
}

/// Three intervals: the last one has a client more, and another top talker.
pub(crate) fn talkers() -> Talkers {
    let mut talkers = Talkers::default();
    talkers.add_row(&row(&["network.sources.distinct", "network.flows.distinct", SHARE], &[6.1, 8.0, 0.399]));
    talkers.add_row(&row(&[], &[6.0, 9.0, 0.411]));
    talkers.add_row(&row(&[], &[7.2, 9.9, 0.387]));
    for about in ["127.0.0.11 (39 of 99 bytes)", "127.0.0.11 (41 of 99 bytes)", "127.0.0.12 (38 of 99 bytes)"] {
        talkers.add_subject(&list(Target::VISITORS_SERVICE, about));
    }
    talkers
}
