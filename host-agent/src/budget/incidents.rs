//! What is kept of incidents.

use agent_runtime::budget::{Bound, Load, MIB};
use incidents::changes::{MAX_CHANGES, MAX_REPLICAS, REPLICA_BYTES};
use incidents::recent;
use incidents::recorder::{MAX_OPEN, OPEN_BYTES};

use crate::config::Config;
use crate::incident_book::FURTHER_BYTES;

/// A change, with its texts.
const CHANGE_BYTES: u64 = 700;
/// Each metric of the streams that are looked at while an incident goes on, up to a thousand of each.
const STREAM_BYTES: u64 = MIB;
/// Scores of the last minutes of a service.
const SCORED_BYTES: u64 = recent::SECONDS as u64 * 8 + recent::SERVICE_BYTES as u64;

/// Records, those that are open, scores of the last minutes, and what replicas are compared by.
pub(super) fn bound(config: &Config, load: Load) -> Bound {
    let open = (MAX_OPEN * OPEN_BYTES) as u64;
    let compared = (MAX_REPLICAS * REPLICA_BYTES) as u64 + MAX_CHANGES as u64 * CHANGE_BYTES;
    let profile = if config.incidents.profile.seconds > 0 { profile::take::BYTES as u64 } else { 0 };
    let scored = load.services.min(recent::MAX_SERVICES as u64) * SCORED_BYTES;
    Bound {
        what: "incidents: records, scores of four minutes, what replicas are compared by, a profile",
        bytes: config.incidents.bytes as u64 + open + compared.next_multiple_of(MIB) + STREAM_BYTES + scored + profile,
        from: "`incidents.bytes` + 8 × 2 MiB + 10 MiB + services × 2.4 kB + 12 MiB with `incidents.profile`",
        payer: "node",
        full: "the oldest incidents are removed; further replicas are not compared",
        metric: "incident_bytes",
    }
}

/// Records in files.
pub(super) fn on_disk(config: &Config) -> Bound {
    let incidents = &config.incidents;
    Bound {
        what: "incidents",
        bytes: if incidents.dir.is_some() { incidents.bytes as u64 + FURTHER_BYTES } else { 0 },
        from: "`incidents.bytes` + 513 KiB (a draft, and a file that was set aside), with `incidents.dir`",
        payer: "node",
        full: "the oldest incidents are removed",
        metric: "failed_incident_writes",
    }
}
