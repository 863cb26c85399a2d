//! Values of every kind that identify their series, so that a value attributed to another metric is detected anywhere.
//!
//! | kind | values |
//! | --- | --- |
//! | gauge | in \[uid · [`SHARE`], (uid + 1) · `SHARE`): a mean over replicas is, too |
//! | up-down counter | the same plus [`REPLICA`], so that a sum gives the number of replicas; negative if uid is even |
//! | counter | grows by a prime of its own: no sum or quotient of others' increments is a multiple of it |
//! | histogram | observes values in a narrow range of its own, which contains their mean |

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;

use transport::local::Region;
use wire::histogram::Scale;
use wire::layout::Slot;
use wire::metric::{Declaration, Group, Kind, Series, Statistic};
use wire::name::{Labels, MetricName};
use wire::registration::{PlacedSeries, Shards};

/// Series of service s are numbered from s · `SERVICE` on; its process metrics from [`PROCESS`] above that.
const SERVICE: u64 = 1000;
const PROCESS: u64 = 900;
/// Number of process metrics of each service.
pub const OF_PROCESS: u64 = 2;
/// Values of the gauge `uid` are `uid · SHARE` and up, below the next one's.
const SHARE: u64 = 1 << 20;
/// Amount that each replica adds to an up-down counter.
const REPLICA: u64 = 1 << 36;
/// Maximal number of replicas of one service at the same time.
const REPLICAS: u64 = 2;
/// Width of the range of one histogram's values.
const RANGE: u64 = 16;
/// Maximal steps of a service that count as one interval: one and a half times the longest interval of an LMAP.
const STEPS: u64 = 30;
/// Maximal divisor of a replica's increment: the number of shortest intervals between two fetches in the longest run.
const INTERVALS: u32 = 1500;

/// Prime numbers, one for each counter.
static PRIMES: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let is_prime = |number: &u64| (3..).step_by(2).take_while(|d| d * d <= *number).all(|d| !number.is_multiple_of(d));
    (1_000_001..).step_by(2).filter(is_prime).take(4 * SERVICE as usize).collect()
});

/// The number of series `index` of service `service`.
pub fn uid_of_service(service: u64, index: u64) -> u64 {
    service * SERVICE + index + 1
}

/// The number of process metric `index` of `service`.
pub fn uid_of_process(service: u64, index: u64) -> u64 {
    service * SERVICE + PROCESS + index
}

/// The service of series `uid`.
pub fn service_of(uid: u64) -> u64 {
    uid / SERVICE
}

/// Whether `uid` is a process metric.
pub fn is_of_process(uid: u64) -> bool {
    uid % SERVICE >= PROCESS
}

/// The kind of series `uid`.
pub fn kind_of(uid: u64) -> Kind {
    let index = uid % SERVICE;
    match if is_of_process(uid) { 1 + index % OF_PROCESS } else { (index - 1) % 4 } {
        0 => Kind::Gauge,
        1 => Kind::Counter,
        2 => Kind::UpDownCounter,
        // A bucket per power of two up to 256: eleven slots.
        _ => Kind::Histogram(Scale::new(0, 8).expect("the scale is one")),
    }
}

/// The metric `uid`, with the number in its name.
pub fn metric(uid: u64) -> MetricName {
    MetricName::new(&format!("m{uid}")).expect("a letter and digits are a name")
}

/// The number in a name of [`metric`], or of a column of an LMAP over several services: its service's name comes first,
/// and has to be the right one.
pub fn number(name: &MetricName) -> u64 {
    numbered(name.as_str()).0
}

/// The number in a name or title, and what comes after it.
fn numbered(title: &str) -> (u64, &str) {
    let (service, name) = title.split_once('/').map_or((None, title), |(service, name)| (Some(service), name));
    let name = name.strip_prefix('m').expect("metrics are called by number");
    let (number, suffix) = name.find('.').map_or((name, ""), |dot| name.split_at(dot));
    let uid = number.parse().expect("metrics are called by number");
    let is_right = |name: &str| name == crate::service::name(service_of(uid)).as_str();
    assert!(service.is_none_or(is_right), "{title} is another service's");
    (uid, suffix)
}

/// The number in a column's title, and the column's statistic.
pub fn column(title: &str) -> (u64, Statistic) {
    let (uid, suffix) = numbered(title);
    let statistic = kind_of(uid).statistics().iter().find(|statistic| statistic.suffix() == suffix);
    (uid, *statistic.expect("a column is one of its kind's"))
}

