//! Reproduces the claims of publications with this library on synthetic traffic:
//! `cargo lab reproduce fridges|finecomb|rda|rap|reordering|cardinality|disaggregated`. The runs of `finecomb` make
//! LDA's table as well.
//!
//! The first argument is the name of the publication, the second the folder for `NAME.md`, `NAME.json` and figures.
//! With `--reduced` it makes fewer runs and writes nothing, and fails if a claim no longer holds that holds in the
//! folder's `NAME.json`, or is not in it. `--two-agents FILE` names what two agents measured, for the row of RDA that
//! needs them; without it that row is said not to have been run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use claim::{Claim, Reproduction};
use scale::Scale;

mod analysis;
mod banks;
mod cardinality;
mod chain;
mod claim;
mod combination;
mod delay;
mod disaggregated;
mod finecomb;
mod formula;
mod fridges;
mod interval;
mod lda;
mod loss;
mod measure;
mod microscopic;
mod occupancy;
mod plot;
mod properties;
mod rap;
mod rda;
mod reordering;
mod samples;
mod scale;
mod streams;
mod sweep;
mod timing;
mod trace;
mod workload;

/// The tables of one command.
fn reproductions(name: &str, scale: Scale, two_agents: Option<&Path>) -> Option<Vec<Reproduction>> {
    Some(match name {
        "fridges" => vec![fridges::reproduction(scale)],
        "finecomb" => finecomb::reproductions(scale).into(),
        "rap" => vec![rap::reproduction(scale)],
        "reordering" => vec![reordering::reproduction(scale)],
        "cardinality" => vec![cardinality::reproduction(scale)],
        "disaggregated" => vec![disaggregated::reproduction()],
        "rda" => vec![rda::reproduction(scale, two_agents)],
        _ => return None,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().and_then(|name| name.into_string().ok()).ok_or("name a publication")?;
    let folder = arguments.next().map(PathBuf::from).ok_or("name the folder of its table")?;
    let (mut reduced, mut two_agents) = (false, None);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--reduced") => reduced = true,
            Some("--two-agents") => two_agents = arguments.next().map(PathBuf::from),
            _ => return Err(format!("{} is no argument", argument.display()).into()),
        }
    }
    let scale = if reduced { Scale::REDUCED } else { Scale::FULL };
    let tables = reproductions(&name, scale, two_agents.as_deref());
    let mut tables = tables
        .ok_or("the publication has to be fridges, finecomb, rda, rap, reordering, cardinality or disaggregated")?;
    for table in &mut tables {
        table.sort();
        println!("{}: {}", table.name, table.summary());
    }
    if reduced {
        compare(&tables, &folder, &name)
    } else {
        tables.iter().try_for_each(|table| write(table, &folder, &name))
    }
}

/// Fails with the claims of the stored tables that no longer hold, and those that are in none: `command` stores them.
fn compare(tables: &[Reproduction], folder: &Path, command: &str) -> Result<(), Box<dyn Error>> {
    let mut broken = Vec::new();
    for table in tables {
        table.not_run().for_each(|claim| println!("NOT RUN: {}: {}", claim.id, claim.ours));
        for Claim { id, ours, .. } in table.not_judged() {
            println!("NOT RUN: {id} is judged on an idle machine only; here: {ours}");
        }
        let json = fs::read_to_string(folder.join(format!("{}.json", table.name)))?;
        broken.extend(table.broken(&json, command)?);
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("not confirmed: {}", broken.join("; ")).into()) }
}

/// Writes a table that `command` made, and its figures.
fn write(table: &Reproduction, folder: &Path, command: &str) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{}.json", table.name)), table.json()?)?;
    fs::write(folder.join(format!("{}.md", table.name)), table.page(command))?;
    for figure in &table.figures {
        fs::write(folder.join(figure.file), figure.svg()?)?;
    }
    Ok(())
}
