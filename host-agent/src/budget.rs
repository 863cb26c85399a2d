//! What the host agent may keep in memory, computed from its configuration (`--budget`, docs/bounds.md).

mod edges;
mod incidents;
mod models;
mod page;
mod spans;

use agent_runtime::ConfigError;
use agent_runtime::budget::{Bound, Budget, Load, MIB};
use agent_runtime::program::ConfigArgs;
use webhooks::GroupingRule;

use crate::config::{Config, Transport};
use crate::control_plane::{MAX_MEMBER_REGIONS, MAX_OVER_SEVERAL};
use crate::dispatch::Dispatch;
use crate::region_registration::MAX_HELD_BYTES;
use crate::{outbox, receipts, services_socket, span_ring, stored_models};

/// The program, its threads, and what the allocator keeps of memory that is free.
const PROGRAM: u64 = 48 * MIB;
/// A series in the catalogue, in its replica, and in the configuration of the LMAP, with what is declared about it.
const SERIES_BYTES: u64 = 2_400;
/// A service's connection: task, buffer, replica, process metrics.
const SERVICE_BYTES: u64 = 96 << 10;
/// A cgroup's region and open files, with the kernel's part of them.
const CGROUP_BYTES: u64 = 32 << 10;
/// A pod: its names, and those of 64 containers.
const POD_BYTES: u64 = 32 << 10;
/// Objects of one answer: 25 pods.
const ANSWER_BYTES: u64 = 16 * MIB;
/// Bytes per byte of a service's message while it is decoded: empty series are the worst.
const DECODED: u64 = 16;
/// Messages of services that are decoded at a time: one for each thread of the control plane.
const THREADS: u64 = 2;
/// A region that one worker reads by RDMA: its registration here and in the device's library.
const REGISTRATION_BYTES: u64 = 512;
/// Workers that have a region registered at a time: two while its LMAP moves.
const REGISTERED: u64 = 2;
/// Regions of LMAPs over several services, which may run on other workers than those of the services.
const MEMBER_REGIONS: u64 = (MAX_OVER_SEVERAL * MAX_MEMBER_REGIONS) as u64;
/// What sampling remembers of a series, for each remote monitor.
const SAMPLED_BYTES: u64 = 600;
/// Resources and scopes of buffered spans, for each tenant.
const ORIGIN_BYTES: u64 = 16 * MIB;

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
    let mut bounds = vec![Bound {
        what: "program, threads, free memory that the allocator keeps",
        bytes: PROGRAM,
        from: "fixed",
        payer: "node",
        full: "–",
        metric: "resident_bytes",
    }];
    bounds.extend(services(config));
    bounds.push(cgroups(config));
    bounds.push(pods(config));
    bounds.push(Bound {
        what: "custom resources of Kubernetes, or of files",
        bytes: config.object_bytes(),
        from: "with `kubernetes.pods`: 8 × 2 MiB (`kubernetes.lmaps`) + 8 × 128 KiB \
               (`kubernetes.sampling_policies`) + 8 × 256 KiB (`kubernetes.synopsis_policies`); with `resources`: 8 × 2 MiB",
        payer: "node",
        full: "further ones are not in effect, and the status says so",
        metric: "refused_objects",
    });
    bounds.extend(models::bounds(config, load));
    bounds.extend(queues(config));
    bounds.extend(regions(config));
    bounds.extend(telemetry(config));
    bounds.extend(spans::bounds(config));
    bounds.extend(edges::bounds(config));
    bounds.push(page::bound(config, load));
    bounds.push(incidents::bound(config, load));
    bounds.push(Bound {
        what: "Prometheus targets: answers, samples, windows",
        bytes: config.sources.prometheus.bytes() + config.kubernetes.scrape_bytes(),
        from: "each of `sources.prometheus.targets`: 2 × `max_bytes` + `max_samples` × (2 kB + 4 B × `learn_scrapes`); \
               with `kubernetes.pods`: `kubernetes.scrape_targets` × 5.5 MB",
        payer: "node",
        full: "the answer is refused; further samples are not looked at",
        metric: "refused_samples",
    });
    Budget { agent: "host agent", prefix: "uview_host", load: Some(load), bounds, on_disk: on_disk(config).into() }
}

const SHARE: &str = "user: three times what is free";
const SENDER: &str = "tenant; user, pod or address: three times what is free";

