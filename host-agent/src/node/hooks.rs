//! Hooks and watchers: who is registered, and what is queued for them.

use std::sync::Arc;

use tokio::sync::Notify;
use wire::id::{HookId, LmapId};

use super::Node;
use crate::control_plane::Event;
use crate::dispatch::{Delivery, Filter, HookItem, RowItem, StreamId, TooManyHooks, UnknownHook, WatchedRow};

/// Why rows of an LMAP are not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no such LMAP.
    #[error("there is no {0}")]
    NoLmap(LmapId),
    /// The limit of hooks and watchers is reached.
    #[error(transparent)]
    TooMany(#[from] TooManyHooks),
}

impl Node {
    /// Registers a hook. It is notified when verdicts are queued for it.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] at the limit.
    pub fn register_hook(&self, filter: Filter, queue: usize) -> Result<(HookId, Arc<Notify>), TooManyHooks> {
        let (registered, _) = self.with(|state, now| {
            state.expire_detached(now);
            let id = state.dispatch.register(filter, queue)?;
            state.subscribe_all();
            Ok((id, state.notified(id)))
        });
        registered
    }

    /// Registers a hook of the agent itself, which takes no place of others. It is notified when verdicts are queued
    /// for it.
    pub(crate) fn register_own_hook(&self, filter: Filter, queue: usize) -> (HookId, Arc<Notify>) {
        let (registered, _) = self.with(|state, _| {
            let id = state.dispatch.register_own(filter, queue);
            state.subscribe_all();
            (id, state.notified(id))
        });
        registered
    }

    /// Removes a hook of the agent itself, with its place.
    pub(crate) fn unregister_own_hook(&self, id: HookId) {
        self.with(|state, _| {
            state.hooks.remove(&id);
            state.dispatch.unregister_own(id);
            state.subscribe_all();
        });
    }

    /// Registers a watcher of raw rows.
    ///
    /// # Errors
    ///
    /// [`WatchError`]: no such LMAP, or the limit of watchers is reached.
    pub fn watch_rows(
        &self,
        lmap: LmapId,
        every: u32,
        follow: bool,
        queue: usize,
    ) -> Result<(HookId, Arc<Notify>), WatchError> {
        self.with(|state, _| {
            if state.plane.columns(lmap).is_none() {
                return Err(WatchError::NoLmap(lmap));
            }
            let id = state.dispatch.watch(lmap, every, queue)?;
            if follow {
                state.dispatch.follow(id);
            }
            state.subscribe(lmap);
            Ok((id, state.notified(id)))
        })
        .0
    }

    /// The id of the stream that just began for hook `id`. It ends when another stream takes over.
    pub fn hook_stream(&self, id: HookId) -> Option<StreamId> {
        self.lock().dispatch.stream(id)
    }

    /// Another stream takes over hook `id`, starting after the verdict of sequence `after`. The previous stream is
    /// woken and gets an error at its next call.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] if the hook expired.
    pub fn resume_hook(&self, id: HookId, after: u64) -> Result<(StreamId, Arc<Notify>), UnknownHook> {
        self.with(|state, now| {
            state.expire_detached(now);
            let stream = state.dispatch.resume(id, after)?;
            state.subscribe_all();
            let notify = Arc::new(Notify::new());
            notify.notify_one();
            if let Some(before) = state.hooks.insert(id, Arc::clone(&notify)) {
                before.notify_one();
            }
            Ok((stream, notify))
        })
        .0
    }

    /// The stream of a hook broke. The hook is kept for a minute, so that another stream can resume it; until
    /// then, workers send no rows with verdicts for it.
    pub fn detach_hook(&self, id: HookId, stream: StreamId) {
        self.with(|state, now| {
            state.dispatch.detach(id, stream, now);
            state.subscribe_all();
        });
    }

    /// What is next for a stream of a hook.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] if another stream has taken over.
    pub fn next_event_for(&self, id: HookId, stream: StreamId) -> Result<Option<Delivery<HookItem>>, UnknownHook> {
        self.lock().dispatch.take_for(id, stream)
    }

    /// Removes a hook or watcher.
    pub fn unregister(&self, id: HookId) {
        self.with(|state, _| {
            state.hooks.remove(&id);
            match state.dispatch.unregister(id) {
                Some(lmap) => state.subscribe(lmap),
                None => state.subscribe_all(),
            }
        });
    }

    /// The next verdict for a hook.
    pub fn next_event(&self, id: HookId) -> Option<Delivery<Arc<Event>>> {
        self.lock().dispatch.take(id)
    }

    /// Whether a hook or watcher was told that all of its LMAPs are deleted, and gets nothing more.
    pub fn is_over(&self, id: HookId) -> bool {
        self.lock().dispatch.is_over(id)
    }

    /// The next row for a watcher, or what became of its LMAP.
    pub fn next_row_item(&self, id: HookId) -> Option<Delivery<RowItem>> {
        self.lock().dispatch.take_row(id)
    }

    /// The next row for a watcher. What became of its LMAP is left out.
    pub fn next_row(&self, id: HookId) -> Option<Delivery<WatchedRow>> {
        let mut state = self.lock();
        while let Some(Delivery { sequence, lost, item }) = state.dispatch.take_row(id) {
            if let RowItem::Row(item) = item {
                return Some(Delivery { sequence, lost, item });
            }
        }
        None
    }
}
