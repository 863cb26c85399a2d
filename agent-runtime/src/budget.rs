//! What an agent may keep in memory: a row for everything that grows with what others say, computed from the
//! configuration. `--budget` prints it, and docs/bounds.md has the same rows.

mod usage;

use core::fmt;

pub use self::usage::{Metered, Unit, UsageCount, Use, UsedBound};

/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;

/// Bytes that one connection to a [`server`](crate::server) takes: its task, TLS, and buffers for headers and body. A
/// test measures them (tests/connection_memory.rs).
pub const CONNECTION_BYTES: u64 = 64 << 10;

/// What the numbers assume: what is on the node, as far as no limit says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Services of the node.
    pub services: u64,
    /// Columns of each service's LMAP: one for a counter or gauge, three for a histogram.
    pub columns: u64,
}

impl Default for Load {
    /// 600 services of 100 columns.
    fn default() -> Self {
        Self { services: 600, columns: 100 }
    }
}

impl Load {
    /// Columns of all services.
    #[must_use]
    pub const fn all_columns(self) -> u64 {
        self.services.saturating_mul(self.columns)
    }
}

/// Something that an agent keeps because others say so, and its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is kept.
    pub what: &'static str,
    /// Bytes at most.
    pub bytes: u64,
    /// How these are computed, with the keys of the configuration.
    pub from: &'static str,
    /// Who pays: whose share it is taken from.
    pub payer: &'static str,
    /// What happens when it is full.
    pub full: &'static str,
    /// The metric that says so, or how much there is of it, without the prefix of the agent. In brackets: why there is
    /// none.
    pub metric: &'static str,
}

/// All bounds of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The agent's name.
    pub agent: &'static str,
    /// What the metrics' names begin with.
    pub prefix: &'static str,
    /// What was assumed; `None`: it depends on no service.
    pub load: Option<Load>,
    /// The rows of its table, in their order.
    pub bounds: Vec<Bound>,
    /// What it keeps in files. Not part of the sum.
    pub on_disk: Vec<Bound>,
}

impl Budget {
    /// The sum of all bounds, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bounds.iter().fold(0, |sum, bound| sum.saturating_add(bound.bytes))
    }

    /// The table for the documentation.
    #[must_use]
    pub fn table(&self) -> String {
        let row = |bound: &Bound| {
            let Bound { what, bytes, from, payer, full, metric } = bound;
            let why = metric.strip_prefix('(').and_then(|why| why.strip_suffix(')'));
            let metric = why.map_or_else(|| format!("`{}_{metric}`", self.prefix), |why| format!("– ({why})"));
            format!("| {what} | {} | {from} | {payer} | {full} | {metric} |\n", mib(*bytes))
        };
        let head = "| what | MiB | computed from | who pays | when it is full | metric |\n| --- | --- | --- | --- | --- | --- |\n";
        let rows: String = self.bounds.iter().map(row).collect();
        let stored = |bound: &Bound| row(bound).replacen("| ", "| *on disk:* ", 1);
        let on_disk: String = self.on_disk.iter().map(stored).collect();
        format!("{head}{rows}| **all** | **{}** | | | | |\n{on_disk}", mib(self.total()))
    }
}

/// `bytes` in MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, load, bounds, on_disk, .. } = self;
        match load {
            Some(Load { services, columns }) => {
                writeln!(f, "Memory of the {agent}, at most, with {services} services of {columns} columns each")?;
                writeln!(f, "(--services and --columns assume others):\n")?;
            }
            None => writeln!(f, "Memory of the {agent}, at most:\n")?,
        }
        let line = |Bound { what, bytes, from, .. }: &Bound| {
            format!("{:>7} MiB  {what}: {}", mib(*bytes), from.replace('`', ""))
        };
        bounds.iter().try_for_each(|bound| writeln!(f, "{}", line(bound)))?;
        writeln!(f, "{:>7} MiB  all", mib(self.total()))?;
        if !on_disk.is_empty() {
            writeln!(f, "\nOn disk:\n")?;
        }
        on_disk.iter().try_for_each(|bound| writeln!(f, "{}", line(bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        let bound = |what, bytes, metric| Bound { what, bytes, from: "`limits.x`", payer: "user", full: "-", metric };
        let bounds = vec![bound("rows", 3 * MIB, "lost_rows"), bound("models", MIB + 1, "(others wait)")];
        let on_disk = vec![bound("files", 2 * MIB, "failed_writes")];
        Budget { agent: "NIC agent", prefix: "uview_nic", load: Some(Load::default()), bounds, on_disk }
    }

    #[test]
    fn the_sum_is_printed_below_its_parts_and_both_are_rounded_up() {
        let text = budget().to_string();

        assert!(text.contains("600 services of 100 columns"), "{text}");
        let end = "      2 MiB  models: limits.x\n      5 MiB  all\n\nOn disk:\n\n      2 MiB  files: limits.x\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn the_table_names_the_metric_as_it_is_exported_or_says_why_there_is_none() {
        let table = budget().table();

        assert!(table.contains("| rows | 3 | `limits.x` | user | - | `uview_nic_lost_rows` |\n"), "{table}");
        assert!(table.contains("| models | 2 | `limits.x` | user | - | – (others wait) |\n"), "{table}");
        let end = "| **all** | **5** | | | | |\n| *on disk:* files | 2 | `limits.x` | user | - | `uview_nic_failed_writes` |\n";
        assert!(table.ends_with(end), "{table}");
    }
}
