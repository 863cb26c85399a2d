//! Passes packets from one interface to the other, at once or delayed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::time::Nanos;

use super::queue::Queue;
use super::tun::{Tun, use_realtime_priority};
use crate::clock::Clock;
use crate::noise::Noise;

/// Maximal packet length in bytes.
const LONGEST: usize = 1 << 16;
/// Packets read from one side before the other has its turn.
const BATCH: usize = 64;
/// Jitter: a packet's delay differs from the mean by up to this share.
const JITTER: f64 = 0.25;

/// Passes packets between two devices until one of them fails, and returns that error. `delay_ms` is the mean delay of
/// a packet in milliseconds.
pub(super) fn pass(pair: &[Tun; 2], delay_ms: &AtomicU64, noise: &mut Noise) -> io::Error {
    let _ = use_realtime_priority(); // without the privilege, delays are less even
    let clock = Clock::start();
    let mut packet = vec![0; LONGEST];
    let mut queues = [Queue::default(), Queue::default()];
    loop {
        for (from, queue) in queues.iter_mut().enumerate() {
            let (Some(here), Some(there)) = (pair.get(from), pair.get(1 - from)) else { continue };
            for _ in 0..BATCH {
                let length = match here.read(&mut packet) {
                    Ok(Some(length)) => length,
                    Ok(None) => break,
                    Err(error) => return error,
                };
                let Some(packet) = packet.get(..length) else { break };
                let late = lateness(delay_ms.load(Ordering::Relaxed), noise);
                if late == Nanos::ZERO && queue.is_empty() {
                    there.write(packet);
                } else {
                    queue.push(packet, clock.now(), late); // lost if the queue is full
                }
            }
            while let Some(packet) = queue.pop(clock.now()) {
                there.write(&packet);
            }
        }
        if let Err(error) = wait(pair, &queues, clock.now()) {
            return error;
        }
    }
}

/// Delay of one packet.
fn lateness(held_ms: u64, noise: &mut Noise) -> Nanos {
    if held_ms == 0 {
        return Nanos::ZERO;
    }
    Nanos((noise.between(1.0 - JITTER, 1.0 + JITTER) * Nanos::from_millis(held_ms).0 as f64) as u64)
}

/// Waits until a packet arrives, or a queued one is due.
fn wait(pair: &[Tun; 2], queues: &[Queue; 2], now: Nanos) -> io::Result<()> {
    let due = queues.iter().filter_map(Queue::next_due).min();
    let limit = due.map(|due| {
        let left = due.since(now).unwrap_or_default().0;
        Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
    });
    let mut ready = pair.each_ref().map(|tun| PollFd::new(tun, PollFlags::IN));
    match poll(&mut ready, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_delayed_by_the_mean_delay_plus_or_minus_a_quarter() {
        let mut noise = Noise::new(1, "link");

        let late: Vec<_> = (0..1000).map(|_| lateness(40, &mut noise).as_millis()).collect();

        assert!(late.iter().all(|ms| (30..=50).contains(ms)));
        assert!(late.iter().any(|ms| *ms < 32) && late.iter().any(|ms| *ms > 48));
        assert_eq!(lateness(0, &mut noise), Nanos::ZERO);
    }
}
