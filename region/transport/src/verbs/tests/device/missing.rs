//! Missing parts: tests/rdma/vm/missing removes the device, its driver, the modules and the library, one after the
//! other, and checks the errors.

use std::process::Command;
use std::time::Duration;

use super::super::{batch, pair, regions};
use crate::fetch::RegionReader as _;
use crate::verbs::clock::Stopwatch;
use crate::verbs::{Device, DeviceChoice, Library};

#[test]
#[ignore = "is started by tests/rdma/vm/missing"]
fn what_is_missing_is_said() {
    let library = match Library::load() {
        Ok(library) => library,
        Err(error) => return println!("MISSING {error}"),
    };
    match Device::open(&library, &DeviceChoice::default()) {
        Ok(device) => println!("MISSING nothing: {device}"),
        Err(error) => println!("MISSING {error}"),
    }
}

/// Cards that are unplugged are taken away from under their users; soft-RoCE waits for them, so that only the stand-in
/// shows the former.
#[test]
#[ignore = "is started by tests/rdma/vm/missing"]
fn soft_roce_is_removed_when_nobody_has_it_open_any_more() {
    let (mut reader, mut host) = pair();
    let _services = regions(2, &mut reader, &mut host);
    let mut batch = batch(1..=2);
    reader.fetch(&mut batch).unwrap();
    let mut removal = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().unwrap();

    let start = Stopwatch::start();
    while start.elapsed() < Duration::from_secs(1) {
        reader.fetch(&mut batch).unwrap();
    }
    assert!(removal.try_wait().unwrap().is_none(), "it waits");

    drop((reader, host));
    assert!(removal.wait().unwrap().success());
    println!("MISSING removed");
}
