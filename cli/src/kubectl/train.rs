//! `uview kubectl train`: rows of a service come from the agent of its node, and its model is trained here.
//!
//! `uview record` in the agent's container writes them to its standard output, which `kubectl exec` brings here. They
//! stay in memory: no file is left there or here, whenever this command ends. A container's runtime does not stop what
//! `kubectl exec` has started. So the recorder ends with its input, which this process holds open.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::Duration;

use evaluation::training::MIN_ROWS;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::transcript::{Bounds, Ending, Transcript, said};
use super::{Agent, KubectlArgs, exit_of, not_run, parse_or_help};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::train::{self, TrainOptions};
use crate::{input, output, replay};

/// Rows after which an LMAP arms itself: what is advised where fewer would come than can be trained on.
const USUAL_ROWS: u64 = 120;
/// The most seconds of --for-s: a day, in which 24 rows come at the longest interval, an hour.
const MOST_S: u64 = 86_400;
/// Bytes beyond --most-mib that a recording may have: those of its last block.
const LAST_BLOCK: u64 = 64 << 20;
/// Time after --for-s until the recording has to be here.
const LATENESS: Duration = Duration::from_mins(1);
/// Time between two pictures of the progress.
const DRAW_EVERY: Duration = Duration::from_secs(1);

const LONG_ABOUT: &str = "\
Record a service on its node, and train a model of it on this machine

  uview kubectl --node worker-3 train shop/payment --out payment.model

For ten minutes, or --for-s, `uview record` in the agent's container sends the service's rows, which stay in this machine's
memory. They are trained on as by `uview train`, so that the node gives neither processor time nor memory for that. Ctrl-C
ends both, and leaves nothing behind.

Then `uview kubectl --node worker-3 model set shop/payment payment.model` lets the agent judge by it. docs/training.md
explains the figures.";

/// Record a service on its node, and train a model of it on this machine
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "uview kubectl train", no_binary_name = true, long_about = LONG_ABOUT)]
struct NodeTrainArgs {
    /// The service, as `uview kubectl status` lists it
    service: String,
    /// File for the model, on this machine
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Seconds to record
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=MOST_S))]
    for_s: u64,
    /// Stop recording at this many MiB, and train on what there is
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1023))]
    most_mib: u64,
    /// Keep the recording, too, for `uview label`, `replay` and `train`
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Runtime directory of the host agent, in its container [default: that of the only agent there]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<String>,
    #[command(flatten)]
    options: TrainOptions,
}

/// What `uview lmap --json` prints of an LMAP.
#[derive(Deserialize)]
struct LmapView {
    interval_us: u64,
}

impl NodeTrainArgs {
    /// The arguments after `train`; `None` if their help was asked for and is printed.
    fn parse_or_help(words: &[String]) -> Result<Option<Self>, Failure> {
        parse_or_help(words, "train on a service of a node")
    }

