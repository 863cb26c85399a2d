//! What monitored programs expose and export.

use exposition::choice::ChoiceSettings;
use exposition::{Format, Target, TargetSettings};

/// Points of an OTLP export that are looked at.
const POINTS: usize = 100;

/// Takes `page` in `format`; as an OTLP export without one, beside what another replica takes of it. Whether there is
/// something to choose.
fn take(target: &mut Target, page: &[u8], format: Option<Format>) -> bool {
    let Some(format) = format else {
        let (mut twin, _) = (target.twin(), target.is_next(page));
        for target in [&mut twin, target] {
            target.begin();
            let looked_at = target.take_part(page, POINTS);
            assert!(looked_at.taken <= looked_at.points && looked_at.points <= POINTS, "the limit of points holds");
        }
        twin.end();
        let mut slots = vec![0; twin.slots() as usize];
        twin.store(|slot, value| slots[slot.0 as usize] = value);
        return target.end();
    };
    match target.take(page, format) {
        Ok(choose) => choose,
        Err(error) => {
            assert!(error.to_string().len() < 1_000, "an error is short");
            false
        }
    }
}

/// Scrapes of an endpoint, or exports of OTLP metrics: the first byte is the format, the rest the same page three times
/// and half of it. Nothing is written outside of the region, and counters do not fall.
pub fn exposition(bytes: &[u8]) {
    let Some((&format, page)) = bytes.split_first() else { return };
    let formats = [Some(Format::Text), Some(Format::OpenMetrics), Some(Format::Protobuf), None];
    let format = formats[usize::from(format) % formats.len()];
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 50, label_sets: 3 };
    let mut target = Target::new(TargetSettings { choice, labels: vec![], window: 2, samples: 200, hold: 0 });
    let mut before = Vec::new();
    for page in [page, page, page, &page[..page.len() / 2]] {
        if take(&mut target, page, format) {
            target.choose();
            before.clear();
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
