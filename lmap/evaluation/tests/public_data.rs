//! How well the default does on labelled data, with one configuration for all of it. The data is not part of the
//! project: `UVIEW_DATA` names a folder with the sets `online-boutique`, `smd` and `redis`. Without it nothing is
//! checked here, and that is said.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use evaluation::candidate::Kind;
use evaluation::data_set::{self, DataSet};
use evaluation::protocol::{self, Figures, Outcome, Summary};

/// Differences of figures below this are noise.
const NOISE: f64 = 0.03;

/// A set, and what was found with the default when it was chosen, by an implementation in another language.
struct PublishedFigures {
    set: &'static str,
    best_f1: f64,
    fpr_at_gamma: f64,
    auc_pr: f64,
}

const PUBLISHED: [PublishedFigures; 3] = [
    PublishedFigures { set: "online-boutique", best_f1: 0.678, fpr_at_gamma: 0.053, auc_pr: 0.595 },
    PublishedFigures { set: "smd", best_f1: 0.693, fpr_at_gamma: 0.005, auc_pr: 0.664 },
    PublishedFigures { set: "redis", best_f1: 0.895, fpr_at_gamma: 0.007, auc_pr: 0.942 },
];

/// Per set, in the order of [`PUBLISHED`], what each of [`Kind::ALL`] reached.
type Results = Vec<Vec<Summary>>;

/// The results, computed once; `None` and a loud message if there is no data.
#[expect(clippy::disallowed_methods, reason = "where the data is can only be said by the environment")]
fn results(test: &str) -> Option<&'static Results> {
    static RESULTS: OnceLock<Results> = OnceLock::new();
    let Some(folder) = std::env::var_os("UVIEW_DATA") else {
        // Not eprintln!, which nobody sees when a test passes.
        let message = "UVIEW_DATA has to name a folder with online-boutique, smd and redis";
        std::io::stderr().write_all(format!("NOT RUN: {test}: {message}\n").as_bytes()).unwrap();
        return None;
    };
    Some(RESULTS.get_or_init(|| {
        let open = |set: &PublishedFigures| data_set::open(&Path::new(&folder).join(set.set)).unwrap().remove(0);
        PUBLISHED.iter().map(open).map(|set| evaluate(&set)).collect()
    }))
}

fn evaluate(set: &DataSet) -> Vec<Summary> {
    let unit = |files: &data_set::UnitFiles| {
        let unit = files.load().unwrap();
        Kind::ALL.map(|kind| Outcome::of(&unit, &protocol::run(kind.train(&unit).unwrap().as_mut(), &unit)))
    };
    let outcomes: Vec<[Outcome; 5]> = thread::scope(|scope| {
        let units: Vec<_> = set.units.iter().map(|files| scope.spawn(move || unit(files))).collect();
        units.into_iter().map(|unit| unit.join().unwrap()).collect()
    });
    let of = |place: usize| Summary::of(&outcomes.iter().map(|unit| unit[place]).collect::<Vec<_>>()).unwrap();
    (0..Kind::ALL.len()).map(of).collect()
}

fn reached(results: &[Summary], kind: Kind) -> Figures {
    results[Kind::ALL.iter().position(|other| *other == kind).unwrap()].figures
}

#[test]
fn the_default_does_as_well_as_when_it_was_chosen() {
    let Some(results) = results("the_default_does_as_well_as_when_it_was_chosen") else { return };

    for (published, results) in PUBLISHED.iter().zip(results) {
        let ours = reached(results, Kind::Lmap);
        let set = published.set;
        assert!(ours.auc_pr >= published.auc_pr - NOISE, "{set}: AUC-PR {} of {}", ours.auc_pr, published.auc_pr);
        assert!(ours.best_f1 >= published.best_f1 - NOISE, "{set}: best F1 {} of {}", ours.best_f1, published.best_f1);
        let (found, expected) = (ours.fpr_at_gamma, published.fpr_at_gamma);
        assert!(found <= expected + NOISE, "{set}: FPR at γ {found} of {expected}");
    }
}

#[test]
fn on_no_set_is_the_default_behind_a_simpler_detector() {
    let Some(results) = results("on_no_set_is_the_default_behind_a_simpler_detector") else { return };

    for (published, results) in PUBLISHED.iter().zip(results) {
        let ours = reached(results, Kind::Lmap);
        for kind in [Kind::Pca, Kind::MaxZ, Kind::Rcf] {
            let other = reached(results, kind);
            let behind = |what: &str, ours: f64, other: f64| {
                assert!(ours >= other - NOISE, "{}: {what} {ours}, {} has {other}", published.set, kind.name());
            };
            behind("AUC-PR", ours.auc_pr, other.auc_pr);
            behind("best F1", ours.best_f1, other.best_f1);
            behind("F1 at γ", ours.f1_at_gamma, other.f1_at_gamma);
            behind("VUS-PR", ours.vus_pr, other.vus_pr);
        }
    }
}

#[test]
fn the_metrics_named_are_the_ones_that_experts_hold_responsible() {
    let Some(results) = results("the_metrics_named_are_the_ones_that_experts_hold_responsible") else { return };

    let smd = PUBLISHED.iter().position(|published| published.set == "smd").unwrap();
    let ours = &results[smd][0];
    assert!(ours.hit1.unwrap() >= 0.85, "the first named is right in {:?}", ours.hit1);
    assert!(ours.hit3.unwrap() >= 0.91, "any of the first three is right in {:?}", ours.hit3);
}
