//! Writes what a client of this release shares with an agent, for the test that later readers understand it:
//!
//! ```sh
//! cargo run -p uview --example golden_region
//! ```
//!
//! It replaces `region/tests/layout/VERSION`: the metric region, the span ring, and the messages that announce them.
//! Run it when a release has a new version of the layout, and never for an old one.

#![expect(clippy::print_stdout, reason = "a program for the command line")]

#[path = "../tests/fake_agent/mod.rs"]
#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;

use std::error::Error;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use fake_agent::FakeAgent;
use region::ReadMapping;
use uview::{Limits, Service, TraceId};
use wire::layout::{RegionSize, VERSION};
use wire::{frame, proto};

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let socket = place.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let limits = Limits { first_region: RegionSize::ONE_PAGE, spans: 4, ..Limits::default() };
    let uview = uview::connect(Service::new("payment").instance("payment-1").socket(&socket).limits(limits));
    uview.counter("requests").label("route", "/pay").unit("{request}").register().add(7);
    uview.up_down_counter("active").register().add(-3);
    uview.gauge("temperature").unit("Cel").register().set(21.5);
    let duration = uview.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
    for micros in [0, 900, 1_000, 50_000_000, 1 << 40] {
        duration.observe(micros);
    }
    let messages = uview.sharded_counter("messages").register();
    std::thread::scope(|scope| {
        for count in 1..=3 {
            let messages = &messages;
            scope.spawn(move || messages.add(count));
        }
    });
    let trace = TraceId::from_bytes([7; 16]).ok_or("it is not zero")?;
    uview.trigger(trace, "amount above 10");
    agent.until("all series and the ring", |state| (state.series().len() == 5 && state.ring.is_some()).then_some(()));

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../region/tests/layout/{VERSION}"));
    fs::create_dir_all(&folder)?;
    let (mut frames, mut region, mut ring) = (Vec::new(), Vec::new(), Vec::new());
    agent.look(|state| -> Result<(), Box<dyn Error>> {
        for message in &state.messages {
            frame::encode(&proto::registration::ServiceMessage::from(message), &mut frames)?;
        }
        region = bytes(state.regions[0].as_fd(), state.regions[0].size())?;
        let memory = state.ring.as_ref().ok_or("the ring is there")?;
        ring = bytes(memory.as_fd(), memory.size())?;
        Ok(())
    })?;
    for (name, bytes) in [("messages", frames), ("metrics", region), ("spans", ring)] {
        println!("{}: {} bytes", folder.join(name).display(), bytes.len());
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn bytes(memory: impl AsFd, size: RegionSize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut words = vec![0; size.words()];
    ReadMapping::map(memory.as_fd(), size)?.copy_into(&mut words)?;
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}
