//! `cargo lab bounds`: the tables of docs/bounds.md, and those of memory in docs/bluefield.md, from the code that
//! computes the budgets of both agents and of the controller.

use std::fs;

use agent_runtime::budget::Load;
use anyhow::{Context as _, Result};
use support::workspace;

use crate::scale::between_marks;

/// Limits of a worker, of which eight fit a card of 16 GB.
const OF_EIGHT: &str = "limits: {region_bytes: 134217728, retained_detector_bytes: 134217728, retained_model_bytes: 33554432, outbox_rows: 64}";

/// Prints the tables; with `write`, also writes them into their pages.
///
/// # Errors
///
/// A page cannot be read or written, or lacks the marks of a table.
pub fn run(write: bool) -> Result<()> {
    for (name, tables) in PAGES {
        let tables = tables();
        for (name, table) in &tables {
            println!("{name}\n{table}");
        }
        if write {
            let file = workspace().join(name);
            let page = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            fs::write(&file, filled(&page, &tables)?)?;
        }
    }
    Ok(())
}

/// A table, after the name of its marks.
type Table = (&'static str, String);

type Tables = fn() -> Vec<Table>;

/// The pages, and the tables of each.
const PAGES: [(&str, Tables); 2] = [("docs/bounds.md", || tables().into()), ("docs/bluefield.md", || vec![of_cards()])];

/// What workers of a card take at most.
fn of_cards() -> Table {
    let of = |text: &str, workers: u64, services: u64| {
        let config = nic_agent::config::Config::parse(text).unwrap_or_default();
        let budget = nic_agent::budget(&config, Load { services, columns: 100 });
        let gib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 30));
        let (one, all) = (gib(budget.total()), gib(workers * budget.total()));
        let limits = if text.is_empty() { "default".to_owned() } else { format!("`{text}`") };
        format!("| {workers} | {services} × 100 | {limits} | {one} | {all} |\n")
    };
    let rows = [of("", 1, 600), of("", 2, 300), of("", 8, 75), of(OF_EIGHT, 8, 75)].concat();
    let head = "| workers | services × columns of each | limits | GiB of one, at most | GiB of all |\n| --- | --- | --- | --- | --- |\n";
    ("workers' memory", format!("{head}{rows}"))
}

/// What both agents keep at most with their default configurations, and the controller with metrics for autoscalers.
fn tables() -> [Table; 3] {
    let load = Load::default();
    let host = host_agent::budget(&host_agent::config::Config::default(), load);
    let nic = nic_agent::budget(&nic_agent::config::Config::default(), load);
    [("host agent", host.table()), ("NIC agent", nic.table()), ("controller", controller::budget(true).table())]
}

fn filled(page: &str, tables: &[Table]) -> Result<String> {
    tables.iter().try_fold(page.to_owned(), |page, (name, table)| between_marks(&page, name, table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_have_the_bounds_that_the_code_computes() {
        for (name, tables) in PAGES {
            let page = fs::read_to_string(workspace().join(name)).unwrap();

            assert!(
                page == filled(&page, &tables()).unwrap(),
                "{name} is not what `cargo lab bounds --write` makes of it"
            );
        }
    }

    #[test]
    fn eight_workers_with_the_limits_of_the_page_fit_a_card_of_16_gb() {
        let config = nic_agent::config::Config::parse(OF_EIGHT).unwrap();
        let one = nic_agent::budget(&config, Load { services: 75, columns: 100 }).total();

        // What is left is for the card's Linux.
        assert!(8 * one < 12 << 30, "{one} bytes each");
    }

    #[test]
    fn every_metric_that_says_that_a_bound_is_reached_is_exported() {
        let metrics = fs::read_to_string(workspace().join("docs/metrics.md")).unwrap();
        for (_, table) in tables() {
            for name in table.split('`').filter(|word| word.starts_with("uview_")) {
                // The controller's stand there without what all of them begin with.
                let short = name.strip_prefix("uview_controller_").unwrap_or(name);
                let found = [format!("`{name}`"), format!("`{name}{{"), format!("`{short}`")];
                let is_listed = found.iter().any(|found| metrics.contains(found));
                assert!(is_listed, "docs/metrics.md has no {name}");
            }
        }
    }

    #[test]
    fn every_key_that_a_bound_names_is_one_of_the_configuration() {
        let files = [host_agent::config::DEFAULT, nic_agent::config::DEFAULT].concat();
        for (_, table) in tables() {
            let names = table.split('`').skip(1).step_by(2).filter(|name| !name.starts_with("uview"));
            for name in names.filter(|name| !name.starts_with(['/', '_'])) {
                let name = name.split(": ").next().unwrap();
                let key = name.rsplit('.').next().unwrap();
                assert!(files.contains(&format!("{key}:")), "no configuration has {name}");
            }
        }
    }
}
