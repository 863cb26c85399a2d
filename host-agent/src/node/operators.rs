//! What operators and viewers may have.

use std::sync::Arc;

use agent_runtime::access::Identity;
use agent_runtime::shares::ShareError;
use tokio::sync::Notify;
use wire::id::HookId;

use super::Node;

/// A new hook or watcher, and what says that something is queued for it.
pub type HookRegistration<E> = Result<(HookId, Arc<Notify>), E>;

impl Node {
    /// Gives `by` a hook or watcher by `register`, if it may have one more of the `limit` of all operators and viewers.
    ///
    /// # Errors
    ///
    /// [`ShareError`] if it may not; else those of `register`.
    pub fn for_operator<E>(
        &self,
        by: &Identity,
        limit: usize,
        register: impl FnOnce(&Self) -> HookRegistration<E>,
    ) -> Result<HookRegistration<E>, ShareError<String>> {
        let by = by.to_string();
        self.lock().dispatch.check_share(&by, limit)?;
        let registered = register(self);
        if let Ok((id, _)) = &registered {
            self.lock().dispatch.set_owner(*id, &by);
        }
        Ok(registered)
    }
}
