//! READs through uview's stack compared with other programs in the same guest. The processor is emulated: only the
//! ratios are meaningful, not the times.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::guest::{Boot, Image, exists, script, succeed};
use super::layout::{has_header, install};
use crate::unavailable::Unavailable;
use support::programs::Programs;

/// Number of measured pairs, whose median is the ratio.
const PAIRS: usize = 31;
/// Packages for compiling the minimal loop.
const NEEDED: [&str; 3] = ["libibverbs-dev", "gcc", "libc6-dev"];

/// The programs with which READs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One READ of a page, with `ib_read_lat` of perftest.
    ReadLat,
    /// 64 linked READs of a page each, with tests/rdma/vm/read-loop.c.
    Loop,
}

/// Pairs of times in nanoseconds, ours and the peer's.
///
/// # Errors
///
/// [`Unavailable`] if nothing can be measured here. Or the guest or a program in it failed.
pub fn measure(peer: Peer) -> Result<Vec<(f64, f64)>> {
    let image = Image::find()?;
    let tool = image.take(Programs::build()?.path("lab")?, "lab")?;
    let mut files = vec![tool, script("agents/common.sh"), script("agents/ratio.sh")];
    if peer == Peer::Loop {
        match read_loop(&image)? {
            Some(program) => files.push(program),
            None => {
                return Err(Unavailable(format!("the peer cannot be compiled: install {}", NEEDED.join(", "))).into());
            }
        }
    }
    let what = if peer == Peer::Loop { "linked" } else { "one" };
    let command = format!("PAIRS={PAIRS} WHAT={what} sh ./ratio.sh");
    let output = image.run(&Boot { name: "ratio", command: &command, files: &files, limit_s: 500, joined: None })?;
    let pairs = pairs(&output)?;
    ensure!(pairs.len() == PAIRS, "{} of {PAIRS} pairs were measured", pairs.len());
    Ok(pairs)
}

/// The minimal loop, if it can be compiled.
fn read_loop(image: &Image) -> Result<Option<PathBuf>> {
    if !has_header() || !exists("cc") {
        install(&NEEDED);
    }
    if !has_header() || !exists("cc") {
        return Ok(None);
    }
    let program = image.folder().join("read-loop");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&program).arg(script("read-loop.c")).arg("-libverbs");
    succeed(&mut compile)?;
    Ok(Some(program))
}

/// The lines `PAIR OURS PEER` of the guest's output.
fn pairs(output: &str) -> Result<Vec<(f64, f64)>> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("PAIR "));
    lines
        .map(|line| {
            let (ours, peer) = line.split_once(' ').with_context(|| format!("no pair: {line:?}"))?;
            let pair = (ours.trim().parse()?, peer.trim().parse()?);
            ensure!(pair.0 > 0.0 && pair.1 > 0.0, "no times: {line:?}");
            Ok(pair)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_between_other_lines_and_half_ones_are_refused() {
        assert_eq!(pairs("[3 s] x\nPAIR 120 100\nPAIR 130 110\n").unwrap(), [(120.0, 100.0), (130.0, 110.0)]);
        assert!(pairs("PAIR 120").is_err());
        assert!(pairs("PAIR 120 0").is_err());
        assert!(pairs("PAIR a b").is_err());
    }
}