/// What services bring.
fn services(config: &Config) -> [Bound; 5] {
    let limits = &config.services.limits;
    let connections = limits.connections as u64;
    [
        Bound {
            what: "series of services",
            bytes: limits.series as u64 * SERIES_BYTES,
            from: "`services.limits.series` × 2.4 kB",
            payer: SHARE,
            full: "the series is refused, and the service is told who has most",
            metric: "refused_series",
        },
        Bound {
            what: "connections of services, their replicas and process metrics",
            bytes: connections * SERVICE_BYTES,
            from: "`services.limits.connections` × 96 KiB",
            payer: SHARE,
            full: "the connection is refused",
            metric: "refused_connections",
        },
        Bound {
            what: "messages of services that are incomplete",
            bytes: services_socket::INCOMPLETE_BYTES.1 as u64,
            from: "fixed",
            payer: "user: a quarter",
            full: "the connection is closed",
            metric: "refused_frames",
        },
        Bound {
            what: "messages of services that are being decoded",
            bytes: THREADS * DECODED * wire::frame::MAX_FRAME_BYTES as u64,
            from: "2 threads × 1 MiB × 16",
            payer: "node",
            full: "others wait",
            metric: "(nothing is lost)",
        },
        Bound {
            what: "messages for services",
            bytes: outbox::ALL_BYTES as u64 + connections * outbox::FREE_BYTES as u64,
            from: "64 MiB + `services.limits.connections` × 64 KiB",
            payer: "service",
            full: "a service that does not read is disconnected",
            metric: "slow_services",
        },
    ]
}

/// Cgroups that are read: their series, regions and open files, and the buffer for a file.
fn cgroups(config: &Config) -> Bound {
    let sources = &config.sources;
    let each = sources::cgroup::Measure::ALL.len() as u64 * SERIES_BYTES + CGROUP_BYTES;
    let is_off = sources.cgroups.is_empty() && !config.kubernetes.pods;
    let limit = if is_off { 0 } else { sources.cgroup_limit.get() as u64 };
    Bound {
        what: "cgroups that are read",
        bytes: limit * each,
        from: "`sources.cgroup_limit` × 203 kB, with `sources.cgroups` or `kubernetes.pods`",
        payer: "node",
        full: "further ones are not read",
        metric: "cgroups",
    }
}

/// Pods of the node, and the objects of one answer of the API server.
fn pods(config: &Config) -> Bound {
    Bound {
        what: "pods of this node",
        bytes: if config.kubernetes.pods { pods::table::MAX_PODS as u64 * POD_BYTES + ANSWER_BYTES } else { 0 },
        from: "with `kubernetes.pods`: 1,024 × 32 KiB + 16 MiB for an answer of the API server",
        payer: "node",
        full: "further ones are not watched",
        metric: "pods",
    }
}

/// What waits for hooks, watchers and receivers of alarms.
fn queues(config: &Config) -> [Bound; 3] {
    [
        Bound {
            what: "verdicts for hooks, with their rows",
            bytes: Dispatch::ALL_HOOK_BYTES as u64,
            from: "fixed, 16 MiB of one hook",
            payer: "operator or viewer: three times what is free of the hooks",
            full: "the hook with most loses its oldest",
            metric: "lost_verdicts",
        },
        Bound {
            what: "alarms for webhooks",
            bytes: config.webhooks.len() as u64 * GroupingRule::default().bytes as u64,
            from: "16 MiB for each of `webhooks`; 1,000 services, 100 alarms each",
            payer: "service",
            full: "further alarms are not sent",
            metric: "over_limit_webhook_alerts",
        },
        Bound {
            what: "rows for watchers, and for remote monitors",
            bytes: Dispatch::ALL_WATCHER_BYTES as u64,
            from: "fixed, 1 MiB of one watcher",
            payer: "operator or viewer: three times what is free of the hooks",
            full: "a slow watcher loses its oldest",
            metric: "lost_rows",
        },
    ]
}

/// Regions of services, beyond their series.
fn regions(config: &Config) -> [Bound; 3] {
    let limits = &config.services.limits;
    let (rings, registered) = (tenants(config) > 0, config.transport != Transport::Shm);
    let ring = span_ring::READER_BYTES as u64;
    [
        Bound {
            what: "span rings: readers, and a request",
            bytes: if rings { limits.connections as u64 * ring + MIB } else { 0 },
            from: "`services.limits.connections` × 24 KiB + 1 MiB, with `otlp.upstream` or `otlp.watch_only`",
            payer: SHARE,
            full: "the ring is refused",
            metric: "refused_regions",
        },
        Bound {
            what: "registrations of regions for RDMA",
            bytes: if registered {
                (limits.regions as u64 + MEMBER_REGIONS) * REGISTERED * REGISTRATION_BYTES
            } else {
                0
            },
            from: "(`services.limits.regions` + 32 × 1,024) × 2 workers × 512 B, unless `transport: shm`",
            payer: SHARE,
            full: "the region is refused",
            metric: "refused_regions",
        },
        Bound {
            what: "slots that are held back while a device does not fence a worker",
            bytes: if registered { MAX_HELD_BYTES as u64 } else { 0 },
            from: "16 MiB, unless `transport: shm`",
            payer: "service",
            full: "the service that has most gets its own when it connects again",
            metric: "unfenced_workers",
        },
    ]
}

