//! The receiving end of FineComb and LDA: buckets, and the packets near the ends of intervals.

use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{self, Receiver, SettingsError};
use wire::time::UnixNanos;

use crate::keys::KeySchedule;
use crate::plan::Plan;

/// A receiving end in interval 0.
fn receiver(plan: &Plan) -> Result<Receiver, SettingsError> {
    let mut receiver = Receiver::new(&plan.buckets())?;
    let _ = receiver.sync();
    Ok(receiver)
}

/// Buckets of the current interval and of the one before.
#[derive(Debug)]
pub(crate) struct BucketReceiver {
    receiver: Receiver,
    /// The same packets under the next key, from the last interval of a key until that interval is closed. A packet
    /// that crosses the interval's end has the old key's digest at one end and the new key's at the other, so both are
    /// stored.
    next_key: Option<Receiver>,
    /// The interval that packets arrive in.
    current: u64,
}

impl BucketReceiver {
    pub(crate) fn new(plan: &Plan, current: u64) -> Result<Self, SettingsError> {
        Ok(Self { receiver: receiver(plan)?, next_key: None, current })
    }

    /// A packet of `interval`; `open` is the oldest interval that is not closed. False if the packet is too early.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        (interval, open): (u64, u64),
        at: UnixNanos,
        keys: &KeySchedule,
        digest: impl Fn(&DigestKey) -> Digest,
    ) -> bool {
        // If a whole interval had no packets, `close` advances.
        if interval == self.current + 1 && interval == open + 1 {
            self.sync();
        }
        if interval > self.current {
            return false;
        }
        let [current, next] = keys.keys();
        self.receiver.insert(digest(current), at.0);
        if let Some(receiver) = &mut self.next_key {
            receiver.insert(digest(next), at.0);
        }
        true
    }

    fn sync(&mut self) {
        let _ = self.receiver.sync();
        self.next_key.as_mut().map(Receiver::sync);
        self.current += 1;
    }

    /// Ends the interval and returns it. Intervals are closed in order.
    pub(crate) fn close(&mut self, interval: u64) -> Option<finecomb::Interval> {
        if self.current <= interval {
            self.current = interval;
            self.sync();
        }
        self.receiver.take()
    }

    /// Switches to the next key, which the next interval has.
    pub(crate) fn rotate_key(&mut self) {
        if let Some(mut receiver) = self.next_key.take() {
            // The interval before, which was reported under the old key.
            let _ = receiver.take();
            self.receiver = receiver;
        }
    }

    /// Starts to store packets under the next key, too: the next interval is the last one of the current key.
    pub(crate) fn prepare_next_key(&mut self, plan: &Plan) {
        if self.next_key.is_none() {
            // A checked plan has valid settings.
            self.next_key = receiver(plan).ok();
        }
    }
}
