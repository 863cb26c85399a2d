//! Every number that the model starts from, with where it is from. Seconds, bytes, and factors.

/// From the low to the high end of what is assumed.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The better end.
    pub best: f64,
    /// The worse end.
    pub worst: f64,
}

/// A card, as its maker describes it, and what is assumed of it.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// What it is called.
    pub name: &'static str,
    /// Processor cores that Linux sees.
    pub cores: f64,
    /// Memory of those, in bytes.
    pub memory: f64,
    /// PCIe transfers per second and lane, which carry a bit each.
    pub transfers: f64,
    /// PCIe lanes to the host.
    pub lanes: f64,
    /// How many times longer a core takes for our code than the machine that the costs were measured on. Assumed.
    pub slower: Range,
}

/// NVIDIA, "DOCA Installation Guide for Linux", table of supported DPUs: BlueField-2 E-Series 100GbE (MBF2M516A), PCIe Gen4 x16, 16 GB; and
/// BlueField-3 B3220, PCIe Gen5 x16, 16 cores, 32 GB. The 8 cores of BlueField-2: the thesis behind this project, Sec. 4.6.
pub const CARDS: [Card; 2] = [
    Card {
        name: "BlueField-2",
        cores: 8.0,
        memory: 16e9,
        transfers: 16e9,
        lanes: 16.0,
        slower: Range { best: 2.5, worst: 8.0 },
    },
    Card {
        name: "BlueField-3",
        cores: 16.0,
        memory: 32e9,
        transfers: 32e9,
        lanes: 16.0,
        slower: Range { best: 1.5, worst: 4.0 },
    },
];

/// PCI Express Base Specification, generations 3 to 5: 128 of 130 bits are data.
pub const PCIE_CODING: f64 = 128.0 / 130.0;
/// Bytes of data in one completion: what most hosts answer READs of a device with.
pub const PCIE_PAYLOAD: f64 = 128.0;
/// Bytes that each completion costs beside its data: framing, sequence number, header of three words, and check (same specification).
pub const PCIE_OVERHEAD: f64 = 20.0;
/// The share of the bus that metrics may use, since it is there for something else. Chosen.
pub const PCIE_SHARE: f64 = 0.1;

/// From posting a READ of host memory in the card to its completion. Assumed, in seconds; `ib_read_lat` measures it on a card.
pub const READ_LATENCY: Range = Range { best: 2e-6, worst: 6e-6 };
/// READs that a queue pair has under way: `READS` of transport/src/verbs/connect.rs.
pub const READS_UNDER_WAY: f64 = 16.0;
/// READs that are posted at a time: `ReaderLimits` of transport/src/verbs/reader.rs. The last of them is waited for.
pub const READS_POSTED: f64 = 256.0;

/// The share of an interval that a tick may fill; what is left is for the kernel, learning that was put off, and bad luck. Chosen.
pub const TICK_SHARE: f64 = 0.8;
/// The share of a card's memory that workers may use. Chosen.
pub const MEMORY_SHARE: f64 = 0.25;

// wire::layout, wire::control and wire::histogram; the test below compares, as with READs posted and rows kept.

/// Bytes of a page, of a region's header, and of a slot.
pub const PAGE: f64 = 4096.0;
/// Bytes of a region's header.
pub const HEADER: f64 = 64.0;
/// Bytes of a slot.
pub const SLOT: f64 = 8.0;
/// Slots of a histogram of the default scale.
pub const HISTOGRAM_SLOTS: f64 = 126.0;
/// Columns of a histogram: count, mean, p99.
pub const HISTOGRAM_COLUMNS: f64 = 3.0;
/// Bytes of the first region of a replica, of 2,000 slots, however few it uses: client/src/service.rs.
pub const FIRST_REGION: f64 = 4.0 * PAGE;
/// Bytes of the region with a replica's process metrics: host-agent/src/process_metrics.rs.
pub const PROCESS_REGION: f64 = PAGE;
/// LMAPs that a worker takes.
pub const MOST_LMAPS: f64 = 4096.0;

/// Rows that an LMAP keeps until it has learnt them: lmap/README.md.
pub const ROWS_LEARNT: f64 = 2000.0;
/// Rows that it keeps afterwards: `limits.rows_kept`.
pub const ROWS_KEPT: f64 = 100.0;
/// Bytes of the rest of a detector for each column: 0.1 MB at 141 (lmap/README.md).
pub const DETECTOR: f64 = 0.1e6 / 141.0;