/// What is kept in files.
fn on_disk(config: &Config) -> [Bound; 3] {
    let models = if config.lmap.models_dir.is_some() { stored_models::disk_bytes(config.lmap.model_bytes) } else { 0 };
    let ledger = if config.receipt.dir.is_some() { 3 * receipts::MAX_BYTES as u64 } else { 0 };
    [
        Bound {
            what: "learnt models",
            bytes: models,
            from: "`lmap.model_bytes` × 3 (a draft, and a file that was set aside) + 4,096 × 5 KiB, with `lmap.models_dir`",
            payer: "user: whoever has most loses the oldest first",
            full: "the file is removed with its model",
            metric: "dropped_models",
        },
        Bound {
            what: "the receipt's ledger",
            bytes: ledger,
            from: "3 × 32 MiB (a draft, and a file that was set aside), with `receipt.dir`",
            payer: "node",
            full: "the oldest days are dropped",
            metric: "failed_receipt_writes",
        },
        incidents::on_disk(config),
    ]
}

/// Remote monitors that are configured.
fn monitors(config: &Config) -> u64 {
    u64::from(config.remote_write.url.is_some()) + u64::from(config.otlp_metrics.upstream.is_some())
}

/// OTLP requests, and samples for remote monitors.
fn telemetry(config: &Config) -> [Bound; 6] {
    let (otlp, tenants) = (&config.otlp, tenants(config));
    let by_cgroup = config.services.identities.iter().any(|identity| identity.cgroup.is_some());
    let known_cgroups = u64::from(tenants > 0) + u64::from(!config.sources.prometheus.targets.is_empty());
    let written = if config.remote_write.url.is_some() { config.remote_write.queue_bytes.get() as u64 } else { 0 };
    let exported =
        if config.otlp_metrics.upstream.is_some() { config.otlp_metrics.queue_bytes.get() as u64 } else { 0 };
    [
        Bound {
            what: "OTLP requests while they are received",
            bytes: tenants * otlp.receive_memory_bytes as u64,
            from: "`otlp.receive_memory_bytes` × tenants",
            payer: SENDER,
            full: "the client is told to retry, and who has most",
            metric: "refused_otlp_requests",
        },
        Bound {
            what: "OTLP requests that wait for the upstream",
            bytes: if otlp.upstream.is_some() { tenants * 3 * otlp.queue_bytes as u64 } else { 0 },
            from: "`otlp.queue_bytes` × 3 signals × tenants, with `otlp.upstream`",
            payer: SENDER,
            full: "the client is told to retry, and who has most; what was kept is lost",
            metric: "lost_otlp_requests",
        },
        Bound {
            what: "OTLP metrics that are watched: requests, series, windows, regions",
            bytes: if tenants > 0 { otlp.metrics.bytes(otlp.request_bytes) } else { 0 },
            from: "2 × `otlp.request_bytes` + `otlp.metrics.max_all_series` × (1.9 kB + 4 B × `learn_exports`) + `max_replicas` × (96 KiB + 1.8 kB × `max_columns`), with `otlp.metrics.watch`",
            payer: "user, pod or address: three times what is free",
            full: "further series, replicas and requests are not watched, and the status says who has most",
            metric: "discarded_otlp_points",
        },
        Bound {
            what: "samples for remote monitors",
            bytes: written + exported,
            from: "`remote_write.queue_bytes` + `otlp_metrics.queue_bytes`",
            payer: "node",
            full: "the oldest are lost",
            metric: "lost_samples",
        },
        Bound {
            what: "what was sent last of each series",
            bytes: monitors(config) * config.services.limits.series as u64 * SAMPLED_BYTES,
            from: "`services.limits.series` × 600 B for each remote monitor",
            payer: "service",
            full: "the series was refused",
            metric: "refused_series",
        },
        Bound {
            what: "cgroups in which senders of OTLP, and programs that are scraped, are",
            // Those of before are kept until others are found.
            bytes: if by_cgroup { known_cgroups * 2 * otlp::CGROUP_BYTES as u64 } else { 0 },
            from: "8 MiB with a `cgroup` in `services.identities`, and as much with `sources.prometheus.targets`",
            payer: "node",
            full: "those in further ones are unknown",
            metric: "unverified_spans",
        },
    ]
}

