//! What the node view asks for when somebody looks: what the agents keep of what they may, and the other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_runtime::budget::{self as budgets, Budget, Load, Metered, UsageCount, UsedBound};
use agent_runtime::reload::Reloadable;
use gossip::{CallState, Calls, Responder};
use hooks::coherence::MemberSettings;
use otlp::Edge;
use page::documents::{BudgetRow, Contact, NodeBudget, OtherNode, Unit, Use};
use wire::proto::control::MemoryAccount;
use wire::time::Nanos;

use crate::config::Config;
use crate::dispatch::Dispatch;
use crate::metrics_endpoint::OwnMetrics;
use crate::node::Node;
use crate::open_problems::ProblemSources;

/// Where the kernel says how much memory this process has.
const STATUS: &str = "/proc/self/status";

/// The budget of the configuration, and what is counted of it.
#[derive(Debug)]
pub(crate) struct NodeLook {
    /// Another one after each change of lists.
    budget: Reloadable<Budget>,
    metered: Vec<Metered>,
    /// Bytes for scores, for kept traces, and for incidents.
    most: [usize; 3],
    metrics: Arc<OwnMetrics>,
    /// `None`: this node is alone.
    calls: Option<Arc<Calls>>,
}

/// What metrics count, in the order of the budget.
fn metered(config: &Config) -> Vec<Metered> {
    let (otlp, tenants) = (&config.otlp, 1 + config.otlp.tenants.len());
    let own = otlp.tenants.iter().map(|tenant| tenant.memory_bytes.unwrap_or(otlp.traces.memory_bytes));
    let spans = otlp.traces.memory_bytes + own.sum::<usize>();
    let of = |row, what, metrics: &'static [&'static str], most: Option<usize>, unit| {
        let most = most.map(|most| most as u64);
        Metered { row, what, metrics, most, unit }
    };
    let (bytes, number) = (budgets::Unit::Bytes, budgets::Unit::Number);
    vec![
        of("cgroups that are read", "cgroups", &["cgroups"], Some(config.sources.cgroup_limit.get()), number),
        of("pods of this node", "pods", &["pods"], Some(pods::table::MAX_PODS), number),
        of("learnt models", "models", &["kept_model_bytes"], Some(config.lmap.model_bytes), bytes),
        of("operators' models", "models", &["operators_model_bytes"], None, bytes),
        of("OTLP requests while", "requests", &["receiving_otlp_bytes"], None, bytes),
        of("OTLP requests that wait", "requests", &["queued_otlp_bytes"], None, bytes),
        of("OTLP metrics", "series", &["otlp_series"], Some(otlp.metrics.max_all_series.get()), number),
        of("samples for remote", "samples", &["queued_sample_bytes", "otlp_metrics_queued_sample_bytes"], None, bytes),
        of("buffered spans", "spans", &["trace_memory_bytes"], Some(spans), bytes),
        of("log records", "records", &["log_memory_bytes"], Some(tenants * otlp.logs.memory_bytes), bytes),
        of("gossip", "entries", &["gossip_entry_bytes"], Some(MemberSettings::default().memory), bytes),
    ]
}

impl NodeLook {
    /// The `budget` of `config`, what the agent's own `metrics` count of it, and `calls` to other nodes.
    pub(crate) fn new(
        config: &Config,
        budget: Reloadable<Budget>,
        metrics: Arc<OwnMetrics>,
        calls: Option<Arc<Calls>>,
    ) -> Self {
        let most = [config.page.history_bytes, config.page.trace_bytes, config.incidents.bytes];
        Self { budget, metered: metered(config), most, metrics, calls }
    }

