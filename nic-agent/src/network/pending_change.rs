//! What becomes of a part of a stream at the end of its interval: other packets, or its end.

use std::sync::Arc;

use packets::Filter;

/// What becomes of a part at the end of its interval.
#[derive(Debug)]
pub(super) struct PendingChange {
    name: Arc<str>,
    filter: Option<Filter>,
    ends: bool,
    is_over: bool,
}

impl PendingChange {
    /// Nothing yet, of a part of the stream `name`.
    pub(super) fn of(name: &str) -> Self {
        Self { name: name.into(), filter: None, ends: false, is_over: false }
    }

    /// Name of the stream.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The next interval is of the packets that `filter` selects.
    pub(super) fn set_filter(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    /// This interval is the last one.
    pub(super) const fn end(&mut self) {
        self.ends = true;
    }

    /// An interval has ended. Returns the filter of the next one, if it is another one.
    pub(super) const fn interval_ended(&mut self) -> Option<Filter> {
        self.is_over = self.ends;
        self.filter.take()
    }

    /// No interval ends, since the interface cannot be read. What is to end has ended: of an interval that was not read
    /// to its end nothing is written.
    pub(super) const fn unreadable(&mut self) {
        self.is_over = self.ends;
    }

    /// Whether its last interval has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }
}
