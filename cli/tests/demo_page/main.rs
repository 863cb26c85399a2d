//! The live page in a real Chromium while the demo runs: each view shows what only a run gives. Pictures for the book
//! are of the same.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod monitoring;
mod pictures;
mod running;
mod viewer;
mod views;

use std::time::Duration;

use demo::fault::{Kind, Pace};
use support::wait::Wait;
use support::webdriver::Driver;

use running::Demo;
use viewer::Viewer;

/// How tests wait for a condition: five minutes, for busy machines.
const WAIT: Wait = Wait::up_to(Duration::from_mins(5)).pausing(Duration::from_millis(100));

/// Runs of which one has to have the hog's alarm before any other one.
const RUNS: usize = 3;

#[test]
#[ignore = "it judges times: `cargo xtask ci` runs it alone, with a release (UVIEW_PROGRAM)"]
fn each_view_shows_what_a_run_gives_and_the_function_that_burns_a_processor_is_the_widest() {
    let Some(driver) = Driver::start_for("the page of the demo in a browser") else { return };

    let is_judged = (0..RUNS).any(|number| shows_each_view(&driver, number));

    assert!(
        is_judged,
        "in each of {RUNS} runs another alarm came before the hog's, so that that was sampled meanwhile"
    );
}

/// One run, which is ended when everything was seen. The hog comes first: nothing else is sampled then. Returns whether
/// it was so.
fn shows_each_view(driver: &Driver, number: usize) -> bool {
    let demo = Demo::start(&["--quick"], &Pace::QUICK, &[Kind::CpuHog, Kind::Hang], number);
    let viewer = Viewer::open(driver, &demo, &demo.first_address());
    let prometheus = monitoring::start(&demo);

    // While it learns.
    views::services(&viewer);
    views::node(&viewer);
    views::sources(&viewer);
    views::receipt(&viewer);
    views::network(&viewer);
    views::map(&viewer);
    monitoring::gives_data(prometheus.as_ref());
    viewer.go("#/", "");
    demo.says("fault 1: cpu-hog in cart");
    let suspect = views::suspected_cause(&viewer);
    views::service(&viewer, &suspect);
    if !views::incident_of_the_hog(&viewer) {
        return false;
    }
    demo.says("fault 2: hang in payment");
    monitoring::alerts(prometheus.as_ref(), "payment");
    views::kept_trace(&viewer);
    views::incident_of_several_services(&viewer);
    views::kept_spans(&viewer);

    demo.interrupt();
    true
}
