//! Profiles of real processes by the kernel's events, as far as it allows them here.
#![expect(clippy::panic, reason = "what a test prepares has to work, or the test fails")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use profile::{Event, Plan, ProfileError, take};
use wire::proto::operators::IncidentProfile;

fn plan(process: u32, event: Event, rounds: u32) -> Plan {
    Plan { processes: vec![(process, "it".to_owned())], event, rounds, frequency_hz: 99 }
}

/// The profile; `None` if the kernel refuses here, which CI says.
fn taken(plan: &Plan) -> Option<IncidentProfile> {
    let mut pause = |length: Duration| {
        std::thread::sleep(length);
        true
    };
    match take(plan, Path::new("/proc"), &mut pause) {
        Ok(profile) => Some(profile),
        Err(ProfileError::Refused { source, .. }) => {
            eprintln!("no profile here: {source}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Samples of stacks in which the function `name` is.
fn within(profile: &IncidentProfile, name: &str) -> u64 {
    let stacks = profile.stacks.iter();
    let has = |frames: &[u32]| frames.iter().any(|frame| profile.names[*frame as usize].contains(name));
    stacks.filter(|stack| has(&stack.frames)).map(|stack| stack.samples).sum()
}

// Without frame pointers, which tests are built without, only the function that runs is sure to be seen: these call
// nothing while they work.

#[inline(never)]
fn burn_until(over: &AtomicBool) {
    let mut number = 1_u64;
    while !over.load(Relaxed) {
        let mut turn = 0;
        while turn < 1_000_000 {
            number ^= number << 13;
            number ^= number >> 7;
            turn += 1;
        }
    }
    std::hint::black_box(number);
}

#[inline(never)]
fn touch(pages: &mut [u8]) {
    let mut at = 0;
    while at < pages.len() {
        pages[at] = 1;
        at += 4_096;
    }
}

fn touch_fresh_memory_until(over: &AtomicBool) {
    while !over.load(Relaxed) {
        touch(std::hint::black_box(&mut vec![0; 40 << 20]));
    }
}

fn wait_again_and_again_until(over: &AtomicBool) {
    while !over.load(Relaxed) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A profile of this process while `function` runs in a thread.
fn during(function: fn(&AtomicBool), event: Event) -> Option<IncidentProfile> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| function(&over));
        let profile = taken(&plan(std::process::id(), event, 10));
        over.store(true, Relaxed);
        profile
    })
}

#[test]
fn what_burns_faults_and_waits_is_named() {
    for (function, name, event) in [
        (burn_until as fn(&AtomicBool), "of_processes::burn_until", Event::ProcessorTime),
        (touch_fresh_memory_until, "of_processes::touch", Event::PageFaults),
        (wait_again_and_again_until, "libc.so", Event::Waiting),
    ] {
        // A busy machine may give it less than a fifth of a processor.
        let several = (0..10).find_map(|_| {
            let profile = during(function, event)?;
            (profile.samples >= 20).then_some(profile)
        });
        let Some(profile) = several.or_else(|| during(function, event)) else { return };
        let found = within(&profile, name);
        assert!(profile.samples >= 20 && 2 * found > profile.samples, "{name}: {found} of {profile:?}");
        assert_eq!((profile.event.as_str(), profile.left_out), (event.name(), 0));
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_process_that_dies_gives_what_it_has_given() {
    let shell = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let mut shell = Ended(shell);
    let plan = plan(shell.0.id(), Event::ProcessorTime, 10);
    let mut rounds = 0;
    let mut pause = |length: Duration| {
        std::thread::sleep(length);
        rounds += 1;
        if rounds == 4 {
            shell.end();
        }
        true
    };

    let profile = match take(&plan, Path::new("/proc"), &mut pause) {
        Err(ProfileError::Refused { .. }) => None,
        taken => Some(taken.unwrap()),
    };
    let Some(profile) = profile else { return };
    assert!(profile.samples > 0 && !profile.stacks.is_empty(), "{profile:?}");
    assert_eq!(profile.names.first().map(String::as_str), Some("it"));
}

#[test]
fn a_process_that_is_gone_is_an_error() {
    let mut gone = Command::new("true").spawn().unwrap();
    let process = gone.id();
    gone.wait().unwrap();

    let error = take(&plan(process, Event::ProcessorTime, 1), Path::new("/proc"), &mut |_| true).unwrap_err();

    assert!(matches!(error, ProfileError::Gone { process: of } if of == process), "{error}");
}
