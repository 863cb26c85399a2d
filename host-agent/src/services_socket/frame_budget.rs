//! Bounds what incomplete frames of services take, of one owner and of all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use wire::frame::MAX_FRAME_BYTES;
use wire::id::Owner;

/// Bytes of incomplete frames of one owner's connections, and of all: sixteen, and sixty-four, of the largest.
pub(crate) const INCOMPLETE_BYTES: (usize, usize) = (16 * MAX_FRAME_BYTES, 64 * MAX_FRAME_BYTES);

/// Bytes of incomplete frames, by owner.
#[derive(Debug, Default)]
pub(super) struct FrameBudget(Mutex<BTreeMap<Owner, usize>>);

/// The part of the budget that one connection has. Given back on drop.
#[derive(Debug)]
pub(super) struct FrameShare {
    budget: Arc<FrameBudget>,
    owner: Owner,
    bytes: usize,
}

impl FrameShare {
    /// No bytes yet, of `owner`.
    pub(super) const fn new(budget: Arc<FrameBudget>, owner: Owner) -> Self {
        Self { budget, owner, bytes: 0 }
    }

    /// Changes the share to `bytes`. Fails if more are wanted than the owner, or all together, may have.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), String> {
        let mut owners = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = owners.values().sum::<usize>() - self.bytes;
        let own = owners.get(&self.owner).copied().unwrap_or(0) - self.bytes;
        let (per_owner, total) = INCOMPLETE_BYTES;
        if bytes > self.bytes && (own + bytes > per_owner || all + bytes > total) {
            let owner = self.owner;
            return Err(format!("connections of {owner} have {own} bytes of incomplete messages, those of all {all}"));
        }
        self.bytes = bytes;
        if own + bytes == 0 {
            owners.remove(&self.owner);
        } else {
            owners.insert(self.owner, own + bytes);
        }
        Ok(())
    }
}

impl Drop for FrameShare {
    fn drop(&mut self) {
        // Less is always granted.
        _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_gets_its_share_and_others_theirs_until_all_is_taken() {
        let budget = Arc::new(FrameBudget::default());
        let of = |uid| FrameShare::new(Arc::clone(&budget), Owner::User(uid));
        let full = |uid| {
            let mut shares: Vec<_> = (0..16).map(|_| of(uid)).collect();
            for share in &mut shares {
                share.resize(MAX_FRAME_BYTES).unwrap();
            }
            shares
        };
        let mut users: Vec<_> = (1..=4).map(full).collect();

        let refused = of(1).resize(1).unwrap_err();
        assert!(refused.contains("user 1 have 16777216 bytes"), "{refused}");
        assert!(of(5).resize(1).is_err(), "all is taken");
        users[1][0].resize(0).unwrap();
        of(5).resize(1).unwrap();
        assert!(users[1][1].resize(MAX_FRAME_BYTES + 1).is_ok(), "its own place is free again");
        drop(users);
        assert!(budget.0.lock().unwrap().is_empty());
    }
}
