//! Problems of the edges that last: shown in the status as long as they do. Those of services and workers are the
//! control plane's.

use std::sync::Arc;

use otlp::{Edge, UnknownSenders, UnverifiedSpans};

use crate::node::Node;
use crate::receipts::Receipts;
use crate::remote_monitor::RemoteMonitor;
use crate::stored_models::StoredModels;

/// Where problems may be.
#[derive(Debug)]
pub(crate) struct ProblemSources {
    pub(crate) edge: Option<Arc<Edge>>,
    pub(crate) remotes: Vec<Arc<RemoteMonitor>>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) models: Option<Arc<StoredModels>>,
}

impl ProblemSources {
    /// What is wrong now, in words. Waits for no long work.
    pub(crate) fn lines(&self, node: &Node) -> Vec<String> {
        let unverified = self.edge.iter().flat_map(|edge| edge.unverified());
        let unverified = unverified.map(|spans| unverified_line(&spans));
        let unknown = self.edge.iter().filter_map(|edge| edge.unknown_senders());
        let unknown = unknown.map(|unknown| unknown_line(&unknown));
        let remotes = self.remotes.iter().filter_map(|remote| remote.problem());
        let models = self.models.iter().flat_map(|models| models.problems(node));
        unverified.chain(unknown).chain(remotes).chain(self.receipts.problem()).chain(models).collect()
    }
}

fn unknown_line(unknown: &UnknownSenders) -> String {
    format!("otlp: {unknown}; {}", unknown.advice())
}

fn unverified_line(UnverifiedSpans { service, sender, spans, .. }: &UnverifiedSpans) -> String {
    format!(
        "otlp: {spans} spans in the name of {service} from {sender} are forwarded and not counted as its own: \
         services.identities gives the name to others"
    )
}

#[cfg(test)]
mod tests {
    use wire::time::Nanos;

    use super::*;

    #[test]
    fn a_kernel_that_does_not_know_senders_is_named_with_what_to_do() {
        let line = unknown_line(&UnknownSenders::NoModule);

        assert!(line.starts_with("otlp: this kernel does not say who connects from this machine"), "{line}");
        assert!(line.contains("load the module tcp_diag") && line.contains("token_file"), "{line}");
    }

    #[test]
    fn a_sender_in_anothers_name_is_named() {
        let (service, sender) = ("payment".to_owned(), "user 65534 (127.0.0.1)".to_owned());
        let line = unverified_line(&UnverifiedSpans { service, sender, spans: 3, last: Nanos(1) });

        assert!(line.starts_with("otlp: 3 spans in the name of payment from user 65534 (127.0.0.1) are forwarded"));
    }
}
