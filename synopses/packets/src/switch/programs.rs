//! The constants of each program.

use core::fmt::Debug;

use synopses::cardinality::{Hash, Rounding, Settings as Common, StHll, StHllSettings, TsPcsa, TsPcsaSettings};
use synopses::digest::{DigestKey, DigestKind};
use synopses::disaggregated::{Fragment, Path, Settings as FragmentSettings};
use synopses::finecomb::{FineComb, Sampling, Settings as FineCombSettings};
use synopses::fridge::{
    Coin, Counter, Duplicates, Fridge, Fridges, FridgesSettings, Settings as FridgeSettings, Stamp,
};
use synopses::rap::{Admission, EpochPrecision, EpochSettings};
use synopses::reordering::{Definition, Reordering, Reports, Settings as ReorderingSettings, Split};

use super::{Constants, ConstantsError, MAX_ENTRIES, Named};

/// The most fridges of a program that has several.
pub(super) const MAX_FRIDGES: usize = 4;
/// The most fragments of a path beside the switch's own.
const MAX_OTHERS: usize = 3;

fn fits(what: &'static str, found: usize) -> Result<u64, ConstantsError> {
    if found <= MAX_ENTRIES { Ok(found as u64) } else { Err(ConstantsError::Entries { what, found }) }
}

fn shift(what: &'static str, found: u64) -> Result<u32, ConstantsError> {
    if found.is_power_of_two() {
        return Ok(found.trailing_zeros());
    }
    let near = found.checked_ilog2().map_or(1, |bits| 1 << bits);
    Err(ConstantsError::Power { what, found, near })
}

fn refused(what: &'static str, found: &dyn Debug, possible: &'static str) -> ConstantsError {
    ConstantsError::Setting { what, found: format!("{found:?}"), possible }
}

fn only(what: &'static str, is: bool, found: &dyn Debug, possible: &'static str) -> Result<(), ConstantsError> {
    if is { Ok(()) } else { Err(refused(what, found, possible)) }
}

/// A number of entries among which a digest has its place: for hardware a power of two.
fn places(what: &'static str, found: u64, key: &DigestKey) -> Result<u64, ConstantsError> {
    if key.kind() == DigestKind::Hardware {
        shift(what, found)?;
    }
    Ok(found)
}

/// Refuses a seed by which values are derived in another way than the key's digests are computed.
fn of_key(seed: u64, key: &DigestKey) -> Result<(), ConstantsError> {
    let (found, possible) = (DigestKind::of_seed(seed), key.kind());
    let possible_name = match possible {
        DigestKind::Products => "Products, as its key",
        DigestKind::Hardware => "Hardware, as its key",
    };
    only("digests of the seed", found == possible, &found, possible_name)
}

/// Those of `p4/fridge`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn fridge(settings: FridgeSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let of = Fridge::new(settings)?.constants();
    of_key(settings.seed, key)?;
    let slots = fits("slots of a fridge", settings.slots)?;
    shift("slots of a fridge", slots)?;
    only("the counter of insertions", settings.counter == Counter::Accepted, &settings.counter, "Accepted")?;
    let duplicates = settings.duplicates;
    only("repeated requests", duplicates == Duplicates::Overwrite, &duplicates, "Overwrite")?;
    only("the coin", settings.coin == Coin::HashSplit, &settings.coin, "HashSplit")?;
    let mut constants = Constants::for_key("fridge", key);
    constants.text_macro("TICK_SHIFT", settings.tick_shift);
    constants.number("SLOTS", 32, slots);
    constants.number("THRESHOLD", 33, of.threshold);
    constants.key("MIXER", of.mixer);
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/fridges`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn fridges(settings: &FridgesSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let of = Fridges::new(settings.clone())?.constants();
    of_key(settings.seed, key)?;
    let count = settings.fridges.len();
    only("fridges", (2..=MAX_FRIDGES).contains(&count), &count, "2 to 4")?;
    only("the stamp of a request", settings.stamp == Stamp::Arrivals, &settings.stamp, "Arrivals")?;
    let duplicates = settings.duplicates;
    only("repeated requests", duplicates == Duplicates::Overwrite, &duplicates, "Overwrite")?;
    let slots = fits("slots of all fridges", settings.fridges.iter().map(|spec| spec.slots).sum())?;
    let mut constants = Constants::for_key("fridges", key);
    constants.text_macro("TICK_SHIFT", settings.tick_shift);
    constants.text_macro("FRIDGES", count as u32);
    constants.number("SLOTS", 32, slots);
    let mut base = 0;
    for (at, (spec, below)) in settings.fridges.iter().zip(of.below.iter()).enumerate() {
        let slots = places("slots of a fridge", spec.slots as u64, key)?;
        constants.number(&format!("SLOTS_{at}"), 32, slots);
        constants.number(&format!("BASE_{at}"), 32, base);
        constants.number(&format!("BELOW_{at}"), 33, *below);
        base += slots;
    }
    constants.key("MIXER", of.mixer);
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/finecomb-sender`, or, with a stash, of `p4/finecomb-receiver`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn finecomb(settings: &FineCombSettings, receives: bool, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let of = FineComb::new(settings)?.constants();
    let ([bank], [(_, more)]) = (&*settings.banks, &*of.samples) else {
        return Err(refused("banks", &settings.banks.len(), "1"));
    };
    of_key(settings.seed, key)?;
    let buckets = places("buckets", fits("buckets of two intervals", 2 * settings.buckets)? / 2, key)?;
    let mut constants = Constants::for_key(if receives { "finecomb-receiver" } else { "finecomb-sender" }, key);
    constants.number("BUCKETS", 32, buckets);
    if receives {
        let stash = fits("stashed packets of four ends", 4 * bank.stash)? / 4;
        shift("stashed packets", stash)?;
        constants.number("STASHED_MOST", 32, stash);
    }
    constants.number("SAMPLED", 64, *more);
    for (name, mixer) in ["SAMPLE", "ROW", "VALUE"].into_iter().zip(of.mixers) {
        constants.key(name, mixer);
    }
    constants.secret(key, Named::Packets);
    Ok(constants)
}

