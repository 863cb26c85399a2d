//! All input numbers of the model with their sources, in seconds, bytes, and factors.

/// A range of an assumed quantity.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The better end.
    pub best: f64,
    /// The worse end.
    pub worst: f64,
}

/// A card: its vendor's figures, and assumptions.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// Name of the card.
    pub name: &'static str,
    /// Number of processor cores in Linux.
    pub cores: f64,
    /// Memory of these cores, in bytes.
    pub memory: f64,
    /// PCIe transfers per second and lane; each carries a bit.
    pub transfers: f64,
    /// PCIe lanes to the host.
    pub lanes: f64,
    /// Factor by which a core is slower than the machine on which the costs were measured. Assumed.
    pub slower: Range,
}

/// NVIDIA, "DOCA Installation Guide for Linux", table of supported DPUs: BlueField-2 E-Series 100GbE (MBF2M516A), PCIe
/// Gen4 x16, 16 GB; and BlueField-3 B3220, PCIe Gen5 x16, 16 cores, 32 GB. The 8 cores of BlueField-2: the thesis
/// behind this project, Sec. 4.6.
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
/// Bytes of data in one completion, as most hosts respond to READs of a device.
pub const PCIE_PAYLOAD: f64 = 128.0;
/// Overhead of each completion in bytes: framing, sequence number, header of three words, and checksum (same
/// specification).
pub const PCIE_OVERHEAD: f64 = 20.0;
/// Share of the bus that metrics may use, since it has other uses. Chosen.
pub const PCIE_SHARE: f64 = 0.1;

/// Time from posting a READ of host memory in the card to its completion, in seconds. Assumed; `ib_read_lat` measures
/// it on a card.
pub const READ_LATENCY: Range = Range { best: 2e-6, worst: 6e-6 };
/// READs in flight per queue pair: `READS` of region/transport/src/verbs/connect.rs.
pub const READS_UNDER_WAY: f64 = 16.0;
/// READs posted at a time: `ReaderLimits` of region/transport/src/verbs/reader.rs. The reader waits for the last of
/// them.
pub const READS_POSTED: f64 = 256.0;

/// Share of an interval that a tick may take; the rest is for the kernel, deferred learning, and a margin. Chosen.
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
/// Maximal LMAPs of a worker.
pub const MAX_LMAPS: f64 = 4096.0;

/// Rows that an LMAP buffers until it has learnt from them: lmap/README.md.
pub const ROWS_LEARNT: f64 = 2000.0;
/// Rows that it buffers afterwards: `limits.row_history`.
pub const ROWS_KEPT: f64 = 100.0;
/// Other memory of a detector in bytes per column: 0.1 MB at 141 columns (lmap/README.md).
pub const DETECTOR: f64 = 0.1e6 / 141.0;

/// Measured costs of one core of the virtual machine that docs/figures.md is from, in seconds; docs/scale.md says how.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Fixed cost of a region: work request, header, accounting. Not measured separately: the required bound.
    pub region: f64,
    /// Copying a fetched word from the READ's memory into the region's buffer.
    pub word: f64,
    /// A column of each further replica: increment and aggregation.
    pub increment: f64,
    /// An LMAP of one replica by its number of columns: increments, preparation, score, and learning every fifth row
    /// with its share of decompositions. It is not linear, since more columns need a larger sketch, which fits caches
    /// less.
    pub lmap: [(f64, f64); 4],
}

pub const COSTS: Costs = Costs {
    region: 200e-9,
    word: 0.5e-9,
    increment: 7.5e-9,
    lmap: [(8.0, 0.36e-6), (64.0, 3.3e-6), (128.0, 10e-6), (256.0, 36e-6)],
};

/// Bytes of one LMAP in the summary of a second, with 16 parts, and of a verdict, three reasons and groups each:
/// messages of wire/proto/control.proto, encoded; the test below does it.
pub const SUMMARY: f64 = 249.0;
/// See [`SUMMARY`].
pub const VERDICT: f64 = 185.0;
/// Share of all ticks of all LMAPs with an immediate verdict: the score reaches half of γ, or the state changes.
/// Assumed.
pub const VERDICT_SHARE: f64 = 0.05;

/// An assumed cluster.
pub mod cluster {
    /// Number of nodes, each with a DPU.
    pub const NODES: f64 = 10_000.0;
    /// Services with replicas on a node.
    pub const SERVICES: f64 = 50.0;
    /// Metrics of a service.
    pub const METRICS: f64 = 100.0;
    /// Scrape interval in seconds.
    pub const INTERVAL: f64 = 0.1;
    /// Episodes of a service per second: four a day, false ones included.
    pub const EPISODES: f64 = 4.0 / 86_400.0;
    /// Nodes with a replica of the frontend, which are leaders (the thesis, Sec. 4.7.1).
    pub const LEADERS: f64 = 100.0;
    /// Bytes of a message at the start or end of an episode.
    pub const TRIGGER: f64 = 200.0;
    /// Seconds between two samples of a metric of a calm service, and of one in an episode.
    pub const SPARSE: f64 = 30.0;
    /// See [`SPARSE`].
    pub const DENSE: f64 = 1.0;
    /// Share of time in which a service is not calm.
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
        is(MAX_LMAPS, control::MAX_LMAPS);
        is(HISTOGRAM_SLOTS, Scale::DEFAULT.slots() as usize);
        is(FIRST_REGION, layout::RegionSize::for_slots(2000).unwrap().bytes());
        is(READS_POSTED, transport::verbs::ReaderLimits::default().reads as usize);
        is(ROWS_KEPT, nic_agent::WorkerSettings::default().row_history);
    }

    /// Encoded length of a repeated message: tag, length with seven bits per byte, and the message.
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
            replica: None,
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
            features: None,
        };

        is(SUMMARY, bytes(summary.encoded_len()));
        is(VERDICT, bytes(verdict.encoded_len()));
    }
}
