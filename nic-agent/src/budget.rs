//! What the NIC agent may keep in memory, computed from its configuration (`--budget`, docs/bounds.md).

use std::collections::BTreeSet;

use agent_runtime::ConfigError;
use agent_runtime::budget::{Bound, Budget, CONNECTION_BYTES, Load, MIB};
use agent_runtime::program::ConfigArgs;
use lmap::Footprint;

use crate::config::{Config, StreamConfig, Transport};
use crate::network::{QUEUED_INTERVALS, peers};
use crate::outbox::{MAX_MESSAGE_BYTES, ROWS_BYTES};
use crate::pace::FAST_BYTES;
use crate::runner::pages;
use crate::settings::WorkerSettings;

/// The program, its threads, and what the allocator keeps of memory that is free.
const PROGRAM: u64 = 48 * MIB;
/// An LMAP's description of a column: title, labels, places, state of its aggregation.
const DESCRIPTION_BYTES: u64 = 600;
/// Expressions of all LMAPs: the host agent takes no more from operators.
const EXPRESSIONS: u64 = 4_096;
/// An expression of 64 operations and 16 names; a derived column has indices of the columns that it names, too.
const EXPRESSION_BYTES: u64 = 4 << 10;
/// A region: its claim, its address or mapping, and its place in a batch.
const REGION_BYTES: u64 = 512;
/// Memory that an RDMA device reads into.
const READ_BYTES: u64 = 4 * MIB;
/// Messages on their way to the connection.
const SENT_MESSAGES: u64 = 64;
/// Memory of one ring of an interface.
const RING_BYTES: u64 = 8 * MIB;
/// Copies of a verdict's bytes in memory, which has lists and names of its own, per encoded byte.
const DECODED: u64 = 4;

/// The budget of the configuration that `args` name.
///
/// # Errors
///
/// [`ConfigError`] if it cannot be used.
pub fn budget_of(args: &ConfigArgs) -> Result<Budget, ConfigError> {
    Ok(budget(&args.settings()?, args.load()))
}

/// What the agent keeps at most with `config`, on a node with `load`.
#[must_use]
pub fn budget(config: &Config, load: Load) -> Budget {
    let settings = config.settings();
    let mut bounds = vec![Bound {
        what: "program, threads, free memory that the allocator keeps",
        bytes: PROGRAM,
        from: "fixed",
        payer: "node",
        full: "–",
        metric: "resident_bytes",
    }];
    bounds.extend(lmaps(&settings, load, config.transport));
    bounds.push(FASTER);
    bounds.extend(retained(&settings));
    bounds.extend(queues(&settings, load));
    bounds.extend(edges(config));
    Budget { agent: "NIC agent", prefix: "uview_nic", load: Some(load), bounds, on_disk: Vec::new() }
}

/// Bounds of LMAPs that run.
fn lmaps(settings: &WorkerSettings, load: Load, transport: Transport) -> [Bound; 7] {
    let Load { services, columns } = load;
    let detector = Footprint::of(columns as usize, &settings.detector);
    let rows = settings.row_history as u64;
    [
        Bound {
            what: "detectors of services that are running",
            // The current one, and one that learns columns or an interval that have changed.
            bytes: services.saturating_mul(2 * (detector.learning + detector.fitted) as u64),
            from: "services × 2 detectors (a second one learns columns or an interval that have changed) × columns × (8 B × rows to learn from + 36 B × directions, at most as many as columns, or a quarter of these rows); `detector.rank`, `detector.sketch_rows`",
            payer: "service; how many series a user may have: `services.limits.series` of the host agent",
            full: "the host agent refuses series",
            metric: "lmap_bytes",
        },
        Bound {
            what: "rows for subscribers",
            bytes: load.all_columns().saturating_mul(8 * rows),
            from: "services × columns × 8 × `limits.row_history`",
            payer: "service",
            full: "the oldest row is overwritten",
            metric: "lmap_bytes",
        },
        Bound {
            what: "descriptions of columns",
            bytes: load.all_columns().saturating_mul(DESCRIPTION_BYTES),
            from: "services × columns × 600 B",
            payer: "service",
            full: "the host agent refuses series",
            metric: "column_bytes",
        },
        Bound {
            what: "expressions of operators, compiled",
            bytes: EXPRESSIONS * (EXPRESSION_BYTES + columns * 8),
            from: "4,096 × (4 KiB + columns × 8)",
            payer: "operator",
            full: "the host agent refuses the call",
            metric: "(the operator knows)",
        },
        Bound {
            what: "a fit in progress, one at a time",
            bytes: detector.job as u64,
            from: "columns × (32 B × rows to learn from + 72 B × directions + 32 B × columns), and a copy of the sketch",
            payer: "node",
            full: "others wait",
            metric: "(nothing is lost)",
        },
        Bound {
            what: "buffers of regions, and what is kept of histograms between reads",
            bytes: settings.regions.bytes,
            from: "`limits.region_bytes`",
            payer: "user: three times what is free",
            full: "the LMAP is refused, and `uview status` says who has most",
            metric: "buffer_bytes",
        },
        Bound {
            what: "attached regions, and memory for READs",
            bytes: settings.regions.regions as u64 * REGION_BYTES
                + if transport == Transport::Shm { 0 } else { READ_BYTES },
            from: "`limits.regions` × 512 B + 4 MiB unless `transport: shm`",
            payer: "user: three times what is free",
            full: "the LMAP is refused",
            metric: "regions",
        },
    ]
}

