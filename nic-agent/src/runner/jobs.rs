//! The thread that runs the detectors' jobs, at lower priority than the worker.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::event::Event;
use crate::jobs::JobId;

/// Most jobs queued for the thread; others stay in the worker.
const QUEUE_LENGTH: usize = 64;
/// Nice value of the thread.
const NICE: i32 = 10;

/// Starts the thread. It ends when the sender is dropped and its current job is done.
///
/// # Errors
///
/// The system cannot start a thread.
pub(super) fn start(events: SyncSender<Event>) -> io::Result<SyncSender<(JobId, lmap::Job)>> {
    let (sender, jobs) = sync_channel::<(JobId, lmap::Job)>(QUEUE_LENGTH);
    thread::Builder::new().name("jobs".to_owned()).spawn(move || {
        // On Linux the nice value is the thread's, not the process's.
        if let Err(error) = rustix::process::nice(NICE) {
            tracing::warn!(%error, "cannot lower the priority of the jobs' thread");
        }
        for (id, job) in jobs {
            if events.send(Event::Done(id, job.run())).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}
