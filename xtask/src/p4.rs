//! `cargo xtask p4`: compiles the P4 programs, and runs them in the reference switch with the frames of the golden
//! vectors and random ones. Registers and frames have to be those of the library.

mod runtime;
mod switch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use support::workspace;

/// The compiler and the switch.
const COMPILER: &str = "p4c-bm2-ss";
const SWITCH: &str = "simple_switch";
/// Replaces variables by what they were computed from, over and over: the output would have hundreds of megabytes.
const WITHOUT: &str = "P4::LocalCopyPropagation";

/// A kind of digests: what follows the name of a program that has them, and how the compiler is told.
#[derive(Clone, Copy, Debug)]
struct Kind {
    suffix: &'static str,
    macros: &'static [&'static str],
}

/// Each program is compiled with either.
const KINDS: [Kind; 2] =
    [Kind { suffix: "", macros: &[] }, Kind { suffix: "-hardware", macros: &["-DHARDWARE_DIGEST"] }];

/// What is done beside the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Keep what was compiled.
    pub write: bool,
    /// Number of random frames.
    pub frames: usize,
    /// Seed of the random frames.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { write: false, frames: 10_000, seed: 1 }
    }
}

/// Why programs cannot be compiled or run here.
pub fn missing() -> Option<String> {
    let missing: Vec<_> = [COMPILER, SWITCH].into_iter().filter(|name| version(name).is_err()).collect();
    (!missing.is_empty()).then(|| format!("{} not on the PATH; build it from its repository", missing.join(", ")))
}

/// Compiles each program and compares it with the one that is kept, then runs it.
///
/// # Errors
///
/// A program that does not compile, differs from the one that is kept, or whose registers or frames differ from the
/// library's.
pub fn run(plan: &Plan) -> Result<()> {
    if let Some(why) = missing() {
        println!("NOT RUN: P4 programs in the reference switch: {why}");
        return Ok(());
    }
    let scratch = workspace().join("target/p4");
    let programs = programs()?;
    for (source, kind) in programs.iter().flat_map(|source| KINDS.map(|kind| (source, kind))) {
        let program = format!("{source}{}", kind.suffix);
        compile(source, &kind, &scratch, plan.write)?;
        let staged = scratch.join(&program);
        let (frames, seed) = (plan.frames.to_string(), plan.seed.to_string());
        let into = staged.display().to_string();
        equality(&["stage", &program, "--frames", &frames, "--seed", &seed, "--into", &into])?;
        let json = workspace().join("p4").join(source).join(&program).with_extension("json");
        let mut folders: Vec<PathBuf> =
            fs::read_dir(&staged)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
        folders.sort();
        for folder in folders {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let frames = switch::check(&json, &folder).with_context(|| format!("{program}, {name}"))?;
            println!("{program}, {name}: registers are equal after {frames} frames, which left as they came");
        }
    }
    Ok(())
}

/// Names of the programs' sources: folders with a compiled one, or with a source of the same name.
fn programs() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(workspace().join("p4"))? {
        let folder = entry?.path();
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if folder.join(&name).with_extension("p4").is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn compile(source: &str, kind: &Kind, scratch: &Path, write: bool) -> Result<()> {
    fs::create_dir_all(scratch)?;
    let program = format!("{source}{}", kind.suffix);
    let compiled = scratch.join(&program).with_extension("json");
    let (folder, file) = (workspace().join("p4").join(source), format!("{source}.p4"));
    // Relative paths: the output names them.
    let status = Command::new(COMPILER)
        .current_dir(&folder)
        .args([&file, "--excludeMidendPasses", WITHOUT])
        .args(kind.macros)
        .arg("-o")
        .arg(&compiled)
        .status()?;
    ensure!(status.success(), "{COMPILER} refuses {program}");
    let kept = folder.join(&program);
    let before = fs::read(kept.with_extension("json")).unwrap_or_default();
    let lock = fs::read(kept.with_extension("lock")).unwrap_or_default();
    let output = compiled.display().to_string();
    equality(&["seal", &program, &output, "--compiler", &version(COMPILER)?])?;
    let same = before == fs::read(kept.with_extension("json"))?;
    if !write {
        fs::write(kept.with_extension("json"), before)?;
        fs::write(kept.with_extension("lock"), lock)?;
        ensure!(same, "{program}.json is not what {COMPILER} makes of {file}; `cargo xtask p4 --write` keeps it");
    }
    println!("{program}: compiled{}", if same { ", as it was" } else { ", and kept" });
    Ok(())
}

/// The version that a tool prints, wherever it does.
fn version(tool: &str) -> Result<String> {
    let output = Command::new(tool).arg("--version").output()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(lines.join(", "))
}

fn equality(arguments: &[&str]) -> Result<()> {
    let cargo = Command::new("cargo")
        .current_dir(workspace())
        .args(["run", "--quiet", "-p", "equality", "--"])
        .args(arguments)
        .status()?;
    ensure!(cargo.success(), "equality {} failed", arguments.join(" "));
    Ok(())
}
