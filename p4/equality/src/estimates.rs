//! What the library estimates of the frames of a vector, and what follows from a program's registers after them.
//!
//! Either comes about in its own way. With frames, the library's types take each packet. With registers, they are read
//! in the blocks and by the readouts that an agent reads a switch with; where it reads none (TS-PCSA, the fragment,
//! samples of reordering), the library's type is loaded from them.

mod delays;
mod distinct;
mod ends;
mod fragment;
mod heavy;
mod prefixes;

use packets::switch::readout::{CardinalityError, FridgeError, ReadoutError, ReorderingError};
use packets::switch::registers::{BlockError, SwitchRegisters};
use packets::switch::{Constants, ConstantsError};
use packets::{DelaysError, Packet};
use synopses::cardinality::EstimateError;
use synopses::digest::{DigestKey, DigestKind};
use synopses::disaggregated::{NoEstimate, TableError};
use synopses::encoding::DecodeError;
use synopses::finecomb::MergeError;
use thiserror::Error;

use crate::fragment::FragmentError;
use crate::frames::{Captured, Frames};
use crate::model::key;
use crate::programs::{Subject, Unequal};
use crate::registers::{Registers, short};

/// Figures by name, in an order that those of a program always have. Both are texts, with at most six digits behind the
/// point; what is not known is `unknown`.
pub type Estimates = Vec<(String, String)>;

/// Time between two polls, in nanoseconds of the agent's clock.
const SECOND: u64 = 1_000_000_000;
/// Heaviest flows and worst prefixes that are listed.
const MAX_LISTED: usize = 8;

