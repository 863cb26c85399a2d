//! Requests of a shop: spans of 5 ms to 45 s on any node, roots last, retries, traces whose root never comes.

use std::collections::BTreeMap;

use hooks::tracing::TraceId;

/// SplitMix64: a run is determined by its seed.
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, below: u64) -> u64 {
        self.draw() % below
    }

    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }
}

/// A span as its service records it. Times are milliseconds of true time.
#[derive(Clone, Copy, Debug)]
pub struct RecordedSpan {
    pub trace: TraceId,
    /// From 1 on; the root has 1.
    pub number: u8,
    pub service: &'static str,
    pub operation: &'static str,
    pub root: bool,
    pub start: u64,
    pub end: u64,
    pub error: bool,
    /// The node of its service.
    pub node: usize,
}

/// Ground truth of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    /// A bit for each span.
    pub spans: u64,
    /// It passes payment.
    pub pays: bool,
    pub start: u64,
}

pub struct Shop {
    pub nodes: usize,
    /// Payment does not reply between these times: its callers wait until the second.
    pub hang: Option<(u64, u64)>,
    /// The longest request in milliseconds, of which one in twenty is.
    pub longest: u64,
    /// One trace in so many has no root.
    pub orphans: u64,
    pub truth: BTreeMap<TraceId, Truth>,
    random: Random,
    number: u64,
}

impl Shop {
    pub fn new(nodes: usize, seed: u64) -> Self {
        let (truth, random) = (BTreeMap::new(), Random(seed));
        Self { nodes, hang: None, longest: 45_000, orphans: 50, truth, random, number: 0 }
    }

    fn trace(&mut self) -> TraceId {
        self.number += 1;
        let id = (u128::from(self.random.draw()) << 64) | u128::from(self.random.draw());
        TraceId::new((id | 1).to_be_bytes()).expect("not zero")
    }

    /// A request that begins at `start`: its spans, the root last, if there is one.
    pub fn request(&mut self, start: u64, mut into: impl FnMut(RecordedSpan)) {
        let trace = self.trace();
        let random = &mut self.random;
        let length = if random.one_in(20) { 500 + random.below(self.longest - 500) } else { 5 + random.below(500) };
        let pays = random.one_in(2);
        let hung = self.hang.filter(|(from, to)| pays && (*from..*to).contains(&start));
        let end = hung.map_or(start + length, |(_, to)| to + random.below(200));
        let operation = if pays { "POST /pay" } else { "GET /list" };
        let (inner, deeper) = if pays { ("payment", "ledger") } else { ("catalog", "stock") };
        let mut spans = Vec::new();
        let mut number = 1;
        let mut child = |random: &mut Random, service, from: u64, error| {
            number += 1;
            let start = from + random.below(end - from);
            let end = start + 1 + random.below(end - start);
            let node = random.below(self.nodes as u64) as usize;
            spans.push(RecordedSpan {
                trace,
                number,
                service,
                operation: "handle",
                root: false,
                start,
                end,
                error,
                node,
            });
        };
        // The service that was asked first hangs for as long as the request.
        child(random, inner, start, false);
        for _ in 0..random.below(6) {
            let error = random.one_in(1_000);
            child(random, deeper, start, error);
            if error || random.one_in(30) {
                child(random, deeper, start, false);
            }
        }
        if hung.is_some() {
            (spans[0].start, spans[0].end) = (start + 1, end - 1);
        }
        if !random.one_in(self.orphans) {
            // The frontend has replicas on all nodes but the last one.
            let node = random.below(self.nodes as u64 - 1) as usize;
            let (service, error) = ("frontend", false);
            spans.push(RecordedSpan { trace, number: 1, service, operation, root: true, start, end, error, node });
        }
        let bits = spans.iter().fold(0, |bits, span| bits | 1 << span.number);
        self.truth.insert(trace, Truth { spans: bits, pays, start });
        spans.into_iter().for_each(&mut into);
    }
}
