//! What hooks and watchers of a deleted LMAP are told: that it was deleted, and which one succeeds it if they follow.

use wire::id::{HookId, LmapId};
use wire::name::ServiceName;

use super::Dispatch;
use super::hook::Hook;
use super::items::{HookItem, LmapChange, RowItem};

impl Dispatch {
    /// `lmap` of `service` was deleted for `reason`: tells those who listed it. Returns them.
    pub fn lmap_deleted(&mut self, lmap: LmapId, service: &ServiceName, reason: &'static str) -> Vec<HookId> {
        let change = |last| LmapChange { deleted: lmap, service: service.clone(), reason, successor: None, last };
        let mut woken = Vec::new();
        for (&id, hook) in self.hooks.iter_mut().filter(|(_, hook)| hook.filter.lmaps.contains(&lmap)) {
            hook.deleted.insert(lmap, service.clone());
            let change = change(hook.is_over());
            let bytes = change.bytes();
            self.delivered.lost_verdicts += hook.offer(HookItem::Change(change), bytes, &mut self.event_bytes);
            woken.push(id);
        }
        for (&id, watcher) in self.watchers.iter_mut().filter(|(_, watcher)| watcher.lmap == lmap) {
            watcher.deleted = Some(service.clone());
            let item = RowItem::Change(change(!watcher.follow));
            self.delivered.lost_rows += watcher.offer(item, &mut self.row_bytes);
            woken.push(id);
        }
        woken
    }

    /// `service` has a new LMAP: hooks and watchers that follow the earlier one go on with it. Returns them.
    pub fn lmap_created(&mut self, lmap: LmapId, service: &ServiceName) -> Vec<HookId> {
        let change = |deleted| {
            let service = service.clone();
            LmapChange { deleted, service, reason: "", successor: Some(lmap), last: false }
        };
        let mut woken = Vec::new();
        for (&id, hook) in self.hooks.iter_mut().filter(|(_, hook)| hook.filter.follow) {
            let Some(deleted) = hook.deleted.iter().find(|(_, of)| *of == service).map(|(lmap, _)| *lmap) else {
                continue;
            };
            hook.deleted.retain(|_, of| of != service);
            hook.filter.lmaps.remove(&deleted);
            hook.filter.lmaps.insert(lmap);
            let change = change(deleted);
            let bytes = change.bytes();
            self.delivered.lost_verdicts += hook.offer(HookItem::Change(change), bytes, &mut self.event_bytes);
            woken.push(id);
        }
        let following = self.watchers.iter_mut().filter(|(_, watcher)| watcher.follow);
        for (&id, watcher) in following.filter(|(_, watcher)| watcher.deleted.as_ref() == Some(service)) {
            let item = RowItem::Change(change(core::mem::replace(&mut watcher.lmap, lmap)));
            watcher.deleted = None;
            self.delivered.lost_rows += watcher.offer(item, &mut self.row_bytes);
            woken.push(id);
        }
        woken
    }

    /// Whether a hook or watcher has been told that nothing follows, and everything for it was taken.
    #[must_use]
    pub fn is_over(&self, id: HookId) -> bool {
        let is_hook_over = |hook: &Hook| hook.is_over() && hook.queue.items.is_empty();
        let is_watcher_over = self
            .watchers
            .get(&id)
            .is_some_and(|watcher| watcher.deleted.is_some() && !watcher.follow && watcher.queue.items.is_empty());
        is_watcher_over || self.hooks.get(&id).is_some_and(is_hook_over)
    }

    /// Whether a hook with a stream wants the rows of verdicts of `lmap`.
    #[must_use]
    pub fn wants_features(&self, lmap: LmapId) -> bool {
        let attached = self.hooks.values().filter(|hook| hook.filter.features && hook.detached_at.is_none());
        attached.map(|hook| &hook.filter.lmaps).any(|lmaps| lmaps.is_empty() || lmaps.contains(&lmap))
    }
}