    /// Refuses at once what would fail once the rows are there.
    fn check(&self, what: &str) -> Result<(), Failure> {
        self.options.check()?;
        if self.out.is_dir() {
            let because = format!("{} is a folder", self.out.display());
            return Err(Failure::to(what).because(because).advice("--out FILE"));
        }
        for file in [Some(&self.out), self.rows.as_ref()].into_iter().flatten() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() {
                let because = format!("there is no folder {}", folder.display());
                return Err(Failure::to(what).because(because).advice("make it first"));
            }
        }
        match &self.rows {
            Some(rows) if rows.exists() => {
                let because = format!("{} exists already", rows.display());
                Err(Failure::to(what).because(because).advice("--rows FILE with another name"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a time in which too few rows come, one every `interval_us` microseconds.
    fn check_length(&self, interval_us: u64, what: &str) -> Result<(), Failure> {
        let interval_us = interval_us.max(1);
        let rows = self.for_s * 1_000_000 / interval_us;
        if rows >= MIN_ROWS as u64 {
            return Ok(());
        }
        let usual = USUAL_ROWS.saturating_mul(interval_us).div_ceil(1_000_000);
        let (every, enough) = (duration_ms(interval_us / 1000), usual.min(MOST_S));
        let because = format!("a row comes every {every}, {rows} within {} s, and {MIN_ROWS} are needed", self.for_s);
        Err(Failure::to(what).because(because).advice(format!("--for-s {enough}")).exit_with(Exit::Usage))
    }

    /// The directory as arguments of a command in the container.
    fn in_runtime_dir(&self) -> impl Iterator<Item = &str> {
        self.runtime_dir.iter().flat_map(|dir| ["--runtime-dir", dir.as_str()])
    }
}

impl KubectlArgs {
    /// Records a service on its node, and trains a model, as the words after `train` say.
    pub(super) fn train(&self) -> Result<Exit, Failure> {
        let Some(args) = NodeTrainArgs::parse_or_help(self.command.get(1..).unwrap_or_default())? else {
            return Ok(Exit::Fine);
        };
        let what = format!("train on {}", args.service);
        args.check(&what)?;
        if self.all {
            let because = "a model is of the rows of one node: name it by --node";
            return Err(Failure::to(what).because(because).exit_with(Exit::Usage));
        }
        let agents = self.choose(self.agents(&what)?).map_err(|why| Failure::to(&what).because(why))?;
        let [agent] = agents.as_slice() else {
            let pods: Vec<&str> = agents.iter().map(|agent| agent.pod.as_str()).collect();
            let because = format!("several host agents run on that node: {}", pods.join(", "));
            return Err(Failure::to(what).because(because).advice("wait for the end of a rollout, and try again"));
        };
        args.check_length(self.interval_us(agent, &args, &what)?, &what)?;
        let (recording, ended) = self.record(agent, &args, &what)?;
        if let Some(path) = &args.rows {
            let written = File::create_new(path).and_then(|mut file| file.write_all(&recording));
            written.map_err(|error| Failure::to(format!("keep the rows in {}", path.display())).caused_by(&error))?;
        }
        let name = format!("the recording of {}", args.service);
        let recording = input::decode(&recording, &name, &what)?;
        // kubectl may end without an error where its connection was cut.
        let ended = if recording.complete && recording.damage.is_empty() { ended } else { Exit::Attention };
        let rows = input::of_recording(recording, &name, &what)?;
        let interval = replay::interval(None, rows.interval, &rows.table, &what)?;
        train::on_rows(&rows, interval, &args.options, &args.out, &what)?;
        output::print_stderr(&train::applied(&self.typed(agent), &args.service, &args.out));
        Ok(ended)
    }

    /// Time between two rows of the service in microseconds, as its agent says.
    fn interval_us(&self, agent: &Agent, args: &NodeTrainArgs, what: &str) -> Result<u64, Failure> {
        let mut exec = self.exec(agent, &[]);
        exec.args(["lmap", &args.service, "--json"]).args(args.in_runtime_dir());
        let Output { status, stdout, stderr } = exec.output().map_err(|error| not_run(what, &error))?;
        if !status.success() {
            return Err(refused(status, &said(&stderr), what));
        }
        let lmaps: Vec<LmapView> = serde_json::from_slice(&stdout)
            .map_err(|error| Failure::to(what).because(format!("the agent printed other text: {error}")))?;
        let lmap = lmaps.first().ok_or_else(|| Failure::to(what).because("its LMAP has just been deleted"))?;
        Ok(lmap.interval_us)
    }

    /// The recording of the service, and [`Exit::Attention`] if it ended early.
    fn record(&self, agent: &Agent, args: &NodeTrainArgs, what: &str) -> Result<(Vec<u8>, Exit), Failure> {
        let mut exec = self.exec(agent, &["--stdin"]);
        exec.args(["record", &args.service, "--out", "-", "--until-eof", "--for-s", &args.for_s.to_string()]);
        exec.args(["--most-mib", &args.most_mib.to_string()]).args(args.in_runtime_dir());
        let length = duration_ms(args.for_s * 1000);
        output::print_stderr(&format!("uview: {} is recorded on {} for {length}", args.service, agent.node));
        let bounds = Bounds {
            bytes: (args.most_mib << 20) + LAST_BLOCK,
            time: Duration::from_secs(args.for_s).saturating_add(LATENESS),
        };
        let progress = progress_bar(length);
        let transcript = Transcript::of(&mut exec, bounds, &progress).map_err(|error| not_run(what, &error))?;
        progress.finish_and_clear();
        let said = transcript.said();
        let ended = match transcript.ending {
            Ending::Exited(status) if matches!(exit_of(status), Exit::Fine | Exit::Attention) => exit_of(status),
            Ending::Exited(status) => return Err(refused(status, &said, what)),
            Ending::TooLong => {
                let because = format!("more than {} bytes came", bounds.bytes);
                return Err(Failure::to(what).because(because).advice("--for-s with fewer seconds"));
            }
            Ending::Hung => {
                output::print_stderr("uview: kubectl did not end in time: is the agent's pod gone?");
                Exit::Attention
            }
        };
        if !said.is_empty() {
            output::print_stderr(&said);
        }
        Ok((transcript.output, ended))
    }
}

/// Why a command in the agent's container failed, by what it said.
fn refused(status: ExitStatus, said: &str, what: &str) -> Failure {
    let because = format!("kubectl, or uview in the agent's container, says: {said}");
    let failure = Failure::to(what).because(because);
    match exit_of(status) {
        Exit::NoAgent => failure.exit_with(Exit::NoAgent),
        Exit::Usage => failure.advice("are agent and command of the same release? `uview --version`"),
        _ => failure,
    }
}

/// How long it has been recording of `length`, on stderr, shown only if that is a terminal.
fn progress_bar(length: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} of {msg}, {bytes} of rows");
    let bar = ProgressBar::new_spinner().with_message(length);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(DRAW_EVERY);
    bar
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn args(line: &str) -> Result<NodeTrainArgs, Failure> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Ok(NodeTrainArgs::parse_or_help(&words)?.unwrap())
    }

    #[test]
    fn the_grammar_is_that_of_uview_train_with_a_service_in_place_of_files() {
        NodeTrainArgs::command().debug_assert();

        let taken = args("shop/payment --out a.model --grid --ranks 1,2 --form relative --report r --json -").unwrap();

        assert_eq!((taken.service.as_str(), taken.for_s, taken.most_mib), ("shop/payment", 600, 64));
        for wrong in ["", "shop/payment", "a b --out a.model", "a --out a.model --columns b", "a --out b --for-s 0"] {
            let failure = args(wrong).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage, "{wrong}");
            assert!(failure.to_string().contains("uview kubectl train") || wrong.ends_with('0'), "{failure}");
        }
    }

    #[test]
    fn what_would_fail_once_the_rows_are_there_is_refused_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(folder.path().join("rows"), "").unwrap();
        let refused = |line: String| args(&line).unwrap().check("train").unwrap_err().to_string();

        assert!(refused(format!("a --out {}", folder.path().display())).contains("is a folder"));
        assert!(refused(format!("a --out {}", path("b/model"))).contains("there is no folder"));
        assert!(refused(format!("a --out {} --rows {}", path("model"), path("rows"))).contains("exists already"));
        assert!(refused(format!("a --out {} --ranks 0", path("model"))).contains("--ranks has 0"));
        assert_eq!(args(&format!("a --out {}", path("model"))).unwrap().check("train"), Ok(()));
        assert_eq!(args("a --out model").unwrap().check("train"), Ok(()));
    }

    #[test]
    fn a_time_with_too_few_rows_is_refused_with_one_that_is_long_enough() {
        let minute = args("a --out b --for-s 60").unwrap();

        assert_eq!(minute.check_length(5_000_000, "train"), Ok(()));
        let text = minute.check_length(10_000_000, "train").unwrap_err().to_string();
        assert!(text.contains("every 10.0 s, 6 within 60 s, and 12 are needed"), "{text}");
        assert!(text.contains("try: --for-s 1200"), "{text}");
        assert_eq!(minute.check_length(0, "train"), Ok(()));
        // 120 rows would take five days.
        let hourly = minute.check_length(3_600_000_000, "train").unwrap_err().to_string();
        assert!(hourly.contains("try: --for-s 86400"), "{hourly}");
        assert_eq!(args("a --out b --for-s 86400").unwrap().check_length(3_600_000_000, "train"), Ok(()));
    }
}
