//! The claims on RAP and Space-Saving.

mod light;
mod recall;

#[path = "../../tests/rap/streams.rs"]
mod streams;

use synopses::digest::Digest;
use synopses::rap::{Admission, HeavyHitters, Rap, Settings, SpaceSaving};

use crate::claim::Reproduction;
use crate::scale::Scale;

/// Runs per point, also in the reduced form: they take milliseconds.
const RUNS: u64 = 12;

fn rap(entries: u64, admission: Admission, seed: u64) -> Rap {
    Rap::new(Settings { entries: entries as usize, admission, seed }).expect("possible")
}

fn space_saving(entries: u64) -> SpaceSaving {
    SpaceSaving::new(entries as usize, 1).expect("possible")
}

/// Mean of some numbers.
fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn filled<T: HeavyHitters>(mut table: T, keys: &[Digest]) -> T {
    for key in keys {
        table.insert(*key);
    }
    table
}

/// All claims on RAP.
pub fn reproduction(scale: Scale) -> Reproduction {
    let (mut claims, light) = light::claims(scale);
    let (of_recall, recall) = recall::claims();
    claims.extend(of_recall);
    Reproduction {
        name: "rap",
        title: "RAP and Space-Saving",
        about: "The dissertation has a theorem and no runs: A1 is on its workload, the other rows are by our own bars, set before these runs with an \
                independent simulator. A stream has k heavy keys of frequency f and ε k f light ones that occur once; a table has k entries. Orders: \
                random; heavy keys in turn, each at once, or in ten blocks, with light keys at random places; light keys first, or last. Means are of 12 \
                runs. For A6 and A7 keys are Zipf's, 100,000 of them in 400,000 updates, and recall is the share of the 32 most frequent keys of the \
                stream that are among the 32 reported ones, mean of three seeds. The law of admission is the original 1/(c + 1), in A8 the dissertation's 1/c, too.",
        claims,
        figures: vec![light, recall],
    }
}
