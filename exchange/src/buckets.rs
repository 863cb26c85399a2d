//! What a receiver of FineComb and LDA keeps: buckets and, of packets near the ends of intervals, the packets.

use synopses::digest::{Digest, DigestKey};
use synopses::finecomb::{self, Receiver, SettingsError};

use crate::names::Names;
use crate::plan::Plan;

/// The receiving end of buckets, in interval 0.
fn receiver(plan: &Plan) -> Result<Receiver, SettingsError> {
    let mut receiver = Receiver::new(&plan.buckets())?;
    let _ = receiver.sync();
    Ok(receiver)
}

/// Buckets of the interval that packets come in, and of the one before.
#[derive(Debug)]
pub(crate) struct Buckets {
    receiver: Receiver,
    /// In the last interval of a key, and until that is given out: the same with the next key. Packets around the end are with both, since of those
    /// that changed the interval one end has the one name, and one the other.
    heir: Option<Receiver>,
    /// The interval that packets come in.
    current: u64,
}

impl Buckets {
    pub(crate) fn new(plan: &Plan, current: u64) -> Result<Self, SettingsError> {
        Ok(Self { receiver: receiver(plan)?, heir: None, current })
    }

    /// A packet of `interval`; `next` is the one that ends next. False if it is too early.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        (interval, next): (u64, u64),
        now_ns: u64,
        names: &Names,
        name: impl Fn(&DigestKey) -> Digest,
    ) -> bool {
        // Where a whole interval was left out, it is for `close` to go on.
        if interval == self.current + 1 && interval == next + 1 {
            self.sync();
        }
        if interval > self.current {
            return false;
        }
        let [now, then] = names.keys();
        self.receiver.insert(name(now), now_ns);
        if let Some(heir) = &mut self.heir {
            heir.insert(name(then), now_ns);
        }
        true
    }

    fn sync(&mut self) {
        let _ = self.receiver.sync();
        self.heir.as_mut().map(Receiver::sync);
        self.current += 1;
    }

    /// What came in the interval, which is the next one.
    pub(crate) fn close(&mut self, interval: u64) -> Option<finecomb::Interval> {
        if self.current <= interval {
            self.current = interval;
            self.sync();
        }
        self.receiver.take()
    }

    /// The next interval has the next key.
    pub(crate) fn turn(&mut self) {
        if let Some(mut heir) = self.heir.take() {
            // An interval that it has seen the end of.
            let _ = heir.take();
            self.receiver = heir;
        }
    }

    /// The next interval is the last one of its key.
    pub(crate) fn prepare(&mut self, plan: &Plan) {
        if self.heir.is_none() {
            // A plan that was checked has settings that are possible.
            self.heir = receiver(plan).ok();
        }
    }
}
