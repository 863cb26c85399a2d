//! The report of an interval in messages.

use wire::proto::one_way as proto;

use super::{MessageError, bounded};
use crate::clock::ClockOffset;
use crate::plan::MAX_INTERVALS;
use crate::report::{Flags, Report};

/// Encodes a report for the wire.
pub(super) fn encode_report(report: &Report) -> proto::Report {
    proto::Report {
        interval: report.interval,
        mean_ns: report.mean_ns,
        deviation_ns: report.deviation_ns,
        loss: report.loss,
        sent: report.sent,
        received: report.received,
        packets: report.packets,
        lost: report.lost,
        late: report.late,
        odd: report.odd,
        clock_ahead_ns: report.clock.map(|clock| clock.ahead_ns),
        clock_uncertainty_ns: report.clock.map_or(0, |clock| clock.uncertainty_ns),
        clock_error_ns: report.clock_error_ns,
        flags: report.flags.0,
    }
}

/// Decodes a report from the wire, and checks its numbers.
pub(super) fn decode_report(from: proto::Report) -> Result<Report, MessageError> {
    bounded("the interval", from.interval, MAX_INTERVALS)?;
    let finite = |value: Option<f64>| value.is_none_or(f64::is_finite);
    if !finite(from.mean_ns) {
        return Err(MessageError::Number("the mean"));
    }
    if !(finite(from.deviation_ns) && from.deviation_ns.is_none_or(|deviation| deviation >= 0.0)) {
        return Err(MessageError::Number("the deviation"));
    }
    if !(finite(from.loss) && from.loss.is_none_or(|loss| loss <= 1.0)) {
        return Err(MessageError::Number("the loss"));
    }
    if from.sent.is_some_and(|sent| from.lost > sent || from.packets > sent) {
        return Err(MessageError::Contradiction("the numbers of sent packets and of lost or measured ones"));
    }
    let clock = from.clock_ahead_ns.map(|ahead_ns| ClockOffset { ahead_ns, uncertainty_ns: from.clock_uncertainty_ns });
    Ok(Report {
        interval: from.interval,
        mean_ns: from.mean_ns,
        deviation_ns: from.deviation_ns,
        loss: from.loss,
        sent: from.sent,
        received: from.received,
        packets: from.packets,
        lost: from.lost,
        late: from.late,
        odd: from.odd,
        clock,
        clock_error_ns: from.clock_error_ns,
        flags: Flags(from.flags),
    })
}
