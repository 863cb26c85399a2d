//! The comparison of both ends' packets of one interval. It becomes final when the next interval tells late packets
//! from lost ones.

use std::collections::HashMap;

use synopses::rda::{Cache, Deviation, Reconciliation, UnsettledLoss};

use crate::report::{Flags, Report};

/// The result of comparing both ends' packets of an interval.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// Final except for the loss and for the delays of late packets.
    pub(crate) report: Report,
    /// Packets that were sent in this interval and have not arrived in it.
    pub(crate) unsettled: UnsettledLoss,
    /// Packets that arrived in this interval but were not sent in it: ids, and arrival times where known.
    pub(crate) unsent: Vec<(u64, Option<u64>)>,
    /// Whether every difference was found.
    pub(crate) complete: bool,
    /// Flags of the previous interval that follow from the packet counters of this one.
    pub(crate) before: Flags,
}

impl Comparison {
    /// From the receiver's cells.
    pub(crate) fn from_cells(interval: u64, reconciliation: &Reconciliation) -> Self {
        let estimate = reconciliation.estimate(Deviation::PerBucket);
        let lost: Vec<_> = reconciliation.lost().collect();
        let unsent: Vec<_> = reconciliation.reordered().collect();
        let flags = Flags::NONE
            .with(Flags::INCOMPLETE, !estimate.complete)
            .with(Flags::PARTIAL, estimate.partial)
            .with(Flags::CLAMPED, estimate.deviation_clamped)
            .with(Flags::THIN, 4 * estimate.packets < estimate.sent.saturating_sub(estimate.lost));
        let report = Report {
            mean_ns: estimate.mean_ns,
            deviation_ns: estimate.deviation_ns,
            loss: estimate.loss,
            sent: Some(estimate.sent),
            received: Some(estimate.received),
            packets: estimate.packets,
            lost: estimate.lost,
            odd: estimate.reordered,
            ..Report::unknown(interval, flags)
        };
        let unsettled = UnsettledLoss::new(lost, estimate.sent, estimate.complete);
        Self { report, unsettled, unsent, complete: estimate.complete, before: Flags::NONE }
    }

    /// From all packets of both ends. Nothing is estimated.
    pub(crate) fn from_packets(interval: u64, ours: Option<&Cache>, theirs: &[(u64, u64)]) -> Self {
        let mut arrived: HashMap<u64, u64> = theirs.iter().copied().collect();
        let (mut lost, mut delays) = (Vec::new(), Vec::new());
        for (id, sent) in ours.iter().flat_map(|cache| cache.iter()) {
            match arrived.remove(&id) {
                Some(arrived) => delays.push(arrived.wrapping_sub(sent).cast_signed()),
                None => lost.push((id, sent)),
            }
        }
        let packets = delays.len() as u64;
        let sum: i128 = delays.iter().map(|delay| i128::from(*delay)).sum();
        let mean_ns = (packets > 0).then(|| sum as f64 / packets as f64);
        let deviation_ns = mean_ns.map(|mean| {
            let squares: f64 = delays.iter().map(|delay| (*delay as f64 - mean).powi(2)).sum();
            (squares / packets as f64).sqrt()
        });
        let sent = ours.map_or(0, Cache::packets);
        let received = theirs.len() as u64;
        let report = Report {
            mean_ns,
            deviation_ns,
            loss: (sent > 0).then(|| lost.len() as f64 / sent as f64),
            sent: Some(sent),
            received: Some(received),
            packets,
            lost: lost.len() as u64,
            odd: arrived.len() as u64,
            ..Report::unknown(interval, Flags::NONE)
        };
        let mut unsent: Vec<_> = arrived.into_iter().map(|(id, time)| (id, Some(time))).collect();
        unsent.sort_unstable();
        let unsettled = UnsettledLoss::new(lost, sent, true);
        Self { report, unsettled, unsent, complete: true, before: Flags::NONE }
    }

    /// Replaces the ids of lost packets by those under the next interval's key. `rekeyed` has pairs of old and new id.
    pub(crate) fn rekey(mut self, rekeyed: &mut [(u64, u64)]) -> Self {
        rekeyed.sort_unstable();
        let next = |id: u64| {
            let at = rekeyed.partition_point(|(old, _)| *old < id);
            rekeyed.get(at).filter(|(old, _)| *old == id).map_or(id, |(_, new)| *new)
        };
        self.unsettled.rekey(next);
        self
    }

    /// The final report: of the packets that looked lost, those that arrived in the `next` interval are late. Without a
    /// next interval the report is flagged as unsettled.
    pub(crate) fn settle(mut self, next: Option<&Self>) -> Report {
        let Some(next) = next else {
            self.report.flags = self.report.flags | Flags::UNSETTLED;
            return self.into_report();
        };
        let settled = self.unsettled.settle_with(next.unsent.iter().copied(), next.complete);
        let report = &mut self.report;
        if self.complete && !report.flags.any(Flags::PARTIAL) {
            // The mean over all packets that both ends saw in the interval and all late ones.
            let (late_ns, late) = (settled.late_delays_ns.0 as f64, settled.late_delays_ns.1);
            let packets = report.packets + late;
            let sum = report.mean_ns.unwrap_or(0.0) * report.packets as f64 + late_ns;
            report.mean_ns = (packets > 0).then(|| sum / packets as f64);
            report.packets = packets;
        }
        report.late = settled.late;
        // A lower bound if not every difference was found.
        report.lost = report.lost.saturating_sub(settled.late);
        report.loss = report.sent.filter(|sent| *sent > 0).map(|sent| report.lost as f64 / sent as f64);
        // Late packets are the slowest ones. Without the times of some, the mean is too low.
        let untimed = settled.late > settled.late_delays_ns.1;
        let flags = report.flags.with(Flags::INCOMPLETE, !settled.complete).with(Flags::PARTIAL, untimed);
        report.flags = flags | next.before;
        self.into_report()
    }

    /// Takes the previous interval's late packets from this interval's odd ones.
    pub(crate) const fn subtract_late(&mut self, late: u64) {
        self.report.odd = self.report.odd.saturating_sub(late);
    }

    /// The report, flagged as unrelated if half of each end's packets are unknown to the other end.
    fn into_report(mut self) -> Report {
        let Report { sent, received, lost, odd, .. } = self.report;
        let at_least_half = |part: u64, total: Option<u64>| match total {
            Some(total) => total > 1 && 2 * part >= total,
            None => false,
        };
        let unrelated = at_least_half(lost, sent) && at_least_half(odd, received);
        self.report.flags = self.report.flags.with(Flags::UNRELATED, unrelated);
        self.report
    }
}