/// Why nothing is estimated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EstimatesError {
    /// There are no constants of the program.
    #[error(transparent)]
    Unequal(#[from] Unequal),
    /// The library refuses the settings.
    #[error(transparent)]
    Constants(#[from] ConstantsError),
    /// The library refuses the settings of delays.
    #[error(transparent)]
    Delays(#[from] DelaysError),
    /// The library refuses path or settings of a fragment.
    #[error(transparent)]
    Fragment(#[from] FragmentError),
    /// The library refuses the fragments of a path.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The constants are not those of a fridge.
    #[error(transparent)]
    Fridge(#[from] FridgeError),
    /// The constants are not those of ST-HLL.
    #[error(transparent)]
    Cardinality(#[from] CardinalityError),
    /// The constants are not those of reordering.
    #[error(transparent)]
    Reordering(#[from] ReorderingError),
    /// A block that is not what the program has.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Registers that are not those of the constants.
    #[error(transparent)]
    Readout(#[from] ReadoutError),
    /// No library's type has such registers.
    #[error("the library's type is not loaded from the registers")]
    Decode(#[from] DecodeError),
    /// The sketch does not answer for this window.
    #[error(transparent)]
    Window(#[from] EstimateError),
    /// Both ends have different settings.
    #[error(transparent)]
    Ends(#[from] MergeError),
    /// No fragment knows a flow.
    #[error(transparent)]
    Flow(#[from] NoEstimate),
    /// Registers from which nothing can be made.
    #[error("the registers of {0} give nothing")]
    Nothing(&'static str),
    /// Nobody has said how.
    #[error("nothing is estimated of {0}: say how in p4/equality/src/estimates.rs")]
    Program(&'static str),
}

/// How the figures of one synopsis come about.
struct Estimator {
    of_frames: fn(&Case<'_>) -> Result<Estimates, EstimatesError>,
    of_registers: fn(&Case<'_>, &Registers) -> Result<Estimates, EstimatesError>,
}

const DELAYS: Estimator = Estimator { of_frames: delays::of_frames, of_registers: delays::of_registers };
const FRIDGES: Estimator = Estimator { of_frames: delays::several_of_frames, of_registers: delays::of_registers };
const ENDS: Estimator = Estimator { of_frames: ends::of_frames, of_registers: ends::of_registers };
const ST_HLL: Estimator = Estimator { of_frames: distinct::of_frames, of_registers: distinct::of_registers };
const TS_PCSA: Estimator =
    Estimator { of_frames: distinct::stamped_of_frames, of_registers: distinct::stamped_of_registers };
const PREFIXES: Estimator = Estimator { of_frames: prefixes::of_frames, of_registers: prefixes::of_registers };
const HEAVY: Estimator = Estimator { of_frames: heavy::of_frames, of_registers: heavy::of_registers };
const FRAGMENT: Estimator = Estimator { of_frames: fragment::of_frames, of_registers: fragment::of_registers };

/// Those of a program, by the folder of its sources.
fn estimators(source: &'static str) -> Result<&'static [Estimator], EstimatesError> {
    let all: &'static [Estimator] = match source {
        "fridge" => &[DELAYS],
        "fridges" => &[FRIDGES],
        "finecomb-sender" | "finecomb-receiver" | "lda" => &[ENDS],
        "st-hll" => &[ST_HLL],
        "ts-pcsa" => &[TS_PCSA],
        "reordering" | "reordering-samples" => &[PREFIXES],
        "precision" => &[HEAVY],
        "fragment" => &[FRAGMENT],
        "together" => &[DELAYS, ENDS, ST_HLL],
        _ => return Err(EstimatesError::Program(source)),
    };
    Ok(all)
}

/// What the library estimates of these frames, if it does what a program does.
///
/// # Errors
///
/// [`EstimatesError`] if the library refuses the settings.
pub fn of_frames(subject: &Subject, frames: &[Captured]) -> Result<Estimates, EstimatesError> {
    let case = Case::new(subject, frames)?;
    let all = estimators(subject.source)?.iter().map(|estimator| (estimator.of_frames)(&case));
    Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The same, as it follows from the program's registers after these frames. Of the frames it takes what registers do
/// not have: when they were read, what the other end of a path has, and which flows are asked for.
///
/// # Errors
///
/// [`EstimatesError`] if no program has such registers.
pub fn of_registers(
    subject: &Subject,
    registers: &Registers,
    frames: &[Captured],
) -> Result<Estimates, EstimatesError> {
    let case = Case::new(subject, frames)?;
    let all = estimators(subject.source)?.iter().map(|estimator| (estimator.of_registers)(&case, registers));
    Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
}

/// A program, and the frames that it got.
struct Case<'a> {
    constants: Constants,
    frames: &'a [Captured],
}

impl<'a> Case<'a> {
    fn new(subject: &Subject, frames: &'a [Captured]) -> Result<Self, Unequal> {
        Ok(Self { constants: (subject.constants)(subject.kind)?, frames })
    }

    /// The folder of the program's sources.
    fn source(&self) -> &'static str {
        self.constants.folder()
    }

    fn kind(&self) -> DigestKind {
        self.constants.kind()
    }

    fn key(&self) -> DigestKey {
        key(self.kind())
    }

    /// When the latest frame came.
    fn latest_ns(&self) -> u64 {
        self.frames.iter().map(|captured| captured.time_ns).max().unwrap_or_default()
    }

    /// Gives each packet that the program looks at, in their order.
    fn packets(&self, mut each: impl FnMut(&Packet<'_>)) {
        let mut frames = Frames::new(&self.constants);
        for captured in self.frames {
            if let Some(packet) = frames.count(captured) {
                each(&packet);
            }
        }
    }
}

/// Registers as an agent reads them of a switch.
struct KeptRegisters<'a>(&'a Registers);

impl SwitchRegisters for KeptRegisters<'_> {
    type Error = BlockError;

    fn array(&mut self, name: &'static str) -> Result<Vec<u64>, BlockError> {
        Ok(self.0.get(short(name)).cloned().unwrap_or_default())
    }
}

/// A number as text, which does not change where it is written and read.
fn figure(value: Option<f64>) -> String {
    let Some(value) = value else { return "unknown".to_owned() };
    format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn row(name: impl Into<String>, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::SUBJECTS;

    #[test]
    fn a_figure_is_a_text_without_digits_that_say_nothing() {
        let texts = [0.0, 100.0, 0.25, 1.0 / 3.0, -2.5].map(|value| figure(Some(value)));

        assert_eq!(texts, ["0", "100", "0.25", "0.333333", "-2.5"]);
        assert_eq!(figure(None), "unknown");
    }

    #[test]
    fn each_program_has_figures_of_no_frames_and_another_one_is_refused_by_its_name() {
        for subject in &SUBJECTS {
            let estimates = of_frames(subject, &[]).expect("settings of the tested program");
            assert!(!estimates.is_empty() || subject.source == "fragment", "{}", subject.name);
        }
        let other = Subject { source: "another", ..SUBJECTS[0] };
        let error = of_frames(&other, &[]).expect_err("nobody has said how").to_string();
        assert!(error.starts_with("nothing is estimated of another"), "{error}");
    }
}
