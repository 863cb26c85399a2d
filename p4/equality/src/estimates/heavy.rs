//! The heaviest flows of PRECISION, by their digests. No agent reads its registers: the library's table is loaded from
//! them by its encoding.

use packets::identity;
use packets::switch::ConstantsError;
use synopses::encoding::{Kind, seal};
use synopses::rap::{HeavyHitters as _, Precision};

use super::{Case, Estimates, EstimatesError, MAX_LISTED, figure, row};
use crate::encoding::{Reader, put_number};
use crate::precision::settings_of;
use crate::registers::Registers;

/// Bytes of an encoding that an empty table has, too: ways and rows, which have a byte each, the law of admission, and
/// the seed.
const SETTINGS: usize = 2 + 1 + 8;

/// Of the library's table.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let mut table = Precision::new(settings_of(case.kind())).map_err(ConstantsError::from)?;
    let key = case.key();
    case.packets(|packet| table.insert(identity::flow(packet, &key)));
    Ok(rows(&table))
}

/// Of one that is loaded from registers.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let settings = settings_of(case.kind());
    let empty = Precision::new(settings).map_err(ConstantsError::from)?.encode();
    let mut payload: Vec<u8> = Reader::of(&empty).rest().iter().copied().take(SETTINGS).collect();
    let one = |name: &str| registers.get(name).and_then(|entries| entries.first()).copied().unwrap_or_default();
    payload.extend((one("drawn_high") << 32 | one("drawn_low")).to_le_bytes());
    put_number(&mut payload, one("inserted"));
    put_number(&mut payload, one("rejected"));
    let entries: Vec<_> = (0..settings.ways).flat_map(|stage| stage_entries(registers, stage)).collect();
    let used = entries.iter().enumerate().filter(|(_, (_, count, _))| *count > 0);
    put_number(&mut payload, used.clone().count() as u64);
    let mut next = 0;
    for (place, (flow, count, since)) in used {
        put_number(&mut payload, (place - next) as u64);
        payload.extend(flow.to_le_bytes());
        put_number(&mut payload, *count);
        put_number(&mut payload, *since);
        next = place + 1;
    }
    let table = Precision::decode(&seal(Kind::Precision, &payload), settings.ways * settings.rows)?;
    Ok(rows(&table))
}

/// Digest, count and count since its admission of each entry of a stage.
fn stage_entries(registers: &Registers, stage: usize) -> Vec<(u64, u64, u64)> {
    let column = |name: &str| registers.get(&format!("stage{stage}_{name}")).cloned().unwrap_or_default();
    let [low, high, counts, since] = ["flows_low", "flows_high", "counts", "since"].map(column);
    let flows = low.into_iter().zip(high).map(|(low, high)| high << 32 | low);
    flows.zip(counts.into_iter().zip(since)).map(|(flow, (count, since))| (flow, count, since)).collect()
}

fn rows(table: &Precision) -> Estimates {
    let tally = table.tally();
    let rejected = (tally.inserted > 0).then(|| tally.rejected as f64 / tally.inserted as f64);
    let heaviest = table.top(MAX_LISTED).into_iter().enumerate().map(|(place, entry)| {
        let text = format!("{:#018x}: {} packets, {} since its admission", entry.digest.0, entry.count, entry.since);
        row(format!("heavy.{place}"), text)
    });
    heaviest.chain([row("rejected", figure(rejected))]).collect()
}