/// What LMAPs take that are fetched faster.
const FASTER: Bound = Bound {
    what: "columns of LMAPs that are fetched faster, since something seems wrong",
    bytes: FAST_BYTES,
    from: "fixed; how many READs: `limits.extra_reads_per_s`",
    payer: "node",
    full: "the LMAP is fetched for its rows only",
    metric: "fast_bytes",
};

/// What is kept for those who come back.
fn retained(settings: &WorkerSettings) -> [Bound; 2] {
    [
        Bound {
            what: "detectors of services without a configuration, for a host agent that comes back",
            bytes: settings.max_retained_detector_bytes,
            from: "`limits.retained_detector_bytes`, for `limits.detector_retention_s`",
            payer: "user: whoever has most loses the oldest first",
            full: "only their models are kept",
            metric: "evicted_detectors",
        },
        Bound {
            what: "models of services that are gone, and of intervals that operators have changed",
            bytes: settings.max_retained_model_bytes,
            from: "`limits.retained_model_bytes`, `limits.retained_models`, for a day",
            payer: "user: whoever has most loses the oldest first",
            full: "dropped",
            metric: "evicted_models",
        },
    ]
}

/// What waits for the host agent, or came from it.
fn queues(settings: &WorkerSettings, load: Load) -> [Bound; 3] {
    [
        Bound {
            what: "verdicts, summaries and problems for the host agent",
            bytes: MAX_MESSAGE_BYTES as u64 * DECODED,
            from: "8 MiB encoded, `limits.outbox_messages`",
            payer: "node",
            full: "the oldest are lost",
            metric: "lost_verdicts",
        },
        Bound {
            what: "rows for the host agent",
            bytes: (settings.outbox_rows as u64 + SENT_MESSAGES).saturating_mul(ROWS_BYTES as u64),
            from: "(`limits.outbox_rows` + 64) × 256 KiB",
            payer: "node",
            full: "the newest are lost",
            metric: "lost_rows",
        },
        Bound {
            what: "configurations from the host agent that wait for a fetch to end",
            bytes: load.all_columns().saturating_mul(DESCRIPTION_BYTES / 2),
            from: "services × columns × 300 B, 4,096 messages",
            payer: "host agent",
            full: "the connection is closed and opened again",
            metric: "host_sessions",
        },
    ]
}

