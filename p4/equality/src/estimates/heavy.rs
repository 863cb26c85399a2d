//! The heaviest flows of PRECISION in the latest even and the latest odd epoch, by their digests.

use packets::identity;
use packets::switch::ConstantsError;
use packets::switch::registers::HeavyBlock;
use synopses::rap::{EpochPrecision, HeavyHitter, HeavyHitters as _};

use super::{Case, Estimates, EstimatesError, KeptRegisters, MAX_LISTED, row};
use crate::precision::settings_of;
use crate::registers::Registers;

/// Of the library's tables.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let mut tables = EpochPrecision::new(settings_of(case.kind())).map_err(ConstantsError::from)?;
    let key = case.key();
    case.packets(|packet| tables.insert(identity::flow(packet, &key), packet.time_ns));
    let rows = ["even", "odd"].into_iter().zip(tables.tables());
    Ok(rows.flat_map(|(set, (_, table))| rows_of(set, table.tally().inserted, table.entries().collect())).collect())
}

/// Of the block that an agent reads.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let block = HeavyBlock::read(&mut KeptRegisters(registers), settings_of(case.kind()).table.rows)?;
    let sets = ["even", "odd"].into_iter().zip(block.epochs).zip(block.inserted).zip(block.entries);
    let rows = sets.flat_map(|(((set, epoch), packets), entries)| {
        let of_epoch = entries.iter().filter(|entry| entry.epoch == epoch as u32 && entry.flow.count > 0);
        rows_of(set, packets.into(), of_epoch.map(|entry| entry.flow).collect())
    });
    Ok(rows.collect())
}

fn rows_of(set: &str, packets: u64, mut flows: Vec<HeavyHitter>) -> Estimates {
    flows.sort_by_key(|flow| (core::cmp::Reverse(flow.count), flow.digest.0));
    let heaviest = flows.iter().take(MAX_LISTED).enumerate().map(|(place, flow)| {
        let text = format!("{:#018x}: {} packets, {} since its admission", flow.digest.0, flow.count, flow.since);
        row(format!("heavy.{set}.{place}"), text)
    });
    [row(format!("heavy.{set}.packets"), packets.to_string())].into_iter().chain(heaviest).collect()
}