    /// The budget, with what is used of it now; of the page, bytes of scores and of kept traces.
    pub(crate) fn budget(&self, node: &Node, sources: &ProblemSources, page: (usize, usize)) -> NodeBudget<'static> {
        let (counted, values, budget) = (self.counted(node, sources, page), self.metrics.values(), self.budget.load());
        let used = budget.used(&counted, &self.metered, &values);
        let Load { services, columns } = budget.load.unwrap_or_default();
        let rows = used.into_iter().map(bounded).collect();
        NodeBudget { load: (services, columns), rows, total: budget.total(), resident: resident_now() }
    }

    /// What is counted and no metric says.
    fn counted(&self, node: &Node, sources: &ProblemSources, (scores, traces): (usize, usize)) -> Vec<UsageCount> {
        let (held, (verdicts, rows)) = node.inspect(|plane, dispatch| (plane.held(), dispatch.bytes()));
        let held = held.into_iter().map(|(bound, used, most)| {
            let (row, what, unit) = match bound {
                "series" => (SERIES, "series", budgets::Unit::Number),
                "region_bytes" => (CONNECTIONS, "bytes of regions", budgets::Unit::Bytes),
                other => (CONNECTIONS, other, budgets::Unit::Number),
            };
            UsageCount { row, what, used, most: Some(most), unit }
        });
        let bytes = |row, what, used: usize, most: usize| {
            let (used, most, unit) = (used as u64, Some(most as u64), budgets::Unit::Bytes);
            UsageCount { row, what, used, most, unit }
        };
        let [most_scores, most_traces, most_incidents] = self.most;
        let incidents = sources.incidents.as_ref().map_or(0, |incidents| incidents.bytes());
        let counted = [
            bytes(HOOKS, "verdicts", verdicts, Dispatch::ALL_HOOK_BYTES),
            bytes(WATCHERS, "rows", rows, Dispatch::ALL_WATCHER_BYTES),
            bytes(PAGE, "scores and alarms", scores, most_scores),
            bytes(PAGE, "kept traces", traces, most_traces),
            bytes(INCIDENTS, "records", incidents, most_incidents),
        ];
        held.chain(counted).collect()
    }

    /// The other nodes; `None` if this one is alone.
    pub(crate) fn others(&self, edge: Option<&Edge>) -> Option<Vec<OtherNode>> {
        let calls = self.calls.as_ref()?.list();
        let heard = edge?.with_member(|member, now| {
            let peers = member.peers(now.monotonic);
            peers.map(|(name, silent, is_live)| (name.to_owned(), (silent, is_live))).collect()
        });
        Some(joined(calls, &heard.unwrap_or_default()))
    }
}

/// A row of the host agent's budget, as the page has it.
fn bounded(UsedBound { bound, uses, metric }: UsedBound<'_>) -> BudgetRow<'static> {
    let of = |budgets::Use { what, used, most, unit }| {
        let unit = match unit {
            budgets::Unit::Bytes => Unit::Bytes,
            budgets::Unit::Number => Unit::Number,
        };
        Use { what, used, most, unit }
    };
    let uses = uses.into_iter().map(of).collect();
    BudgetRow { what: bound.what, bytes: bound.bytes, uses, full: bound.full, metric }
}

/// What a NIC agent says of itself, as the page has it.
pub(super) fn of_nic(account: &MemoryAccount) -> NodeBudget<'_> {
    let rows = account.rows.iter().map(|row| {
        let uses = row.uses.iter().map(|of| {
            let unit = if of.in_bytes { Unit::Bytes } else { Unit::Number };
            Use { what: &of.what, used: of.used, most: of.most, unit }
        });
        let metric = (!row.metric.is_empty()).then(|| (row.metric.clone(), row.value));
        BudgetRow { what: &row.what, bytes: row.bytes, uses: uses.collect(), full: &row.full, metric }
    });
    NodeBudget {
        load: (account.services, account.columns),
        rows: rows.collect(),
        total: account.rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes)),
        resident: Some(account.resident_bytes).filter(|bytes| *bytes > 0),
    }
}

const SERIES: &str = "series of services";
const CONNECTIONS: &str = "connections of services";
const HOOKS: &str = "verdicts for hooks";
const WATCHERS: &str = "rows for watchers";
const PAGE: &str = "the page";
const INCIDENTS: &str = "incidents";

/// Bytes of this process that are in memory; `None` if that cannot be read.
pub(super) fn resident_now() -> Option<u64> {
    resident(&std::fs::read_to_string(STATUS).ok()?)
}

