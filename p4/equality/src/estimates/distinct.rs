//! Distinct flows of ST-HLL, and of TS-PCSA.

use packets::identity;
use packets::switch::ConstantsError;
use packets::switch::readout::CardinalityReadout;
use packets::switch::registers::SwitchRegisters as _;
use synopses::cardinality::{Cardinality as _, StHll, TsPcsa};

use super::{Case, Estimates, EstimatesError, KeptRegisters, SECOND, figure, row};
use crate::registers::Registers;
use crate::{sthll, tspcsa};

/// When the window ends: with the latest frame, and half a window after it.
fn times(case: &Case<'_>, window_ns: u64) -> [(&'static str, u64); 2] {
    let latest_ns = case.latest_ns();
    [("flows", latest_ns), ("flows.half_a_window_later", latest_ns + window_ns / 2)]
}

/// Of the library's ST-HLL.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let mut synopsis = StHll::new(sthll::settings_of(case.kind())).map_err(ConstantsError::from)?;
    let key = case.key();
    case.packets(|packet| synopsis.insert(identity::flow(packet, &key), packet.time_ns));
    let window_ns = synopsis.effective_window_ns();
    let mut rows = Estimates::new();
    for (name, now_ns) in times(case, window_ns) {
        let estimate = synopsis.estimate(now_ns, window_ns)?;
        rows.push(row(name, figure(estimate.warm.then_some(estimate.count))));
    }
    Ok(rows)
}

/// Of a switch whose time is the frames'.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let mut readout = CardinalityReadout::new(&case.constants, SECOND)?;
    let mut kept = KeptRegisters(registers);
    let (block, frames) = (kept.cardinality(readout.registers())?, kept.frames()?);
    // The first poll only begins.
    let _ = readout.read(&frames, &block, SECOND, case.latest_ns())?;
    let mut rows = Estimates::new();
    for (now, (name, switch_ns)) in (2..).zip(times(case, readout.window_ns())) {
        let interval = readout.read(&frames, &block, now * SECOND, switch_ns)?;
        let interval = interval.ok_or(EstimatesError::Nothing(case.source()))?;
        rows.push(row(name, figure(interval.flows)));
    }
    Ok(rows)
}

/// Of the library's TS-PCSA.
pub(super) fn stamped_of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let mut synopsis = TsPcsa::new(tspcsa::settings_of(case.kind())).map_err(ConstantsError::from)?;
    let key = case.key();
    case.packets(|packet| synopsis.insert(identity::flow(packet, &key), packet.time_ns));
    stamped_rows(case, &synopsis)
}

/// Of one that is loaded from registers.
pub(super) fn stamped_of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let loaded = tspcsa::load(registers, case.kind()).ok_or(EstimatesError::Nothing(case.source()))?;
    stamped_rows(case, &loaded)
}

/// Those of the whole window, and of its latest half.
fn stamped_rows(case: &Case<'_>, synopsis: &TsPcsa) -> Result<Estimates, EstimatesError> {
    let (now_ns, window_ns) = (case.latest_ns(), synopsis.stamping().common.window_ns);
    let mut rows = Estimates::new();
    for (name, window_ns) in [("flows", window_ns), ("flows.of_half_a_window", window_ns / 2)] {
        rows.push(row(name, figure(Some(synopsis.estimate(now_ns, window_ns)?.count))));
    }
    Ok(rows)
}
