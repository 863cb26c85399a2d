//! Whose hooks and watchers there are: one operator or viewer does not take the places of all.

use agent_runtime::shares::{ShareError, Shares};
use wire::id::HookId;

use super::Dispatch;

impl Dispatch {
    /// Checks whether `by` may have one more of `limit` hooks and watchers. The agent's own do not count.
    ///
    /// # Errors
    ///
    /// [`ShareError`] if it would have more than its share.
    pub fn check_share(&mut self, by: &str, limit: usize) -> Result<(), ShareError<String>> {
        let Self { owners, hooks, watchers, .. } = self;
        owners.retain(|id, _| hooks.contains_key(id) || watchers.contains_key(id));
        let mut shares = Shares::new("hooks and watchers", "operators.hooks", limit as u64);
        for owner in owners.values() {
            shares.add(owner.clone(), 1);
        }
        shares.check(by.to_owned(), 1)
    }

    /// Hook or watcher `id` is of `by`.
    pub fn set_owner(&mut self, id: HookId, by: &str) {
        self.owners.insert(id, by.to_owned());
    }
}