/// Tenants with OTLP, the default one included; 0 if it is off.
fn tenants(config: &Config) -> u64 {
    if config.otlp.is_on() { 1 + config.otlp.tenants.len() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::models::MODEL_BYTES;
    use super::*;
    use crate::control_plane::MAX_KEPT_MODELS;

    const LOAD: Load = Load { services: 10, columns: 100 };
    const WEBHOOK: &str = "{name: team, url: 'http://127.0.0.1:1'}";
    const OTLP: &str = "otlp: {upstream: {endpoint: 'http://127.0.0.1:1'}";

    fn of(text: &str) -> Budget {
        budget(&Config::parse(text).unwrap(), LOAD)
    }

    fn row(budget: &Budget, what: &str) -> u64 {
        budget.bounds.iter().find(|bound| bound.what.starts_with(what)).unwrap().bytes
    }

    #[test]
    fn each_key_moves_its_own_row() {
        for (text, what, bytes) in [
            ("services: {limits: {series: 1000}}", "series", 2_400_000),
            ("incidents: {bytes: 5000000}", "incidents", 5_000_000 + (16 + 10 + 12) * MIB + 10 * 2_432),
            ("lmap: {model_bytes: 5}", "learnt models", 5 + MAX_KEPT_MODELS as u64 * MODEL_BYTES),
            (
                "services: {limits: {regions: 10}}",
                "registrations",
                (10 + MEMBER_REGIONS) * REGISTERED * REGISTRATION_BYTES,
            ),
            (
                "page: {prometheus: {url: 'http://127.0.0.1:1'}}",
                "the page",
                (16 + 4 + 16 + 8 + 6) * MIB + 10 * 5 * 4_096,
            ),
            (&format!("webhooks: [{WEBHOOK}]"), "alarms for webhooks", 16 * MIB),
            (&format!("{OTLP}, receive_memory_bytes: 40000000}}"), "OTLP requests while", 40_000_000),
            (&format!("{OTLP}, queue_bytes: 24000000}}"), "OTLP requests that wait", 72_000_000),
            (
                &format!("{OTLP}, traces: {{keep: tail, memory_bytes: 100000000}}}}"),
                "buffered spans",
                100_000_000 + ORIGIN_BYTES,
            ),
            ("sources: {cgroups: [{pattern: 'a/*'}], cgroup_limit: 10}", "cgroups", 10 * 203_168),
            (
                &format!("{OTLP}, metrics: {{max_all_series: 1000, max_replicas: 10, max_columns: 100}}}}"),
                "OTLP metrics",
                32 * MIB + 1_000 * 1_980 + 10 * (98_304 + 180_000),
            ),
            (&format!("{OTLP}, metrics: {{watch: false}}}}"), "OTLP metrics", 0),
            ("remote_write: {url: 'http://127.0.0.1:1', queue_bytes: 9000000}", "samples", 9_000_000),
            (
                "sources: {prometheus: {targets: [{service: a, url: 'http://b', max_bytes: 1000000, max_samples: 1000, learn_scrapes: 100}]}}",
                "Prometheus",
                2_000_000 + 1_000 * 2_400,
            ),
        ] {
            assert_eq!(row(&of(text), what), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_off_costs_nothing() {
        let plain = of("");

        for what in [
            "OTLP requests",
            "OTLP metrics",
            "samples",
            "buffered spans",
            "learnt paths",
            "names of services",
            "gossip",
            "connections of OTLP",
            "alarms for webhooks",
            "span rings",
            "cgroups",
            "what the API server has said of tokens",
        ] {
            assert_eq!(row(&plain, what), 0, "{what}");
        }
        assert_eq!(row(&of("transport: shm"), "registrations"), 0);
        assert!(plain.on_disk.iter().all(|bound| bound.bytes == 0));
    }

    #[test]
    fn what_is_watched_only_waits_for_no_upstream_and_costs_else_what_it_costs_with_one() {
        let watching = of("otlp: {watch_only: true, traces: {keep: tail}}");
        let forwarding = of(&format!("{OTLP}, traces: {{keep: tail}}}}"));

        assert_eq!(row(&watching, "OTLP requests that wait"), 0);
        assert_eq!(forwarding.total() - watching.total(), row(&forwarding, "OTLP requests that wait"));
    }

    #[test]
    fn files_are_not_part_of_the_sum() {
        let stored = of("lmap: {model_bytes: 1000000, models_dir: /var/lib/uview/models}");
        let kept = of("lmap: {model_bytes: 1000000}");

        assert_eq!(stored.total(), kept.total());
        let bytes: Vec<_> = stored.on_disk.iter().map(|bound| bound.bytes).collect();
        assert_eq!(bytes, [3_000_000 + 4096 * 5120, 0, 0]);
    }

    #[test]
    fn each_tenant_has_its_own() {
        let one = of(&format!("{OTLP}, traces: {{keep: tail}}}}"));
        let two = of(&format!(
            "{OTLP}, traces: {{keep: tail}}, tenants: [{{name: bank, peers: [10.1.0.0/16], memory_bytes: 67108864}}]}}"
        ));

        assert_eq!(row(&two, "OTLP requests while"), 2 * row(&one, "OTLP requests while"));
        assert_eq!(row(&two, "buffered spans"), row(&one, "buffered spans") + 64 * MIB + ORIGIN_BYTES);
    }
}
