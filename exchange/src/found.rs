//! What the packets of both ends say of an interval, before it is known what came of those that looked lost.

use std::collections::HashMap;

use synopses::rda::{Cache, Deviation, Reconciliation, Unsettled};

use crate::report::{Flags, Report};

/// An interval of which both ends' packets were compared.
#[derive(Debug)]
pub(crate) struct Found {
    /// With figures that are final but for loss and for what late packets add.
    pub(crate) report: Report,
    /// Packets that looked lost.
    pub(crate) open: Unsettled,
    /// What arrived without having been sent in this interval: ids, and when as far as known.
    pub(crate) arrived: Vec<(u64, Option<u64>)>,
    /// Every difference was found.
    pub(crate) complete: bool,
    /// An end saw packets of the interval before when that was over.
    pub(crate) late: bool,
}

impl Found {
    /// By cells.
    pub(crate) fn by_cells(interval: u64, exchange: &Reconciliation) -> Self {
        let estimate = exchange.estimate(Deviation::PerBucket);
        let lost: Vec<_> = exchange.lost().collect();
        let arrived: Vec<_> = exchange.reordered().collect();
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
        let open = Unsettled::new(lost, estimate.sent, estimate.complete);
        Self { report, open, arrived, complete: estimate.complete, late: false }
    }

    /// By all packets of both: nothing is estimated.
    pub(crate) fn by_all(interval: u64, ours: Option<&Cache>, theirs: &[(u64, u64)]) -> Self {
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
        let mut arrived: Vec<_> = arrived.into_iter().map(|(id, time)| (id, Some(time))).collect();
        arrived.sort_unstable();
        Self { report, open: Unsettled::new(lost, sent, true), arrived, complete: true, late: false }
    }

    /// With the ids by which the next interval knows packets that looked lost, where it names them with another key.
    pub(crate) fn renamed(mut self, renamed: &mut [(u64, u64)]) -> Self {
        renamed.sort_unstable();
        let next = |id: u64| {
            let at = renamed.partition_point(|(old, _)| *old < id);
            renamed.get(at).filter(|(old, _)| *old == id).map_or(id, |(_, new)| *new)
        };
        self.open.rename(next);
        self
    }

    /// With what the next interval says of packets that looked lost, and this one's of those before: the report is final. `before` are ids that
    /// this interval's odd packets turned out to be.
    pub(crate) fn settle(mut self, next: Option<&Self>) -> Report {
        let Some(next) = next else {
            self.report.flags = self.report.flags | Flags::UNSETTLED;
            return self.unrelated();
        };
        let settled = self.open.settle_with(next.arrived.iter().copied(), next.complete);
        let report = &mut self.report;
        if self.complete && !report.flags.any(Flags::PARTIAL) {
            // All packets that both ends saw in the interval, and the late ones, each once.
            let (late_ns, late) = (settled.late_delays_ns.0 as f64, settled.late_delays_ns.1);
            let packets = report.packets + late;
            let sum = report.mean_ns.unwrap_or(0.0) * report.packets as f64 + late_ns;
            report.mean_ns = (packets > 0).then(|| sum / packets as f64);
            report.packets = packets;
        }
        report.late = settled.late;
        // What was found lost, or if that is not everything, at least what the numbers of packets say.
        report.lost = report.lost.saturating_sub(settled.late);
        report.loss = report.sent.filter(|sent| *sent > 0).map(|sent| report.lost as f64 / sent as f64);
        // Late packets are the slowest ones: without some of them, the mean is of the others.
        let untimed = settled.late > settled.late_delays_ns.1;
        report.flags = report
            .flags
            .with(Flags::INCOMPLETE, !settled.complete)
            .with(Flags::PARTIAL, untimed)
            .with(Flags::MISSED, next.late);
        self.unrelated()
    }

    /// How many of what arrived was sent in the interval before.
    pub(crate) const fn explain(&mut self, late: u64) {
        self.report.odd = self.report.odd.saturating_sub(late);
    }

    fn unrelated(mut self) -> Report {
        let Report { sent, received, lost, odd, .. } = self.report;
        let half = |part: u64, whole: Option<u64>| match whole {
            Some(whole) => whole > 1 && 2 * part >= whole,
            None => false,
        };
        let so = half(lost, sent) && half(odd, received);
        self.report.flags = self.report.flags.with(Flags::UNRELATED, so);
        self.report
    }
}
