//! Problems of the edges that last: shown in the status as long as they do. Those of services and workers are the
//! control plane's.

use std::sync::Arc;

use agent_runtime::server;
use otlp::{Edge, UnknownSenders, UnverifiedSpans};

use crate::cgroup_metrics;
use crate::config::WATCH_ONLY;
use crate::incident_book::IncidentBook;
use crate::node::Node;
use crate::receipts::Receipts;
use crate::remote_monitor::RemoteMonitor;
use crate::stored_models::StoredModels;
use crate::token_access::TokenAccess;
use crate::watched_sources::WatchedSources;

/// Where problems may be.
#[derive(Debug)]
pub(crate) struct ProblemSources {
    pub(crate) edge: Option<Arc<Edge>>,
    pub(crate) remotes: Vec<Arc<RemoteMonitor>>,
    pub(crate) receipts: Arc<Receipts>,
    /// `None`: none are kept.
    pub(crate) incidents: Option<Arc<IncidentBook>>,
    pub(crate) models: Option<Arc<StoredModels>>,
    pub(crate) cgroups: Arc<cgroup_metrics::Counts>,
    pub(crate) watched: WatchedSources,
    /// `None`: callers show no tokens.
    pub(crate) tokens: Option<Arc<TokenAccess>>,
    /// What became of connections, but for OTLP's.
    pub(crate) connections: Arc<server::Counts>,
}

impl ProblemSources {
    /// What is so for as long as the agent runs, and is to be known though nothing is wrong, in words.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let watching = self.edge.iter().filter(|edge| !edge.forwards());
        watching.map(|_| format!("otlp.watch_only: {WATCH_ONLY}"))
    }

    /// What is wrong now, in words. Waits for no long work.
    pub(crate) fn lines(&self, node: &Node) -> Vec<String> {
        let unverified = self.edge.iter().flat_map(|edge| edge.unverified());
        let forwards = self.edge.as_ref().is_some_and(|edge| edge.forwards());
        let unverified = unverified.map(|spans| unverified_line(&spans, forwards));
        let unknown = self.edge.iter().filter_map(|edge| edge.unknown_senders());
        let unknown = unknown.map(|unknown| unknown_line(&unknown));
        let full = self.edge.iter().flat_map(|edge| edge.full_bounds());
        let remotes = self.remotes.iter().filter_map(|remote| remote.problem());
        let models = self.models.iter().flat_map(|models| models.problems(node));
        let now = node.clock().now();
        let tokens = self.tokens.iter().filter_map(|tokens| tokens.problem());
        let sources = tokens.chain(self.cgroups.problems()).chain(self.watched.problems(now));
        let incidents = self.incidents.iter().filter_map(|incidents| incidents.problem());
        let stored = self.receipts.problem().into_iter().chain(incidents).chain(models);
        let listeners = self.connections.full.problems().into_iter();
        let listeners = listeners.chain(self.edge.iter().flat_map(|edge| edge.full_listeners()));
        let full = listeners.chain(full);
        full.chain(unverified).chain(unknown).chain(remotes).chain(sources).chain(stored).collect()
    }
}

fn unknown_line(unknown: &UnknownSenders) -> String {
    format!("otlp: {unknown}; {}", unknown.advice())
}

