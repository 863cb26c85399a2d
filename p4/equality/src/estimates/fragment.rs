//! Packets of the heaviest flows, by the fragments of their path. One of them is the program's, in even and in odd
//! epochs; the others are the library's. No agent reads it: the library's fragment is loaded from the registers by its
//! encoding.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use packets::identity;
use packets::switch::ConstantsError;
use synopses::digest::{Digest, DigestKind};
use synopses::disaggregated::{Fragment, Path, PathTable, Settings};
use synopses::encoding::{Kind, seal};

use super::{Case, Estimates, EstimatesError, MAX_LISTED, row};
use crate::begun::Begun;
use crate::encoding::put_number;
use crate::fragment::{FragmentError, POSITION, path, settings_of};
use crate::frames::Frames;
use crate::registers::Registers;

/// Number of the only path.
const PATH: u32 = 0;

/// Fragments of all even epochs, and of all odd ones, in the order of the path.
type Parities = [Vec<Fragment>; 2];

/// Of the library's fragments.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let path = path(case.kind()).map_err(FragmentError::from)?;
    rows(case, &path, &collected(case, &path)?)
}

/// With the program's fragment in place of the library's.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let path = path(case.kind()).map_err(FragmentError::from)?;
    let mut parities = collected(case, &path)?;
    for (parity, fragments) in parities.iter_mut().enumerate() {
        if let Some(fragment) = fragments.get_mut(POSITION) {
            *fragment = load(registers, settings_of(case.kind()), parity)?;
        }
    }
    rows(case, &path, &parities)
}

/// The settings of each fragment of the path.
fn all_settings(kind: DigestKind, path: &Path) -> Vec<Settings> {
    let own = settings_of(kind);
    let of = |id: &u32| if *id == own.id { own } else { Settings { id: *id, seed: kind.seed((*id).into()), ..own } };
    path.fragments().iter().map(of).collect()
}

/// What the library's fragments have after all frames.
fn collected(case: &Case<'_>, path: &Path) -> Result<Parities, EstimatesError> {
    let empty = all_settings(case.kind(), path).into_iter().map(Fragment::new);
    let empty = empty.collect::<Result<Vec<_>, _>>().map_err(ConstantsError::from)?;
    let mut parities = [empty.clone(), empty];
    let (mut frames, mut begun, key) = (Frames::new(&case.constants), Begun::default(), case.key());
    for captured in case.frames {
        let packet = frames.count(captured);
        begun.take(captured);
        let Some(packet) = packet else { continue };
        let flow = identity::flow(&packet, &key);
        let chosen = path.select(flow);
        for (position, fragment) in parities[begun.parity()].iter_mut().enumerate() {
            if chosen.contains(position) {
                fragment.insert(flow, 1);
            }
        }
    }
    Ok(parities)
}

/// The library's fragment with the registers of a switch.
fn load(registers: &Registers, settings: Settings, parity: usize) -> Result<Fragment, EstimatesError> {
    let width = settings.counters as usize;
    let counters_of = |row: u32| {
        let entries = registers.get(&format!("row{row}")).cloned().unwrap_or_default();
        entries.into_iter().skip(parity * width).take(width)
    };
    let counters: Vec<u64> = (0..settings.rows).flat_map(counters_of).collect();
    let updates = registers.get("load").and_then(|load| load.get(parity)).copied().unwrap_or_default();
    let mut payload = Vec::new();
    // Behind the sizes, the epoch.
    for number in [settings.id, settings.counters, settings.rows, 0] {
        put_number(&mut payload, number.into());
    }
    payload.extend(settings.seed.to_le_bytes());
    put_number(&mut payload, updates);
    let used = counters.iter().enumerate().filter(|(_, count)| **count > 0);
    put_number(&mut payload, used.clone().count() as u64);
    let mut next = 0;
    for (place, count) in used {
        put_number(&mut payload, (place - next) as u64);
        put_number(&mut payload, *count);
        next = place + 1;
    }
    Ok(Fragment::decode(&seal(Kind::Fragment, &payload), counters.len())?)
}

/// The flows with most packets, and how many they have.
fn heaviest(case: &Case<'_>) -> Vec<(Digest, u64)> {
    let (mut flows, key) = (BTreeMap::<Digest, u64>::new(), case.key());
    case.packets(|packet| *flows.entry(identity::flow(packet, &key)).or_default() += 1);
    let mut flows: Vec<(Digest, u64)> = flows.into_iter().collect();
    flows.sort_by_key(|(flow, packets)| (Reverse(*packets), *flow));
    flows.truncate(MAX_LISTED);
    flows
}

fn rows(case: &Case<'_>, path: &Path, [even, odd]: &Parities) -> Result<Estimates, EstimatesError> {
    let table = PathTable::new(0, &all_settings(case.kind(), path), [(PATH, path.clone())])?;
    let mut rows = Estimates::new();
    for (place, (flow, packets)) in heaviest(case).into_iter().enumerate() {
        let (even, odd) = (table.estimate(PATH, flow, even)?.count, table.estimate(PATH, flow, odd)?.count);
        let counted = if path.select(flow).contains(POSITION) { "here and elsewhere" } else { "elsewhere" };
        let text = format!("{:#018x}: {packets} packets, at most {even} and {odd}, counted {counted}", flow.0);
        rows.push(row(format!("flow.{place}"), text));
    }
    Ok(rows)
}
