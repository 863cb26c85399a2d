//! Prefixes with packets out of order. Of `p4/reordering` an agent's readout makes an interval of all reports and
//! records. Samples alone report few flows: their reports are tallied.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use packets::flows::{MIN_PACKETS, segment};
use packets::switch::ConstantsError;
use packets::switch::readout::ReorderingReadout;
use packets::switch::registers::{FrameBlock, ReorderingBlock, SwitchRegisters as _};
use synopses::reordering::{Boundary, Decision, Prefix, PrefixTally, Reordering, Report, Reports, Settings, Threshold};

use super::{Case, Estimates, EstimatesError, KeptRegisters, MAX_LISTED, SECOND, figure, row};
use crate::registers::Registers;
use crate::reordering::{hybrid, of_kind, sampling};

/// Room for all prefixes that there are.
const MAX_PREFIXES: usize = 2_048;

/// What is known of the order of packets.
#[derive(Default)]
struct OrderFigures {
    reports: usize,
    checked: u64,
    out_of_order: u64,
    prefixes: Vec<PrefixFigures>,
}

/// What is known of a prefix.
struct PrefixFigures {
    prefix: String,
    checked: u64,
    out_of_order: u64,
    /// The least share of packets out of order that agrees with that.
    least_share: f64,
}

fn settings(case: &Case<'_>) -> Settings {
    of_kind(if case.source() == "reordering" { hybrid() } else { sampling() }, case.kind())
}

/// Of the library's synopsis: what it has reported, and what it would at the end of an interval if it reports all.
pub(super) fn of_frames(case: &Case<'_>) -> Result<Estimates, EstimatesError> {
    let (settings, key) = (settings(case), case.key());
    let mut synopsis = Reordering::new(settings).map_err(ConstantsError::from)?;
    let mut reports = Vec::new();
    case.packets(|packet| {
        let segment = segment(packet, &key);
        reports.extend(segment.and_then(|segment| synopsis.insert(&segment, packet.time_ns)));
    });
    let sent = reports.len();
    let mut least = 1;
    if settings.reports == Reports::Always {
        synopsis.close(Boundary::KeepFlows, |report| reports.push(report));
        least = MIN_PACKETS;
    }
    Ok(rows(OrderFigures { reports: sent, ..tallied(&reports, least)? }))
}

/// Of an interval that began with the switch, or of its reports alone.
pub(super) fn of_registers(case: &Case<'_>, registers: &Registers) -> Result<Estimates, EstimatesError> {
    let mut kept = KeptRegisters(registers);
    let size = |name| case.constants.value(name).unwrap_or_default() as usize;
    let block = kept.reordering(size("BUCKETS"), size("ROWS"))?;
    let sent = block.reports as usize;
    if case.source() == "reordering-samples" {
        let reports = block.ring.get(..sent).ok_or(EstimatesError::Nothing(case.source()))?;
        return Ok(rows(OrderFigures { reports: sent, ..tallied(reports, 1)? }));
    }
    let mut readout = ReorderingReadout::new(&case.constants, SECOND)?;
    let empty = ReorderingBlock { reports: 0, ring: Vec::new(), written: 0, records: Vec::new() };
    let _ = readout.read(&FrameBlock::default(), &empty, SECOND, MAX_PREFIXES)?;
    let interval = readout.read(&kept.frames()?, &block, 2 * SECOND, MAX_PREFIXES)?;
    let found = interval.and_then(|interval| interval.reordering).ok_or(EstimatesError::Nothing(case.source()))?;
    let prefixes = found.worst.iter().map(|of| PrefixFigures {
        prefix: of.prefix.to_string(),
        checked: of.checked,
        out_of_order: of.out_of_order,
        least_share: of.least_share,
    });
    Ok(rows(OrderFigures {
        reports: sent,
        checked: found.checked,
        out_of_order: found.out_of_order,
        prefixes: prefixes.collect(),
    }))
}

/// What reports say of prefixes with at least so many packets checked.
fn tallied(reports: &[Report], least_packets: u64) -> Result<OrderFigures, EstimatesError> {
    let mut tally = PrefixTally::new(MAX_PREFIXES, 1).map_err(ConstantsError::from)?;
    let mut figures = OrderFigures::default();
    // As one report of each prefix: its interval is that of the sums.
    let mut sums = BTreeMap::<Prefix, [u32; 2]>::new();
    for report in reports {
        let [packets, events] = sums.entry(report.prefix).or_default();
        (*packets, *events) = (*packets + report.packets, *events + report.out_of_order);
        figures.checked += u64::from(report.packets);
        figures.out_of_order += u64::from(report.out_of_order);
    }
    for (prefix, [packets, out_of_order]) in sums {
        tally.insert(Report { prefix, packets, out_of_order });
    }
    let flagged = tally.flagged(&Decision { least_packets, threshold: Threshold::Any });
    figures.prefixes = flagged
        .iter()
        .map(|of| PrefixFigures {
            prefix: written(of.prefix),
            checked: of.packets,
            out_of_order: of.out_of_order,
            least_share: of.interval.0,
        })
        .collect();
    Ok(figures)
}

/// A prefix as people write it: 24 bits of an IPv4 address behind a bit that marks it, or 48 of an IPv6 one.
fn written(prefix: Prefix) -> String {
    if prefix.0 >> 63 == 1 {
        return format!("{}/24", Ipv4Addr::from_bits((prefix.0 << 8) as u32));
    }
    format!("{}/48", Ipv6Addr::from_bits(u128::from(prefix.0) << 80))
}

fn rows(mut figures: OrderFigures) -> Estimates {
    figures.prefixes.sort_by(|a, b| {
        let share = b.least_share.total_cmp(&a.least_share);
        share.then(b.checked.cmp(&a.checked)).then_with(|| a.prefix.cmp(&b.prefix))
    });
    let OrderFigures { reports, checked, out_of_order, prefixes } = figures;
    let counts = [
        row("order.reports", reports.to_string()),
        row("order.checked", checked.to_string()),
        row("order.out_of_order", out_of_order.to_string()),
    ];
    let worst = prefixes.into_iter().take(MAX_LISTED).enumerate().map(|(place, of)| {
        let PrefixFigures { prefix, checked, out_of_order, least_share } = of;
        let share = figure(Some(least_share));
        row(format!("prefix.{place}"), format!("{prefix}: {out_of_order} of {checked}, a share of {share} at least"))
    });
    counts.into_iter().chain(worst).collect()
}