/// Items whose sender may not use the name of their service, where all are forwarded, or none.
fn unverified_line(unverified: &UnverifiedSpans, forwards: bool) -> String {
    let UnverifiedSpans { service, sender, spans, exports, logs, .. } = unverified;
    let items = [(spans, "spans"), (exports, "exports of metrics"), (logs, "log records")];
    let items = items.into_iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}"));
    let what = items.collect::<Vec<_>>().join(" and ");
    let forwarded = if forwards { "forwarded and " } else { "" };
    format!(
        "otlp: {what} in the name of {service} from {sender} are {forwarded}not counted as its own: \
         services.identities gives the name to others"
    )
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use hooks::sampling::Row;
    use remote_write::feed::Column;
    use remote_write::shipper::{Shipper, Timestamp};
    use wire::id::Incarnation;
    use wire::metric::{Group, Kind, Series};
    use wire::name::{Labels, MetricName};
    use wire::time::UnixNanos;
    use wire::time::{Interval, Nanos};

    use super::*;
    use crate::clock::{self, Clock};
    use crate::config::Config;
    use crate::control_plane::Settings;

    /// A node that keeps no receipt, with this remote monitor.
    fn sources(remote: &Arc<RemoteMonitor>) -> (Node, ProblemSources) {
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let node = Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None);
        let receipts = Receipts::new(&Config::default().receipt, None, "node".to_owned(), UnixNanos(0)).unwrap();
        let remotes = vec![Arc::clone(remote)];
        let receipts = Arc::new(receipts);
        let (cgroups, watched) = (Arc::default(), WatchedSources::default());
        let sources = ProblemSources {
            edge: None,
            remotes,
            receipts,
            incidents: None,
            models: None,
            cgroups,
            watched,
            tokens: None,
            connections: Arc::default(),
        };
        (node, sources)
    }

    #[test]
    fn a_clock_that_was_set_back_is_in_the_status_with_what_is_lost_until_it_is_over() {
        let config = Config::parse("remote_write: {url: 'http://127.0.0.1:9/w'}").unwrap();
        let (shipper, _client) = config.remote_write.start("node", UnixNanos(0)).unwrap().unwrap();
        let monitor = Arc::new(RemoteMonitor::new(shipper, Clock::start()));
        let (node, sources) = sources(&monitor);
        let row = |shipper: &mut Shipper, ahead_s: u64| {
            let wall = clock::unix_now().plus(Nanos::from_secs(ahead_s));
            let (at, interval) = (Timestamp { monotonic: Nanos(1), wall }, Interval::new(Nanos::from_secs(1)).unwrap());
            let service = shipper.service("cart", interval);
            let series = Series {
                name: MetricName::new("requests").unwrap(),
                labels: Labels::default(),
                kind: Kind::Counter,
                unit: None,
                group: Group::Service,
                parts_per_unit: NonZeroU64::MIN,
            };
            shipper.set_columns(service, &[Column { series, statistic: Kind::Counter.statistics()[0] }], interval, at);
            shipper.row(service, &Row { at: wall, values: &[1.0], score: None }, at);
        };

        monitor.with_shipper(|shipper| row(shipper, 3600));
        assert_eq!(sources.lines(&node), [""; 0]);
        monitor.with_shipper(|shipper| row(shipper, 0));

        let lines = sources.lines(&node);
        let said = "remote_write: the clock was set back: the receiver may refuse samples for 35";
        assert!(
            matches!(&lines[..], [line] if line.starts_with(said) && line.ends_with("0 samples are lost so far")),
            "{lines:?}"
        );
    }

    #[test]
    fn a_kernel_that_does_not_know_senders_is_named_with_what_to_do() {
        let line = unknown_line(&UnknownSenders::NoModule);

        assert!(line.starts_with("otlp: this kernel does not say who connects from this machine"), "{line}");
        assert!(line.contains("load the module tcp_diag") && line.contains("token_file"), "{line}");
    }

    #[test]
    fn a_sender_in_anothers_name_is_named() {
        let (service, sender) = ("payment".to_owned(), "user 65534 (127.0.0.1)".to_owned());
        let unverified = UnverifiedSpans { service, sender, spans: 3, exports: 0, logs: 0, last: Nanos(1) };
        let said = "otlp: 3 spans in the name of payment from user 65534 (127.0.0.1) are ";

        let line = unverified_line(&unverified, true);
        assert!(line.starts_with(&format!("{said}forwarded and not counted as its own")), "{line}");
        let line = unverified_line(&unverified, false);
        assert!(line.starts_with(&format!("{said}not counted as its own")), "{line}");
    }
}
