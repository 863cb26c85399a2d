//! The thread that runs the detectors' jobs, at lower urgency than the worker.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::Event;
use crate::jobs::JobId;

/// Jobs that wait for the thread; more wait in the worker.
const WAITING: usize = 64;
/// How much less urgent the thread is than others.
const NICE: i32 = 10;

/// Starts the thread. It ends when the sender is dropped and its present job is done.
///
/// # Errors
///
/// The system gives no thread.
pub(super) fn start(events: SyncSender<Event>) -> io::Result<SyncSender<(JobId, lmap::Job)>> {
    let (sender, jobs) = sync_channel::<(JobId, lmap::Job)>(WAITING);
    thread::Builder::new().name("jobs".to_owned()).spawn(move || {
        // On Linux this is the thread's, not the process's.
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::warn!(%error, "jobs run at the urgency of the worker");
        }
        for (id, job) in jobs {
            if events.send(Event::Done(id, job.run())).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}