/// Those of `p4/lda`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn lda(settings: &FineCombSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let of = FineComb::new(settings)?.constants();
    let is_disjoint = settings.sampling == Sampling::Disjoint || settings.banks.len() == 1;
    only("banks", is_disjoint, &settings.sampling, "Disjoint")?;
    let (first, second) = match *of.samples {
        [one] => (one, None),
        [one, two] => (one, Some(two)),
        _ => return Err(refused("banks", &settings.banks.len(), "1 or 2")),
    };
    of_key(settings.seed, key)?;
    let buckets = fits("buckets of two banks and intervals", 4 * settings.buckets)? / 4;
    let mut constants = Constants::for_key("lda", key);
    constants.number("BUCKETS", 32, places("buckets", buckets, key)?);
    // Without a second bank the first one's range comes again, which is never asked.
    for (at, (from, more)) in [first, second.unwrap_or(first)].into_iter().enumerate() {
        constants.number(&format!("FIRST_{at}"), 64, from);
        constants.number(&format!("MORE_{at}"), 64, more);
    }
    let [sample, row, _] = of.mixers;
    constants.key("SAMPLE", sample);
    constants.key("ROW", row);
    constants.secret(key, Named::Packets);
    Ok(constants)
}

/// Bits of the registers' number, and of the slot in nanoseconds.
fn bits(common: &Common, slot_ns: u64, key: &DigestKey) -> Result<[u32; 2], ConstantsError> {
    match common.hash {
        Hash::Seeded(seed) => of_key(seed, key)?,
        Hash::Ready32 => return Err(refused("the hash", &common.hash, "Seeded")),
    }
    let slot = shift("nanoseconds of a slot", slot_ns)?;
    only("nanoseconds of a slot", slot <= 32, &slot_ns, "2^32 at most")?;
    Ok([shift("registers", common.registers as u64)?, slot])
}

/// Those of `p4/st-hll`. The slot is 2W/m, and slot 0 begins at time 0 of the packets' clock.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn st_hll(settings: StHllSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let synopsis = StHll::new(settings)?;
    let common = settings.common;
    // What is below 6 bits leaves no room for laps of 32 bits of slots.
    only("registers", common.registers >= 64, &common.registers, "64 at least")?;
    let times = [settings.origin_ns, common.start_ns];
    only("origin and start", times == [0, 0], &times, "both at 0 of the packets' clock")?;
    let [registers, slot] = bits(&common, (2 * common.window_ns).div_ceil(common.registers as u64), key)?;
    let mut constants = Constants::for_key("st-hll", key);
    constants.text_macro("REGISTER_BITS", registers);
    constants.text_macro("SLOT_SHIFT", slot);
    constants.key("ITEM_MIXER", synopsis.mixer().unwrap_or_default());
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/ts-pcsa`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn ts_pcsa(settings: TsPcsaSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let synopsis = TsPcsa::new(settings)?;
    let common = settings.common;
    only("rounding of times", settings.rounding == Rounding::Up, &settings.rounding, "Up")?;
    only("offsets", !settings.offsets, &settings.offsets, "none")?;
    let [registers, slot] = bits(&common, settings.slot_ns, key)?;
    fits("positions of all registers", common.registers * settings.positions)?;
    let mut constants = Constants::for_key("ts-pcsa", key);
    constants.text_macro("REGISTER_BITS", registers);
    constants.text_macro("SLOT_SHIFT", slot);
    constants.number("POSITIONS", 32, places("positions", settings.positions as u64, key)?);
    constants.number("WINDOW", 64, common.window_ns);
    constants.key("ITEM_MIXER", synopsis.mixer().unwrap_or_default());
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/fragment`, which is at `position` of the path.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible, or the fragment is not at that position.
pub fn fragment(
    settings: FragmentSettings,
    path: &Path,
    position: usize,
    key: &DigestKey,
) -> Result<Constants, ConstantsError> {
    let synopsis = Fragment::new(settings)?;
    only("rows", settings.rows == 2, &settings.rows, "2")?;
    let is_there = path.fragments().get(position) == Some(&settings.id);
    only("the fragment at its position of the path", is_there, &path.fragments(), "this fragment")?;
    let others = path.fragments().len() - 1;
    only("other fragments of the path", others <= MAX_OTHERS, &others, "3 at most")?;
    only("weights", path.has_equal_weights(), &"different ones", "equal ones")?;
    of_key(settings.seed, key)?;
    // Without a choice its seed does not matter.
    if path.count() <= others {
        of_key(path.seed(), key)?;
    }
    let counters = fits("counters of two epochs", 2 * settings.counters as usize)? / 2;
    let mut constants = Constants::for_key("fragment", key);
    constants.number("COUNTERS", 32, places("counters", counters, key)?);
    constants.number("UPDATED", 32, path.count() as u64);
    constants.number("OTHERS", 32, others as u64);
    constants.number("BEFORE", 32, position as u64);
    let mixers: Vec<u64> = path.mixers().collect();
    constants.key("CHOICE", mixers.get(position).copied().unwrap_or_default());
    let mut other = mixers.iter().enumerate().filter(|(at, _)| *at != position).map(|(_, mixer)| *mixer);
    for at in 0..MAX_OTHERS {
        constants.key(&format!("OTHER_{at}"), other.next().unwrap_or_default());
    }
    for (at, mixer) in synopsis.mixers().enumerate() {
        constants.key(&format!("ROW_{at}"), mixer);
    }
    constants.secret(key, Named::Flows);
    Ok(constants)
}

