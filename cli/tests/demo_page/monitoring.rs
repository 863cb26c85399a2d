//! Dashboards and alerts of `deploy` with a real Prometheus that scrapes the demo's agents.

use std::collections::BTreeSet;

use support::harness::not_run;
use support::prometheus::{Prometheus, panels};

use crate::WAIT;
use crate::running::Demo;

/// A Prometheus, and names of all that the demo's agents export.
pub struct Monitoring {
    prometheus: Prometheus,
    names: BTreeSet<String>,
}

/// What scrapes both agents of `demo`. Prints why there is none.
pub fn start(demo: &Demo) -> Option<Monitoring> {
    let [host, nic] = ["host-agent", "nic-agent"].map(|agent| demo.metrics_page(agent));
    let names = [&host, &nic].into_iter().flat_map(|(_, page)| names(page)).collect();
    let prometheus = Prometheus::start(&demo.folder("prometheus"), &host.0.to_string(), &nic.0.to_string());
    if prometheus.is_none() {
        not_run("dashboards and alerts with the demo: it needs prometheus");
    }
    prometheus.map(|prometheus| Monitoring { prometheus, names })
}

/// Names of metrics in `text`.
fn names(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("uview_host_") || word.starts_with("uview_nic_")).map(str::to_owned)
}

impl Monitoring {
    /// Whether the demo's agents export all that `query` asks for: the demo has no remote monitors, no other nodes and
    /// no log records that are chosen.
    fn has(&self, query: &str) -> bool {
        names(query).all(|name| self.names.contains(&name))
    }
}

/// Panels and rules about what the demo has give data: four of five.
pub fn gives_data(monitoring: Option<&Monitoring>) {
    let Some(of) = monitoring else { return };
    let (there, others): (Vec<_>, Vec<_>) = panels().into_iter().partition(|query| of.has(query));
    assert!(there.len() >= 4 * others.len(), "{} panels have no metrics: {others:#?}", others.len());
    for query in there {
        of.prometheus.gives_data(&query);
    }
    of.prometheus.gives_data_to_rules(|query| of.has(query));
}

/// There is the alert of a service in alarm. It fires after ten seconds, for which a hang of as long hardly lasts.
pub fn alerts(monitoring: Option<&Monitoring>, service: &str) {
    let Some(Monitoring { prometheus, .. }) = monitoring else { return };
    WAIT.until("the alert of the service in alarm", || {
        let active = prometheus.active();
        let wanted = ("UviewServiceInAlarm".to_owned(), service.to_owned());
        if active.contains(&wanted) { Ok(()) } else { Err(active) }
    });
}
