//! JSON of what the agents of this node keep of what they may, and of other nodes.

use serde_json::{Value, json};

use crate::shown;

/// What an amount is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of memory.
    Bytes,
    /// Things, such as series.
    Number,
}

/// Something that the agent counts itself, of what there may be of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use<'a> {
    /// What it is, such as "regions".
    pub what: &'a str,
    /// What there is of it.
    pub used: u64,
    /// What there may be.
    pub most: u64,
    /// What both are of.
    pub unit: Unit,
}

/// A row of the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRow<'a> {
    /// What is kept.
    pub what: &'a str,
    /// Bytes at most.
    pub bytes: u64,
    /// What the agent counts of it.
    pub uses: Vec<Use<'a>>,
    /// What happens when it is full.
    pub full: &'a str,
    /// The metric that says so, and its value; `None` if there is none.
    pub metric: Option<(String, u64)>,
}

/// What an agent keeps, at most and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBudget<'a> {
    /// Services that the sums assume, and columns of each.
    pub load: (u64, u64),
    /// Each row; those without bytes are off.
    pub rows: Vec<BudgetRow<'a>>,
    /// The sum of all rows, in bytes.
    pub total: u64,
    /// Bytes of the process that are in memory; `None` if that cannot be read.
    pub resident: Option<u64>,
}

/// Whether a node is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It was heard a moment ago.
    Live,
    /// It was heard before.
    Silent,
    /// It was never heard, or not for long.
    Unheard,
}

/// Another node of the cluster, or an address at which one should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherNode {
    /// Its name; `None` while nobody has replied.
    pub name: Option<String>,
    /// Addresses at which it is called, as they are configured and resolved.
    pub addresses: Vec<String>,
    /// Whether it is heard.
    pub contact: Contact,
    /// Milliseconds since it was heard; `None` if it was not.
    pub silent_ms: Option<u64>,
    /// Why it cannot be called; `None` if it can.
    pub problem: Option<String>,
}

/// The budget of the host agent, those of NIC agents by their workers' numbers, and the other nodes; `None` if this
/// node is configured to be alone.
#[must_use]
pub fn node(host: &NodeBudget<'_>, nics: &[(u32, NodeBudget<'_>)], others: Option<&[OtherNode]>) -> String {
    let others = others.map(|others| others.iter().map(other).collect::<Vec<_>>());
    let nics: Vec<_> = nics.iter().map(|(worker, of)| json!({ "worker": worker, "budget": budget(of) })).collect();
    shown::json(json!({ "budget": budget(host), "nics": nics, "others": others }))
}

fn budget(NodeBudget { load: (services, columns), rows, total, resident }: &NodeBudget<'_>) -> Value {
    let rows: Vec<_> = rows.iter().filter(|row| row.bytes > 0).map(row).collect();
    json!({ "services": services, "columns": columns, "rows": rows, "total": total, "resident": resident })
}

fn row(BudgetRow { what, bytes, uses, full, metric }: &BudgetRow<'_>) -> Value {
    let one = |Use { what, used, most, unit }: &Use<'_>| {
        let bytes = *unit == Unit::Bytes;
        json!({ "what": what, "used": used, "most": most, "bytes": bytes })
    };
    let uses: Vec<_> = uses.iter().map(one).collect();
    json!({ "what": what, "bytes": bytes, "uses": uses, "full": full, "metric": metric })
}

fn other(OtherNode { name, addresses, contact, silent_ms, problem }: &OtherNode) -> Value {
    let contact = match contact {
        Contact::Live => "live",
        Contact::Silent => "silent",
        Contact::Unheard => "not heard",
    };
    json!({ "name": name, "addresses": addresses, "contact": contact, "silent": silent_ms, "problem": problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n";

    fn parsed(text: &str) -> Value {
        assert!(text.chars().all(wire::printable::is_printable), "{text}");
        serde_json::from_str(text).unwrap()
    }

    fn budget() -> NodeBudget<'static> {
        let series = Use { what: "series", used: 7, most: 10, unit: Unit::Number };
        let row = |what, bytes, uses| {
            let metric = Some(("uview_host_refused_series".to_owned(), 3));
            BudgetRow { what, bytes, uses, full: "refused", metric }
        };
        let rows = vec![row("series", 24, vec![series]), row("pods", 0, vec![])];
        NodeBudget { load: (600, 100), rows, total: 24, resident: None }
    }

    #[test]
    fn each_row_that_is_on_has_what_is_used_what_may_be_and_what_says_that_it_is_full() {
        let document = &parsed(&node(&budget(), &[], None))["budget"];

        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "what is off is not there");
        let (uses, metric) = (&rows[0]["uses"], &rows[0]["metric"]);
        assert_eq!(*uses, json!([{ "what": "series", "used": 7, "most": 10, "bytes": false }]));
        assert_eq!(*metric, json!(["uview_host_refused_series", 3]));
        assert_eq!((&document["total"], &document["resident"]), (&json!(24), &Value::Null));
    }

    #[test]
    fn what_a_nic_agent_says_stands_beside_and_is_printable() {
        let uses = vec![Use { what: HOSTILE, used: 1, most: 2, unit: Unit::Bytes }];
        let rows =
            vec![BudgetRow { what: HOSTILE, bytes: 9, uses, full: HOSTILE, metric: Some((HOSTILE.to_owned(), 0)) }];
        let nic = NodeBudget { load: (5, 7), rows, total: 9, resident: Some(3) };

        let document = parsed(&node(&budget(), &[(2, nic)], None));

        let [nic] = &document["nics"].as_array().unwrap()[..] else { unreachable!("{document}") };
        assert_eq!((&nic["worker"], &nic["budget"]["columns"]), (&json!(2), &json!(7)));
        let (row, shown) = (&nic["budget"]["rows"][0], "<img src=x onerror=alert(1)>\\u{202e}\\u{a}");
        assert_eq!((&row["what"], &row["full"], &row["metric"][0]), (&json!(shown), &json!(shown), &json!(shown)));
        assert_eq!(row["uses"], json!([{ "what": shown, "used": 1, "most": 2, "bytes": true }]));
    }

    #[test]
    fn a_node_that_is_alone_is_not_one_that_hears_nobody() {
        let hostile = OtherNode {
            name: Some(HOSTILE.to_owned()),
            addresses: vec!["node-2:9704".to_owned()],
            contact: Contact::Silent,
            silent_ms: Some(4_000),
            problem: Some(HOSTILE.to_owned()),
        };

        assert_eq!(parsed(&node(&budget(), &[], None))["others"], Value::Null);
        assert_eq!(parsed(&node(&budget(), &[], Some(&[])))["others"], json!([]));
        let others = &parsed(&node(&budget(), &[], Some(&[hostile])))["others"];
        assert_eq!((&others[0]["contact"], &others[0]["silent"]), (&json!("silent"), &json!(4_000)));
        assert_eq!(others[0]["name"], "<img src=x onerror=alert(1)>\\u{202e}\\u{a}");
    }
}
