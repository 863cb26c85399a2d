//! The span in which a thread works: those that begin there without a parent of their own are within it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::spans::context::TraceContext;

/// Spans that a thread can be in. Of more, the outermost are left.
const MOST: usize = 128;

/// A span that was entered: its context stays valid when it has ended.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    context: Option<TraceContext>,
}

/// The next entry's number. They differ over threads, so that none is taken for one of another thread.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The innermost is the last.
    static ENTERED: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A thread's stay in a span ([`Span::enter`](crate::Span::enter)), which ends when this is dropped.
#[derive(Debug)]
#[must_use = "a span that is left at once is current nowhere"]
pub struct EnteredSpan {
    number: u64,
    /// Dropped on another thread, it would leave nothing.
    of_thread: PhantomData<*const ()>,
}

impl EnteredSpan {
    /// This thread works in the span with this context from now on.
    pub(crate) fn new(context: Option<TraceContext>) -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        // A thread that is ending has left all of them.
        let _ = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            if entered.len() == MOST {
                entered.remove(0);
            }
            entered.push(Entry { number, context });
        });
        Self { number, of_thread: PhantomData }
    }
}

impl Drop for EnteredSpan {
    fn drop(&mut self) {
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().retain(|entry| entry.number != self.number));
    }
}

/// The context of the innermost span that this thread has entered.
pub(crate) fn context() -> Option<TraceContext> {
    ENTERED.try_with(|entered| entered.borrow().last().and_then(|entry| entry.context)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::context::{SpanId, TraceId};

    fn entered(span: u64) -> EnteredSpan {
        let trace: TraceId = format!("{:032x}", 7).parse().unwrap();
        let span: SpanId = format!("{span:016x}").parse().unwrap();
        EnteredSpan::new(Some(TraceContext::new(trace, span)))
    }

    fn current() -> Option<String> {
        context().map(|context| context.span.to_string().trim_start_matches('0').to_owned())
    }

    #[test]
    fn the_innermost_is_current_in_whatever_order_they_are_left() {
        assert_eq!(current(), None);
        let (one, two, three) = (entered(1), entered(2), entered(3));
        assert_eq!(current().as_deref(), Some("3"));

        drop(two);
        assert_eq!(current().as_deref(), Some("3"));
        drop(three);
        assert_eq!(current().as_deref(), Some("1"));
        drop(one);
        assert_eq!(current(), None);
    }

    #[test]
    fn each_thread_is_in_spans_of_its_own() {
        let _one = entered(1);

        let other = std::thread::spawn(|| {
            let before = current();
            let _two = entered(2);
            (before, current())
        });

        assert_eq!(other.join().unwrap(), (None, Some("2".to_owned())));
        assert_eq!(current().as_deref(), Some("1"));
    }

    #[test]
    fn one_without_a_context_hides_those_around_it() {
        let _one = entered(1);
        let _none = EnteredSpan::new(None);

        assert_eq!(current(), None);
    }

    #[test]
    fn what_is_never_left_is_bounded() {
        let all: Vec<_> = (1..=MOST as u64 + 20).map(entered).collect();

        assert_eq!(ENTERED.with(|entered| entered.borrow().len()), MOST);
        assert_eq!(current(), Some(format!("{:x}", MOST + 20)));
        drop(all);
        assert_eq!(current(), None);
    }
}
