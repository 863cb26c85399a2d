//! What a receiver's reply says about the samples of a request.

use hooks::sampling::SampleLossReason;

use super::{Shipper, exemplars};
use crate::encoding::Version;
use crate::queue::Batch;
use crate::reply::Reply;

impl Shipper {
    /// A receiver of 2.0 reports the exemplars that it accepted; of another one only is known whether it refused
    /// anything.
    pub(super) fn settle_exemplars(&mut self, batch: &Batch, written: u64, reply: &Reply) {
        let all = exemplars(&batch.points);
        let reported = match reply {
            Reply::Http { exemplars_written, .. } => *exemplars_written,
            Reply::OtlpAccepted { .. } | Reply::OtlpFailed { .. } | Reply::None => None,
        };
        let whole = self.version != Version::V2 && written == batch.points.len() as u64;
        let taken = reported.unwrap_or(if whole { all } else { 0 }).min(all);
        self.counters.sent_exemplars += taken;
        self.counters.lost_exemplars += all - taken;
    }

    /// Records that `written` samples of the batch were accepted and the rest refused. Which ones is unknown: services
    /// share in proportion.
    pub(super) fn settle(&mut self, batch: &Batch, written: u64) {
        let all = batch.points.len() as u64;
        let written_until = |before: u64| (u128::from(before) * u128::from(written) / u128::from(all.max(1))) as u64;
        let mut before = 0;
        for points in batch.points.chunk_by(|one, next| {
            one.is_stale_marker() == next.is_stale_marker() && one.series.number == next.series.number
        }) {
            let count = points.len() as u64;
            let taken = written_until(before + count) - written_until(before);
            before += count;
            let owner = points[0].series.owner;
            if let Some(entry) = self.feeds.get_mut(&owner.service).filter(|_| !points[0].is_stale_marker()) {
                let ledger = entry.feed.ledger_mut(owner.series);
                ledger.acknowledge(taken);
                ledger.lose(SampleLossReason::Refused, count - taken);
            }
        }
        self.queue.release(batch);
    }
}
