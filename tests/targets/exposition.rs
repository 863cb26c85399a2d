//! What monitored programs expose.

use exposition::choice::ChoiceSettings;
use exposition::{Format, Target, TargetSettings};

/// Scrapes of an endpoint: the first byte is the format, the rest the same page three times and half of it. Nothing is
/// written outside of the region, and counters do not fall.
pub fn exposition(bytes: &[u8]) {
    let Some((&format, page)) = bytes.split_first() else { return };
    let format = [Format::Text, Format::OpenMetrics, Format::Protobuf][usize::from(format) % 3];
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 50, label_sets: 3 };
    let mut target = Target::new(TargetSettings { choice, labels: vec![], window: 2, samples: 200, hold: 0 });
    let mut before = Vec::new();
    for page in [page, page, page, &page[..page.len() / 2]] {
        match target.take(page, format) {
            Ok(true) => {
                target.choose();
                before.clear();
            }
            Ok(false) => {}
            Err(error) => assert!(error.to_string().len() < 1_000, "an error is short"),
        }
        let mut slots = vec![0; target.slots() as usize];
        target.store(|slot, value| slots[slot.0 as usize] = value);
        for (placed, end) in target.placed().iter().zip(target.placed().iter().skip(1)) {
            assert!(placed.first.0 + placed.series.kind.slots() == end.first.0, "series lie beside each other");
        }
        let counters = target.placed().into_iter().filter(|placed| placed.series.kind == wire::metric::Kind::Counter);
        for placed in counters {
            let at = placed.first.0 as usize;
            assert!(before.get(at).is_none_or(|before| *before <= slots[at]), "{} fell", placed.series.title());
        }
        before = slots;
        let report = target.report();
        assert!(report.columns <= 50 && report.exposed <= 200);
    }
}
