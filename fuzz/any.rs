//! All targets in one program, for CI: it is linked once and not 37 times. `UVIEW_TARGET` names the one that runs.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("UVIEW_TARGET").unwrap_or_default();
    let named = e2e::targets::TARGETS.into_iter().find(|(target, _)| *target == name);
    named.expect("UVIEW_TARGET names a target").1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
