//! Packets that pass: one thread for each interface reads its ring, and has the synopses of the streams on it. Threads share nothing.
//!
//! Every interval, what is known of a stream becomes metrics of a service of its own (`network.NAME`), written into shared memory by the same
//! library that services use, so that it is scraped and judged as any other. The host agent has to be on this machine.
//!
//! What cannot be trusted is written as missing, never as a number: an LMAP takes a metric that is missing for nothing.

mod stream;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use packets::Source as _;
use packets::ring::{Ring, RingSettings};

use crate::clock::unix_now;
use crate::config::{NetworkConfig, StreamConfig};
use crate::error::told;
use stream::Stream;

/// How long the ring waits for a frame: how late an interval may end.
const WAIT: Duration = Duration::from_millis(20);
/// Between two tries to open an interface, or to read one that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// An interface that cannot be read is told so often.
const TOLD: u32 = 60;

/// The threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    stop: Arc<AtomicBool>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Starts a thread for each interface that a stream is on; none if there is no stream.
///
/// # Errors
///
/// The system gives no thread.
pub(crate) fn start(config: &NetworkConfig) -> io::Result<Network> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut interfaces: BTreeMap<&str, Vec<StreamConfig>> = BTreeMap::new();
    for stream in &config.streams {
        interfaces.entry(&stream.interface).or_default().push(stream.clone());
    }
    for (interface, streams) in interfaces {
        let (stop, socket, interface) = (Arc::clone(&stop), config.services_socket.clone(), interface.to_owned());
        thread::Builder::new().name("packets".to_owned()).spawn(move || watch(&interface, &streams, &socket, &stop))?;
    }
    Ok(Network { stop })
}

/// One interface, until the end. One that is not there, or goes away, is waited for.
fn watch(interface: &str, streams: &[StreamConfig], socket: &Path, stop: &AtomicBool) {
    let made: Result<Vec<Stream>, _> =
        streams.iter().map(|stream| Stream::new(stream, socket, rand::random())).collect();
    let mut streams = match made {
        Ok(streams) => streams,
        Err(error) => {
            tracing::error!(interface, why = told(&error), "nothing is measured on this interface");
            return;
        }
    };
    let settings = RingSettings { interface: interface.to_owned(), wait: WAIT, ..RingSettings::default() };
    let mut tries = 0_u32;
    while !stop.load(Ordering::Acquire) {
        match Ring::open(&settings) {
            Ok(mut ring) => {
                tracing::info!(interface, streams = streams.len(), "packets are watched");
                tries = 0;
                if let Err(error) = pass(&mut ring, &mut streams, stop) {
                    tracing::warn!(interface, why = told(&error), "the interface cannot be read any more");
                }
            }
            Err(error) => {
                if tries.is_multiple_of(TOLD) {
                    tracing::warn!(interface, why = told(&error), "packets are not watched, trying again");
                }
                tries = tries.wrapping_add(1);
            }
        }
        if !stop.load(Ordering::Acquire) {
            thread::sleep(PAUSE);
        }
    }
}

/// Gives the interface's packets to all streams, and ends their intervals.
fn pass(ring: &mut Ring, streams: &mut [Stream], stop: &AtomicBool) -> Result<(), packets::SourceError> {
    let mut dropped = 0;
    while !stop.load(Ordering::Acquire) {
        ring.read(&mut |frame| streams.iter_mut().for_each(|stream| stream.insert(frame))).map(drop)?;
        let now_ns = unix_now();
        if streams.iter().any(|stream| stream.is_due(now_ns)) {
            // Frames that the kernel dropped are missing in all streams.
            let in_all = ring.counts().dropped;
            for stream in streams.iter_mut() {
                stream.lost(in_all - dropped);
                stream.end_interval(now_ns);
            }
            dropped = in_all;
        }
    }
    Ok(())
}