/// Bytes in memory, of the text of [`STATUS`].
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Nodes that are called or heard, by name; then addresses at which nobody has replied.
fn joined(calls: Vec<(core::net::SocketAddr, CallState)>, heard: &BTreeMap<String, (Nanos, bool)>) -> Vec<OtherNode> {
    let of = |name: &str| {
        let (contact, silent) = match heard.get(name) {
            Some((silent, true)) => (Contact::Live, Some(silent)),
            Some((silent, false)) => (Contact::Silent, Some(silent)),
            None => (Contact::Unheard, None),
        };
        let silent_ms = silent.map(|silent| silent.as_millis());
        OtherNode { name: Some(name.to_owned()), addresses: Vec::new(), contact, silent_ms, problem: None }
    };
    let mut named: BTreeMap<String, OtherNode> = heard.keys().map(|name| (name.clone(), of(name))).collect();
    let mut unnamed = Vec::new();
    for (address, CallState { configured, replied, problem }) in calls {
        let address = address.to_string();
        let address = if configured == address { address } else { format!("{configured} ({address})") };
        match replied {
            Responder::ThisNode => {}
            Responder::Nobody => {
                let (addresses, contact) = (vec![address], Contact::Unheard);
                unnamed.push(OtherNode { name: None, addresses, contact, silent_ms: None, problem });
            }
            Responder::Node(name) => {
                let node = named.entry(name.to_string()).or_insert_with(|| of(&name));
                node.addresses.push(address);
                node.problem = node.problem.take().or(problem);
            }
        }
    }
    named.into_values().chain(unnamed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::budget;

    #[test]
    fn what_is_counted_belongs_to_one_row_of_the_budget_each() {
        let config = Config::default();
        let budget = budget(&config, Load::default());

        let rows = [SERIES, CONNECTIONS, HOOKS, WATCHERS, PAGE, INCIDENTS].into_iter();
        for row in rows.chain(metered(&config).into_iter().map(|metered| metered.row)) {
            let fitting = budget.bounds.iter().filter(|bound| bound.what.starts_with(row)).count();
            assert_eq!(fitting, 1, "{row}");
        }
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        assert_eq!(resident("Name:\tuview\nVmRSS:\t   46080 kB\nThreads:\t9\n"), Some(45 << 20));
        assert_eq!(resident("VmRSS:\t-1 kB\n"), None);
        assert_eq!(resident(""), None);
    }

    #[test]
    fn nodes_are_joined_by_name_and_those_that_nobody_has_seen_come_last() {
        let called = |address: &str, configured: &str, replied, problem: Option<&str>| {
            let problem = problem.map(ToOwned::to_owned);
            (address.parse().unwrap(), CallState { configured: configured.to_owned(), replied, problem })
        };
        let node = |name: &str| Responder::Node(name.into());
        let calls = vec![
            called("10.0.0.1:9704", "nodes:9704", Responder::ThisNode, None),
            called("10.0.0.2:9704", "nodes:9704", node("b"), None),
            called("10.0.0.3:9704", "10.0.0.3:9704", node("c"), Some("no reply within 1 s")),
            called("10.0.0.4:9704", "nodes:9704", Responder::Nobody, Some("connection refused")),
            called("10.0.0.5:9704", "nodes:9704", node("e"), None),
        ];
        let heard = [("a", 1, true), ("b", 20, true), ("c", 4_000, false)];
        let heard = heard.map(|(name, ms, is_live)| (name.to_owned(), (Nanos::from_millis(ms), is_live))).into();

        let found = joined(calls, &heard);

        let found = found
            .iter()
            .map(|of| (of.name.as_deref(), of.addresses.join(" "), of.contact, of.silent_ms, of.problem.as_deref()));
        let (b, d) = ("nodes:9704 (10.0.0.2:9704)".to_owned(), "nodes:9704 (10.0.0.4:9704)".to_owned());
        let e = "nodes:9704 (10.0.0.5:9704)".to_owned();
        assert!(found.eq([
            (Some("a"), String::new(), Contact::Live, Some(1), None),
            (Some("b"), b, Contact::Live, Some(20), None),
            (Some("c"), "10.0.0.3:9704".to_owned(), Contact::Silent, Some(4_000), Some("no reply within 1 s")),
            (Some("e"), e, Contact::Unheard, None, None),
            (None, d, Contact::Unheard, None, Some("connection refused")),
        ]));
    }
}