fn sampling(settings: ReorderingSettings, key: &DigestKey, constants: &mut Constants) -> Result<(), ConstantsError> {
    let of = Reordering::new(settings)?.constants();
    of_key(settings.seed, key)?;
    let definition = settings.definition;
    let is_first = definition == Definition::BelowPredecessor;
    only("the definition of out of order", is_first, &definition, "BelowPredecessor")?;
    constants.text_macro("TICK_SHIFT", settings.tick_shift);
    let buckets = fits("buckets that sample flows", of.buckets)?;
    constants.number("BUCKETS", 32, places("buckets that sample flows", buckets, key)?);
    constants.number("TIMEOUT", 32, of.timeout.into());
    constants.number("MOST_PACKETS", 32, settings.most_packets.into());
    constants.number("LEAST_EVENTS", 32, settings.least_events.into());
    constants.number("REPORT_ALL", 1, (settings.reports == Reports::Always).into());
    constants.key("BUCKET", of.mixers[0]);
    Ok(())
}

/// Those of `p4/reordering-samples`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn samples(settings: ReorderingSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    only("the split of buckets", settings.split == Split::SamplingOnly, &settings.split, "SamplingOnly")?;
    let mut constants = Constants::for_key("reordering-samples", key);
    sampling(settings, key, &mut constants)?;
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/reordering`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn heavy_flows(settings: ReorderingSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    only("the split of buckets", matches!(settings.split, Split::Hybrid(_)), &settings.split, "Hybrid")?;
    only("stages", settings.stages == 2, &settings.stages, "2")?;
    only("admission", settings.admission == Admission::PowerOfTwo, &settings.admission, "PowerOfTwo")?;
    only("reports", settings.reports == Reports::Always, &settings.reports, "Always")?;
    let mut constants = Constants::for_key("reordering", key);
    sampling(settings, key, &mut constants)?;
    let of = Reordering::new(settings)?.constants();
    constants.number("ROWS", 32, places("rows of a stage", fits("rows of a stage", of.rows)?, key)?);
    constants.key("ROW", of.mixers[1]);
    constants.key("COIN", of.mixers[2]);
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/precision`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn precision(settings: EpochSettings, key: &DigestKey) -> Result<Constants, ConstantsError> {
    let table = settings.table;
    only("ways", table.ways == 2, &table.ways, "2")?;
    only("admission", table.admission == Admission::PowerOfTwo, &table.admission, "PowerOfTwo")?;
    of_key(table.seed, key)?;
    let rows = fits("rows of a stage in two epochs", table.rows.saturating_mul(2))? / 2;
    let rows = places("rows of a stage", rows, key)?;
    let [row, coin] = EpochPrecision::new(settings)?.mixers();
    let mut constants = Constants::for_key("precision", key);
    constants.text_macro("EPOCH_SHIFT", settings.epoch_shift);
    constants.number("ROWS", 32, rows);
    constants.key("ROW", row);
    constants.key("COIN", coin);
    constants.secret(key, Named::Flows);
    Ok(constants)
}

/// Those of `p4/together`.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn together(
    handshakes: FridgeSettings,
    buckets: &FineCombSettings,
    flows: StHllSettings,
    key: &DigestKey,
) -> Result<Constants, ConstantsError> {
    let mut constants = Constants::for_key("together", key);
    constants.join(fridge(handshakes, key)?);
    constants.join(st_hll(flows, key)?);
    constants.join(finecomb(buckets, false, key)?);
    Ok(constants)
}
