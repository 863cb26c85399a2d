//! The delays of a fridge, or of several: what their samples say.

use packets::delays::SHARES;
use packets::switch::ConstantsError;
use packets::switch::readout::{FridgeReadout, Reading};
use packets::switch::registers::{FrameBlock, FridgeBlock, FridgeCounts, SwitchRegisters as _};
use packets::{DelaysError, Pair};
use synopses::fridge::{Fridge, Fridges, Histogram, HistogramShape, Sample, Tally};

use super::{Case, Estimates, EstimatesError, KeptRegisters, SECOND, figure, row};
use crate::fridge::settings_of;
use crate::fridges;
use crate::registers::Registers;

/// Of the library's fridge, whose samples are put into a histogram as on a host.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let (settings, key) = (settings_of(case.kind()), case.key());
    let mut fridge = Fridge::new(settings).map_err(ConstantsError::from)?;
    let mut histogram = histogram(settings.tick_shift)?;
    case.packets(|packet| {
        let roles = Pair::Handshake.roles(packet, &key);
        if let Some(request) = roles.request {
            fridge.insert(request, packet.time_ns);
        }
        let report = roles.response.and_then(|response| fridge.match_response(response, packet.time_ns));
        if let Some(report) = report {
            histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.weight() });
        }
    });
    Ok(rows_of(&histogram, &fridge.tally()))
}

/// Of several of the library's fridges in one table.
pub(super) fn several_of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let (settings, key) = (fridges::settings_of(case.kind()), case.key());
    let mut histogram = histogram(settings.tick_shift)?;
    let mut fridges = Fridges::new(settings).map_err(ConstantsError::from)?;
    case.packets(|packet| {
        let roles = Pair::Handshake.roles(packet, &key);
        if let Some(request) = roles.request {
            fridges.insert(request, packet.time_ns);
        }
        let report = roles.response.and_then(|response| fridges.match_response(response, packet.time_ns));
        if let Some(report) = report {
            histogram.insert(Sample { delay_ns: report.delay_ns, weight: report.total_weight() });
        }
    });
    Ok(rows_of(&histogram, &fridges.tally()))
}

/// With the shape that the readout's has.
fn histogram(tick_shift: u32) -> Result<Histogram, EstimatesError> {
    Ok(Histogram::new(HistogramShape { tick_shift, fineness: 3 }).map_err(DelaysError::from)?)
}

fn rows_of(histogram: &Histogram, tally: &Tally) -> Estimates {
    let quantiles = SHARES.map(|share| histogram.estimate(share).map(|quantile| quantile.delay_ns));
    rows(histogram.answered(), histogram.effective(), quantiles, tally)
}

/// Of an interval that began with the switch.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let mut readout = FridgeReadout::new(&case.constants, SECOND)?;
    let mut kept = KeptRegisters(registers);
    let (fridge, frames) = (kept.fridge()?, kept.frames()?);
    let empty = FridgeBlock { counts: FridgeCounts::default(), written: 0, ..fridge.clone() };
    let _ = readout.read(&FrameBlock::default(), &empty, SECOND)?;
    let Reading::Interval(interval) = readout.read(&frames, &fridge, 2 * SECOND)? else {
        return Err(EstimatesError::Nothing(case.source()));
    };
    let delays = interval.delays;
    let quantiles = delays.quantiles.map_or([None; 3], |all| all.map(|quantile| Some(quantile.delay_ns)));
    Ok(rows(delays.answered, delays.effective, quantiles, &delays.tally))
}

fn rows(answered: Option<f64>, effective: f64, quantiles: [Option<f64>; 3], tally: &Tally) -> Estimates {
    let requests = tally.admitted + tally.duplicate_requests;
    let repeated = (requests > 0).then(|| tally.duplicate_requests as f64 / requests as f64);
    let delays = ["delay.p50_ns", "delay.p95_ns", "delay.p99_ns"].into_iter().zip(quantiles);
    let counts = [("delay.answered", answered), ("delay.effective", Some(effective)), ("delay.repeated", repeated)];
    counts.into_iter().chain(delays).map(|(name, value)| row(name, figure(value))).collect()
}
