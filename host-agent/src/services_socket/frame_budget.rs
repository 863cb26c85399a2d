//! Bounds what incomplete frames of services take, of one user and of all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use wire::frame::MAX_FRAME_BYTES;

/// Bytes of incomplete frames of one user's connections, and of all: sixteen, and sixty-four, of the largest.
pub(crate) const INCOMPLETE_BYTES: (usize, usize) = (16 * MAX_FRAME_BYTES, 64 * MAX_FRAME_BYTES);

/// Bytes of incomplete frames, by user.
#[derive(Debug, Default)]
pub(super) struct FrameBudget(Mutex<BTreeMap<u32, usize>>);

/// The part of the budget that one connection has. Given back on drop.
#[derive(Debug)]
pub(super) struct FrameShare {
    budget: Arc<FrameBudget>,
    uid: u32,
    bytes: usize,
}

impl FrameShare {
    /// No bytes yet, of the user `uid`.
    pub(super) const fn new(budget: Arc<FrameBudget>, uid: u32) -> Self {
        Self { budget, uid, bytes: 0 }
    }

    /// Changes the share to `bytes`. Fails if more are wanted than the user, or all together, may have.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), String> {
        let mut users = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = users.values().sum::<usize>() - self.bytes;
        let own = users.get(&self.uid).copied().unwrap_or(0) - self.bytes;
        let (per_user, total) = INCOMPLETE_BYTES;
        if bytes > self.bytes && (own + bytes > per_user || all + bytes > total) {
            let user = self.uid;
            return Err(format!(
                "connections of user {user} have {own} bytes of incomplete messages, those of all {all}"
            ));
        }
        self.bytes = bytes;
        if own + bytes == 0 {
            users.remove(&self.uid);
        } else {
            users.insert(self.uid, own + bytes);
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
        let full = |uid| {
            let mut shares: Vec<_> = (0..16).map(|_| FrameShare::new(Arc::clone(&budget), uid)).collect();
            for share in &mut shares {
                share.resize(MAX_FRAME_BYTES).unwrap();
            }
            shares
        };
        let mut users: Vec<_> = (1..=4).map(full).collect();

        let refused = FrameShare::new(Arc::clone(&budget), 1).resize(1).unwrap_err();
        assert!(refused.contains("user 1 have 16777216 bytes"), "{refused}");
        assert!(FrameShare::new(Arc::clone(&budget), 5).resize(1).is_err(), "all is taken");
        users[1][0].resize(0).unwrap();
        FrameShare::new(Arc::clone(&budget), 5).resize(1).unwrap();
        assert!(users[1][1].resize(MAX_FRAME_BYTES + 1).is_ok(), "its own place is free again");
        drop(users);
        assert!(budget.0.lock().unwrap().is_empty());
    }
}