/// Series `uid`, placed at `first`.
pub fn placed(uid: u64, first: Slot) -> PlacedSeries {
    let series = Series {
        name: metric(uid),
        labels: Labels::default(),
        kind: kind_of(uid),
        unit: None,
        group: Group::Service,
        parts_per_unit: NonZeroU64::MIN,
    };
    PlacedSeries { series, region: 0, first, shards: Shards::ONE, declared: Declaration::NONE }
}

/// The least value of histogram `uid`. Each service has three histograms.
fn range(uid: u64) -> u64 {
    (1 + 3 * service_of(uid) + (uid % SERVICE - 1) / 4) * RANGE
}

/// Initialises the slots of a new series.
pub fn begin(region: &Region, uid: u64, first: Slot) {
    for slot in first.0..first.0 + kind_of(uid).slots() {
        region.slot(Slot(slot)).expect("the slots in use lie inside").store(0, Relaxed);
    }
    if !matches!(kind_of(uid), Kind::Counter | Kind::Histogram(_)) {
        write(region, uid, first, 0);
    }
}

/// Writes into series `uid`, for the `round`th time.
pub fn write(region: &Region, uid: u64, first: Slot, round: u64) {
    let slot = |at: u32| region.slot(Slot(first.0 + at)).expect("the slots in use lie inside");
    let small = (round + uid) % 1000;
    match kind_of(uid) {
        Kind::Gauge => slot(0).store(((uid * SHARE + small) as f64).to_bits(), Relaxed),
        Kind::Counter => _ = slot(0).fetch_add(PRIMES[uid as usize], Relaxed),
        Kind::UpDownCounter => {
            let value = (REPLICA + uid * SHARE + small).cast_signed();
            slot(0).store(if below_zero(uid) { -value } else { value }.cast_unsigned(), Relaxed);
        }
        Kind::Histogram(scale) => {
            for more in 0..=uid % 3 {
                let value = range(uid) + (small + more) % RANGE;
                slot(scale.bucket(value)).fetch_add(1, Relaxed);
                slot(scale.sum_slot()).fetch_add(value, Relaxed);
            }
        }
    }
}

/// Whether `words` can be the slots of series `uid`. Initial values fit several series, written values fit only one.
pub fn can_be(uid: u64, words: &[u64]) -> bool {
    match kind_of(uid) {
        Kind::Gauge => whose(f64::from_bits(words[0])) == uid,
        Kind::Counter => words[0].is_multiple_of(PRIMES[uid as usize]),
        Kind::UpDownCounter => {
            let value = words[0].cast_signed();
            let size = if below_zero(uid) { value.wrapping_neg() } else { value };
            whose(size as f64 - REPLICA as f64) == uid
        }
        Kind::Histogram(_) => {
            let (sum, counts) = words.split_last().expect("a histogram has slots");
            let count: u128 = counts.iter().copied().map(u128::from).sum();
            let (least, most) = (u128::from(range(uid)), u128::from(range(uid) + RANGE - 1));
            (count * least..=count * most).contains(&u128::from(*sum))
        }
    }
}

fn below_zero(uid: u64) -> bool {
    uid.is_multiple_of(2)
}

/// Whether `value` can be a value of the column `title`: of its metric, and of no other.
pub fn is_of(title: &str, value: f64) -> bool {
    let (uid, statistic) = column(title);
    match (kind_of(uid), statistic) {
        (Kind::Counter, _) => is_increment(uid, value),
        _ => is_near(title, value),
    }
}

/// The same for an approximate value, as in reasons: an increment may be any value up to the largest possible one.
pub fn is_near(title: &str, value: f64) -> bool {
    let (uid, statistic) = column(title);
    let most = (REPLICAS * STEPS) as f64;
    match (kind_of(uid), statistic) {
        (Kind::Gauge, _) => whose(value) == uid,
        (Kind::UpDownCounter, _) => {
            let size = if below_zero(uid) { -value } else { value };
            let replicas = (size / REPLICA as f64).floor();
            (1.0..=REPLICAS as f64).contains(&replicas) && whose(size / replicas - REPLICA as f64) == uid
        }
        (Kind::Counter, _) => (0.0..=most * PRIMES[uid as usize] as f64).contains(&value),
        (Kind::Histogram(_), Statistic::Count) => (0.0..=most * (1 + uid % 3) as f64).contains(&value),
        (Kind::Histogram(scale), Statistic::P99) => {
            let (least, most) = (scale.bucket(range(uid)), scale.bucket(range(uid) + RANGE - 1) + 1);
            (scale.lower_bound(least) as f64..=scale.lower_bound(most) as f64).contains(&value)
        }
        (Kind::Histogram(_), _) => (range(uid) as f64..=(range(uid) + RANGE - 1) as f64).contains(&value),
    }
}

