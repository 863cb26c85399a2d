//! How long a switch takes to pass packets on, by captures at both of its ports.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use packets::Source as _;
use packets::ring::{Ring, RingSettings};
use support::network::Network;
use support::relay::{name, patient_ring};

/// How long one port is waited for, while the other one is not read.
const TURN: Duration = Duration::from_millis(10);

/// When packets came and left, by their names in the relay's log, in nanoseconds since 1970.
#[derive(Debug, Default)]
struct Passages {
    came: HashMap<u64, u64>,
    left: HashMap<u64, u64>,
}

/// Captures what comes from the relay to the switch before a namespace, and what leaves towards that namespace.
#[derive(Debug)]
pub struct PassageWatcher {
    stop: Arc<AtomicBool>,
    passages: Arc<Mutex<Passages>>,
    thread: JoinHandle<Result<()>>,
}

fn locked(passages: &Mutex<Passages>) -> MutexGuard<'_, Passages> {
    passages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PassageWatcher {
    /// Starts with the switch before `space`.
    pub fn start(network: &Network, space: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let passages = Arc::new(Mutex::new(Passages::default()));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&passages));
        let [near, far] = Network::switch_ports(space);
        let thread = network.thread(space, move || {
            let far = RingSettings { incoming: true, wait: TURN, ..patient_ring(&far) };
            // What leaves, and what comes from the host, which is not looked for.
            let near = RingSettings { wait: TURN, ..patient_ring(&near) };
            let (mut far, mut near) = (Ring::open(&far)?, Ring::open(&near)?);
            while !stopped.load(Ordering::Acquire) {
                let _ = far.read(&mut |frame| {
                    locked(&shared).came.extend(name(frame.bytes).map(|name| (name, frame.time_ns)));
                })?;
                let _ = near.read(&mut |frame| {
                    locked(&shared).left.extend(name(frame.bytes).map(|name| (name, frame.time_ns)));
                })?;
            }
            Ok(())
        });
        Self { stop, passages, thread }
    }

    /// The mean of what packets took since the last call, in milliseconds. `None` if none passed.
    pub fn take_ms(&self) -> Option<f64> {
        let Passages { came, left } = std::mem::take(&mut *locked(&self.passages));
        let took = left.iter().filter_map(|(name, left_ns)| left_ns.checked_sub(*came.get(name)?));
        let (count, sum_ns) = took.fold((0_u64, 0), |(count, sum), took_ns| (count + 1, sum + took_ns));
        (count > 0).then(|| sum_ns as f64 / count as f64 / 1e6)
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// It could not read a port.
    pub fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow!("the thread that captures panicked"))?
    }
}