/// Connections and packets.
fn edges(config: &Config) -> [Bound; 5] {
    let network = &config.network;
    let captured = network.streams.iter().filter(|stream| stream.switch.is_none());
    let mut read: BTreeSet<_> = captured.map(|stream| stream.interface.as_str()).collect();
    read.extend(network.fragment.iter().map(|fragment| fragment.interface.as_str()));
    let rings = |name: &str| network.interfaces.iter().find(|of| of.name == name).map_or(1, |of| u64::from(of.rings));
    let rings: u64 = read.into_iter().map(rings).sum();
    // Which ones policies name is not known: each is one of those with most rings.
    let most = network.interfaces.iter().map(|of| u64::from(of.rings)).max().unwrap_or(1);
    let rings = rings + u64::from(network.policy_interfaces) * most;
    let one_way: u64 = network.streams.iter().filter(|of| of.one_way.is_some()).map(StreamConfig::bytes).sum();
    let pages = pages::LIMITS.connections as u64;
    let peers = if network.peers.listen.is_some() { peers::LIMITS.connections as u64 } else { 0 };
    let models = if config.models.socket.is_some() { pages::MODEL_BYTES } else { 0 };
    [
        Bound {
            what: "connections to `/metrics` and `models.socket`, and of other NIC agents",
            bytes: (pages * (1 + u64::from(config.models.socket.is_some())) + peers) * CONNECTION_BYTES,
            from: "128 each, 256 with `network.peers.listen`, × 64 KiB",
            payer: "user or address: half of each",
            full: "refused",
            metric: "broken_connections",
        },
        Bound {
            what: "pages of metrics, and models, that have been asked for and not read",
            bytes: pages::PAGE_BYTES + models,
            from: "16 MiB, with `models.socket` 32 MiB more",
            payer: "user or address: three times what is free",
            full: "the request is refused",
            metric: "refused_pages",
        },
        Bound {
            what: "requests of other NIC agents, and responses that they have not read",
            bytes: if network.peers.listen.is_some() { peers::CALL_BYTES } else { 0 },
            from: "64 MiB with `network.peers.listen`",
            payer: "certificate: three times what is free",
            full: "the call is refused, and tried again",
            metric: "(it is tried again)",
        },
        Bound {
            what: "synopses of packets, and rings of interfaces",
            bytes: network.memory_bytes + rings * RING_BYTES,
            from: "`network.memory_bytes` + 8 MiB for each ring of an interface with streams or a fragment, and of `network.policy_interfaces` more",
            payer: "node; of policies, the oldest first",
            full: "the configuration, or the stream of a policy, is refused, and its status says what is full and by whom; frames are dropped",
            metric: "dropped_frames",
        },
        Bound {
            what: "intervals of one-way streams that wait for the other end",
            bytes: one_way * QUEUED_INTERVALS as u64,
            from: "8 × `memory_bytes` of each `one_way` stream",
            payer: "stream",
            full: "the interval is lost",
            metric: "(the stream says)",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, load: Load) -> Budget {
        budget(&Config::parse(text).unwrap(), load)
    }

    fn row(budget: &Budget, what: &str) -> u64 {
        budget.bounds.iter().find(|bound| bound.what.starts_with(what)).unwrap().bytes
    }

    #[test]
    fn each_key_moves_its_own_row() {
        let load = Load { services: 10, columns: 100 };
        let plain = of("", load);
        for (text, what, bytes) in [
            ("limits: {region_bytes: 4096}", "buffers", 4096),
            ("limits: {retained_detector_bytes: 7}", "detectors of services without", 7),
            ("limits: {retained_model_bytes: 5}", "models", 5),
            ("limits: {outbox_rows: 2}", "rows for the host", (2 + SENT_MESSAGES) * (256 << 10)),
            ("limits: {regions: 100}", "attached regions", 100 * REGION_BYTES + READ_BYTES),
            ("network: {memory_bytes: 65536}", "synopses", 65_536),
            ("network: {fragment: {id: 1, interface: e}}", "synopses", (16 << 20) + RING_BYTES),
            ("network: {policy_interfaces: 2}", "synopses", (16 << 20) + 2 * RING_BYTES),
        ] {
            let other = of(text, load);
            assert_eq!(row(&other, what), bytes, "{text}");
            assert_eq!(other.total() + row(&plain, what), plain.total() + bytes, "{text}: other rows differ");
        }
    }

    #[test]
    fn a_detector_is_counted_with_all_rows_that_it_learns_from_and_the_largest_basis() {
        let detectors =
            |text: &str, columns| row(&of(text, Load { services: 1, columns }), "detectors of services that");

        // Rows to learn from are 16 kB a column. 25 rows of a sketch would be .4 kB, twice 198 are 3.2 kB.
        assert!((2 * 1_950_000..2 * 2_150_000).contains(&detectors("", 100)), "{}", detectors("", 100));
        let small = detectors("detector: {rank: 12, sketch_rows: 25}", 100);
        assert!((2 * 1_600_000..2 * 1_750_000).contains(&small), "{small}");
    }

    #[test]
    fn the_budget_grows_with_services_and_columns() {
        let few = of("", Load { services: 100, columns: 100 }).total();
        let more = of("", Load { services: 200, columns: 100 }).total();
        let wider = of("", Load { services: 100, columns: 200 }).total();

        assert!(more > few && wider > few, "{few} {more} {wider}");
    }
}
