//! The thread that registers the metrics and keeps them: ten times a second it moves counts of children that were
//! forked before, and sums the levels of the processes.

use std::time::Duration;

use client::Service;

use crate::meters::Meters;
use crate::{environment, process};

const PERIOD: Duration = Duration::from_millis(100);

/// Publishes until the process `pid` ends.
pub(crate) fn run(pid: u32, meters: &Meters) {
    // The program's terminal is not ours, whatever happens. Only of this library: a program has a hook of its own.
    std::panic::set_hook(Box::new(|_| {}));
    process::own_thread();
    process::separate_descriptors();
    let Some(block) = process::block() else { return };
    let environment = environment::get();
    let mut service = Service::new(environment.service()).at_thread_start(process::own_thread);
    if let Some(socket) = &environment.socket {
        service = service.socket(socket);
    }
    if environment.traffic_only {
        service = service.without_process_metrics();
    }
    let client = client::connect(service);
    loop {
        // The levels are read first and published last: who sees that a connection is gone sees all that was counted
        // of it.
        let levels = block.levels(pid, process::is_alive);
        meters.publish(block, &client);
        meters.set(levels, &client);
        if let Some(reason) = process::why_off() {
            meters.say_off(reason, &client);
        }
        std::thread::sleep(PERIOD);
    }
}
