//! Fork after registration, alone in its process: a child must not come upon another test's threads.
#![expect(unsafe_code, reason = "the only safe way to fork is to run a closure before exec")]

#[expect(dead_code, reason = "one test needs a part of it")]
mod fake_agent;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fake_agent::{FakeAgent, WAIT};
use uview::{Cause, Connection, Service};

/// Tells the parent which of the child's findings does not hold.
fn must(holds: bool, finding: i32) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::from_raw_os_error(finding)) }
}

#[test]
fn a_childs_adds_are_seen_and_its_status_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    let counter = client.counter("requests").register();
    counter.add(1);
    WAIT.until("registration", || matches!(client.status().connection, Connection::Registered { .. }).then_some(()));

    let mut childs = Some((client.clone(), counter.clone()));
    let mut child = Command::new("true");
    let before_exec = move || {
        let Some((client, counter)) = childs.take() else { return must(false, 1) };
        (0..100_000).for_each(|_| counter.add(1));
        let shared = client.counter("requests").register();
        shared.add(1);
        must(shared.get() >= 100_001, 2)?;
        let own = client.counter("registered.in.the.child").register();
        own.add(1);
        must(own.get() == 1, 3)?;
        client.remove(shared);
        let status = client.status();
        must(status.forked && status.connection == Connection::Off, 4)?;
        must(status.problems.iter().any(|problem| problem.cause == Cause::Forked), 5)?;
        must(status.series == 1, 6)?;
        // Dropping a client in the child neither stops the parent's thread nor waits for it.
        drop(client);
        Ok(())
    };
    // SAFETY: the closure allocates and locks, which is not safe in a child in general. The C library of this platform
    // makes its allocator usable after fork, and the client's lock is only tried there: that is what this test is
    // about.
    let mut child = unsafe { child.pre_exec(before_exec) }.spawn().expect("every finding of the child holds");
    (0..100_000).for_each(|_| counter.add(1));
    assert!(child.wait().unwrap().success());

    assert_eq!(counter.get(), 200_002, "parent and child have both counted right");
    assert!(!client.status().forked);
    let _later = client.counter("later").register();
    agent.until("the parent is heard as before", |state| (state.series().len() == 2).then_some(()));
    agent.look(|state| {
        assert_eq!(state.value("requests"), Some(200_002));
        assert_eq!((state.connections, state.ended), (1, 0));
        assert!(state.retired().is_empty(), "a child takes nothing back");
    });
}