/// Measured costs of one core of the virtual machine that docs/figures.md is from, in seconds; docs/scale.md says how.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A region, without what depends on its size: work request, header, bookkeeping. Not measured apart: the bar that the code has to keep.
    pub region: f64,
    /// A word that was fetched: from the READ's memory into the region's buffer.
    pub word: f64,
    /// A column of a replica, but for the first one: increment and aggregation.
    pub increment: f64,
    /// An LMAP of one replica with so many columns: increments, preparing, score, and learning every fifth row with its share of
    /// decompositions. Not on a line, since the sketch is larger for more columns, and caches are not.
    pub lmap: [(f64, f64); 4],
}

pub const COSTS: Costs = Costs {
    region: 200e-9,
    word: 0.5e-9,
    increment: 7.5e-9,
    lmap: [(8.0, 0.36e-6), (64.0, 3.3e-6), (128.0, 10e-6), (256.0, 36e-6)],
};

/// Bytes of one LMAP in the summary of a second, with 16 parts, and of a verdict, three reasons and groups each: messages of wire/proto/control.proto,
/// encoded; the test below does it.
pub const SUMMARY: f64 = 249.0;
/// See [`SUMMARY`].
pub const VERDICT: f64 = 185.0;
/// Of all looks at all LMAPs, the share that is worth a verdict at once: half of γ is reached, or the state has changed. Assumed.
pub const VERDICT_SHARE: f64 = 0.05;

/// A cluster on paper. All of it assumed.
pub mod cluster {
    /// Nodes, each with a DPU.
    pub const NODES: f64 = 10_000.0;
    /// Services with replicas on a node.
    pub const SERVICES: f64 = 50.0;
    /// Metrics of a service.
    pub const METRICS: f64 = 100.0;
    /// Seconds between two looks.
    pub const INTERVAL: f64 = 0.1;
    /// Episodes of a service per second: four a day, false ones included.
    pub const EPISODES: f64 = 4.0 / 86_400.0;
    /// Nodes that host a replica of the frontend, and so lead (the thesis, Sec. 4.7.1).
    pub const LEADERS: f64 = 100.0;
    /// Bytes of a message that says that an episode began or ended.
    pub const TRIGGER: f64 = 200.0;
    /// Seconds between two samples of a metric of a calm service, and of one that is not.
    pub const SPARSE: f64 = 30.0;
    /// See [`SPARSE`].
    pub const DENSE: f64 = 1.0;
    /// The share of time in which a service is not calm.
    pub const NOT_CALM: f64 = 0.01;
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use wire::histogram::Scale;
    use wire::proto::control as proto;
    use wire::{control, layout};

    use super::*;

    fn is(constant: f64, value: usize) {
        assert_eq!(constant, value as f64);
    }

    #[test]
    fn sizes_and_limits_are_those_of_the_code() {
        is(PAGE, layout::PAGE_BYTES);
        is(HEADER, layout::HEADER_BYTES);
        is(SLOT, layout::SLOT_BYTES);
        is(MOST_LMAPS, control::MAX_LMAPS);
        is(HISTOGRAM_SLOTS, Scale::DEFAULT.slots() as usize);
        is(FIRST_REGION, layout::RegionSize::for_slots(2000).unwrap().bytes());
        is(READS_POSTED, transport::verbs::ReaderLimits::default().reads as usize);
        is(ROWS_KEPT, nic_agent::WorkerSettings::default().rows_kept);
    }

    /// A repeated message takes its tag and its length, of seven bits a byte, beside its own bytes.
    fn bytes(length: usize) -> usize {
        length + if length < 128 { 2 } else { 3 }
    }

    #[test]
    fn messages_are_as_long_as_they_are() {
        let reason = proto::Reason {
            metric: 100,
            statistic: proto::Statistic::Mean.into(),
            share: 0.5,
            seen: 180.0,
            expected: 20.0,
            since_us: 4_200_000,
        };
        let group = proto::GroupShare { group: 1, share: 0.5 };
        let summary = proto::LmapSummary {
            lmap: 1000,
            epoch: 100_000,
            state: proto::State::Armed.into(),
            gamma: 3.5,
            scores: vec![1.25; 16],
            samples: 1_000_000,
            columns: 100,
            reasons: vec![reason; 3],
            groups: vec![group; 3],
            ..Default::default()
        };
        let verdict = proto::Verdict {
            lmap: 1000,
            epoch: 100_000,
            score: 9.5,
            gamma: 3.5,
            state: proto::State::Armed.into(),
            episode: proto::Episode::On.into(),
            reasons: vec![reason; 3],
            groups: vec![group; 3],
            row: None,
            silent_replicas: Vec::new(),
        };

        is(SUMMARY, bytes(summary.encoded_len()));
        is(VERDICT, bytes(verdict.encoded_len()));
    }
}