fn whose(value: f64) -> u64 {
    (value / SHARE as f64) as u64
}

/// Whether `value` is a sum over up to two replicas of a whole number of steps of counter `uid`, each divided by a
/// number of intervals.
fn is_increment(uid: u64, value: f64) -> bool {
    let steps = value / PRIMES[uid as usize] as f64;
    // A whole number up to rounding. Steps of another counter differ from one by at least a millionth for their own
    // divisor. For other divisors they match by chance: all divisors together accept one value in fifty.
    let is_whole = |by: u32| {
        let steps = steps * f64::from(by);
        (steps - steps.round()).abs() <= 4e-15 * steps.max(1.0)
    };
    let mut pairs = (1..=INTERVALS).flat_map(|one| (1..=one).map(move |other| one * other));
    (0.0..=(REPLICAS * STEPS) as f64).contains(&steps) && ((1..=INTERVALS).any(is_whole) || pairs.any(is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot(3);

    /// The words of series `uid` after so many rounds.
    fn words(uid: u64, rounds: u64) -> Vec<u64> {
        let region = Region::new(wire::layout::RegionSize::ONE_PAGE);
        begin(&region, uid, SLOT);
        (0..rounds).for_each(|round| write(&region, uid, SLOT, round));
        (0..kind_of(uid).slots()).map(|at| region.slot(Slot(SLOT.0 + at)).unwrap().load(Relaxed)).collect()
    }

    #[test]
    fn words_that_were_written_can_be_those_of_their_own_series_and_of_no_other() {
        let all: Vec<_> = (0..4).flat_map(|service| (0..12).map(move |index| uid_of_service(service, index))).collect();
        for &uid in &all {
            let own = words(uid, 700);
            let same_length = all.iter().filter(|other| kind_of(**other).slots() == kind_of(uid).slots());
            let can_be: Vec<_> = same_length.copied().filter(|other| can_be(*other, &own)).collect();
            assert_eq!(can_be, [uid], "{:?}", kind_of(uid));
        }
    }

    #[test]
    fn a_value_is_taken_for_its_own_metrics_and_for_no_others() {
        let all: Vec<_> = (0..4).flat_map(|service| (0..12).map(move |index| uid_of_service(service, index))).collect();
        let of = |kind: fn(&Kind) -> bool| all.iter().copied().filter(move |uid| kind(&kind_of(*uid)));

        for uid in of(|kind| *kind == Kind::Gauge) {
            let value = f64::from_bits(words(uid, 700)[0]);
            assert_eq!(of(|kind| *kind == Kind::Gauge).filter(|uid| is_of(&format!("m{uid}"), value)).count(), 1);
        }
        for uid in of(|kind| *kind == Kind::UpDownCounter) {
            let value = words(uid, 700)[0].cast_signed() as f64;
            for value in [value, 2.0 * value] {
                let of = of(|kind| *kind == Kind::UpDownCounter).filter(|uid| is_of(&format!("m{uid}"), value));
                assert_eq!(of.collect::<Vec<_>>(), [uid]);
            }
            assert!(!is_of(&format!("m{uid}"), 3.0 * value), "there are no three replicas");
        }
        for uid in of(|kind| *kind == Kind::Counter) {
            let value = words(uid, 20)[0] as f64 / 7.0 + words(uid, 9)[0] as f64 / 11.0;
            let of = of(|kind| *kind == Kind::Counter).filter(|uid| is_of(&format!("m{uid}"), value));
            assert_eq!(of.collect::<Vec<_>>(), [uid]);
            assert!(!is_of(&format!("m{uid}"), -value), "increments are never below 0");
        }
        for uid in of(|kind| matches!(kind, Kind::Histogram(_))) {
            let words = words(uid, 700);
            let count: u64 = words[..words.len() - 1].iter().sum();
            let mean = words[words.len() - 1] as f64 / count as f64;
            let of = of(|kind| matches!(kind, Kind::Histogram(_))).filter(|uid| is_of(&format!("m{uid}.mean"), mean));
            assert_eq!(of.collect::<Vec<_>>(), [uid]);
        }
    }
}
