//! Writes a capture file of synthetic traffic, to try things out:
//! `cargo run -p packets --example traffic -- FILE [CONNECTIONS [SEED]]`.

use std::fs::File;
use std::io::{self, BufWriter};

use packets::Link;
use packets::file::Writer;
use packets::generator::{Traffic, TrafficSettings};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let path = arguments.next().ok_or_else(|| wrong("which file is to be written?"))?;
    let mut number = |default: u32| {
        arguments.next().map_or(Ok(default), |text| text.parse().map_err(|_| wrong("that is no number")))
    };
    let (connections, seed) = (number(1_000)?, number(1)?);
    let settings =
        TrafficSettings { connections, queries: connections, seed: u64::from(seed), ..TrafficSettings::default() };
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), Link::Ethernet, 96)?;
    for frame in Traffic::new(&settings).frames() {
        writer.write(&frame)?;
    }
    writer.finish()?;
    Ok(())
}
