//! `cargo lab bounds`: the tables of docs/bounds.md, from the code that computes the budgets of both agents.

use std::fs;

use agent_runtime::budget::Load;
use anyhow::{Context as _, Result};
use support::workspace;

use crate::scale::between_marks;

/// Prints the tables; with `write`, also writes them into docs/bounds.md.
///
/// # Errors
///
/// The page cannot be read or written, or lacks the marks of a table.
pub fn run(write: bool) -> Result<()> {
    let file = workspace().join("docs/bounds.md");
    for (name, table) in tables() {
        println!("{name}\n{table}");
    }
    if write {
        let page = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, filled(&page)?)?;
    }
    Ok(())
}

/// What both agents keep at most with their default configurations.
fn tables() -> [(&'static str, String); 2] {
    let load = Load::default();
    let host = host_agent::budget(&host_agent::config::Config::default(), load);
    let nic = nic_agent::budget(&nic_agent::config::Config::default(), load);
    [("host agent", host.table()), ("NIC agent", nic.table())]
}

fn filled(page: &str) -> Result<String> {
    tables().iter().try_fold(page.to_owned(), |page, (name, table)| between_marks(&page, name, table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_bounds_that_the_code_computes() {
        let page = fs::read_to_string(workspace().join("docs/bounds.md")).unwrap();

        assert!(page == filled(&page).unwrap(), "docs/bounds.md is not what `cargo lab bounds --write` makes of it");
    }

    #[test]
    fn every_metric_that_says_that_a_bound_is_reached_is_exported() {
        let metrics = fs::read_to_string(workspace().join("docs/metrics.md")).unwrap();
        for (_, table) in tables() {
            for name in table.split('`').filter(|word| word.starts_with("uview_")) {
                let is_listed = [format!("`{name}`"), format!("`{name}{{")].iter().any(|found| metrics.contains(found));
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
