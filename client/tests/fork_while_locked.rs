//! Forks while another thread registers and asks without a pause.
#![expect(unsafe_code, reason = "the only safe way to fork is to run a closure before exec")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use uview::Service;

/// Without the lock's handlers, 19 of these had no session.
const CHILDREN: usize = 100;

#[test]
fn each_child_has_its_parents_series() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let counter = client.counter("requests").register();
    let is_over = AtomicBool::new(false);

    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = client.status();
            }
        });
        let outcome = (0..CHILDREN).try_for_each(|_| {
            let client = client.clone();
            let before_exec = move || {
                client.counter("requests").register().add(1);
                Ok(())
            };
            let mut child = Command::new("true");
            // SAFETY: the closure allocates and locks, which is not safe in a child in general. The C library of this
            // platform makes its allocator usable after fork, and the client its lock: that is what this test is about.
            let status = unsafe { child.pre_exec(before_exec) }.status()?;
            if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
        });
        is_over.store(true, Ordering::Relaxed);
        outcome
    });

    outcome.expect("each child ends well");
    assert_eq!(counter.get(), CHILDREN as u64);
}
