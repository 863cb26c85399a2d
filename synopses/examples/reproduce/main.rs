//! Reproduces the claims of publications with this library on synthetic traffic:
//! `cargo lab reproduce fridges|lda|finecomb|rda`.
//!
//! The first argument is the name of the publication, the second the folder for `NAME.md`, `NAME.json` and figures.
//! With `--reduced` it makes fewer runs and writes nothing, and fails if a claim no longer holds that holds in the
//! folder's `NAME.json`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use claim::Reproduction;
use scale::Scale;

mod analysis;
mod chain;
mod claim;
mod combination;
mod finecomb;
mod formula;
mod fridges;
mod interval;
mod lda;
mod measure;
mod occupancy;
mod plot;
mod properties;
mod rda;
mod scale;
mod streams;

mod sweep;
mod trace;
mod workload;

fn reproduction(name: &str, scale: Scale) -> Option<Reproduction> {
    Some(match name {
        "fridges" => fridges::reproduction(scale),
        "lda" => lda::reproduction(scale),
        "finecomb" => finecomb::reproduction(scale),
        "rda" => rda::reproduction(scale),
        _ => return None,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().and_then(|name| name.into_string().ok()).ok_or("name a publication")?;
    let folder = arguments.next().map(PathBuf::from).ok_or("name the folder of its table")?;
    let reduced = arguments.next().is_some_and(|argument| argument == "--reduced");
    let scale = if reduced { Scale::REDUCED } else { Scale::FULL };
    let mut found = reproduction(&name, scale).ok_or("the publication has to be fridges, lda, finecomb or rda")?;
    found.sort();
    println!("{}: {}", found.name, found.summary());
    if reduced {
        let broken = found.broken(&fs::read_to_string(folder.join(format!("{name}.json")))?)?;
        return if broken.is_empty() { Ok(()) } else { Err(format!("no longer holds: {}", broken.join("; ")).into()) };
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{name}.json")), found.json()?)?;
    fs::write(folder.join(format!("{name}.md")), found.page(&name))?;
    for figure in &found.figures {
        fs::write(folder.join(figure.file), figure.svg()?)?;
    }
    Ok(())
}
