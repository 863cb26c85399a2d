//! What is kept of LMAPs: models, what operators chose, configurations.

use agent_runtime::budget::{Bound, Load};

use crate::config::Config;
use crate::control_plane::{
    MAX_CHOICE_BYTES, MAX_KEPT_MODELS, MAX_MEMBER_SERIES, MAX_MEMBER_TEXT, MAX_MODELS_BYTES, MAX_OVER_SEVERAL,
};

/// A column's part of an encoded configuration.
const CONFIGURED_BYTES: u64 = 300;
/// An LMAP that an operator has created or configured, besides its model and the names of chosen metrics.
const LMAP_BYTES: u64 = 1 << 10;
/// A series of an LMAP over several services, besides its texts, of which there are three.
const MEMBER_SERIES_BYTES: u64 = 1 << 10;
/// A learnt model's service and settings.
pub(super) const MODEL_BYTES: u64 = 512;

/// What workers have learnt, what operators have sent, and configurations.
pub(super) fn bounds(config: &Config, load: Load) -> [Bound; 5] {
    [
        Bound {
            what: "learnt models",
            bytes: config.lmap.model_bytes as u64 + MAX_KEPT_MODELS as u64 * MODEL_BYTES,
            from: "`lmap.model_bytes` + 4,096 × 512 B",
            payer: "user: whoever has most loses the oldest first",
            full: "dropped",
            metric: "dropped_models",
        },
        Bound {
            what: "operators' models",
            bytes: MAX_MODELS_BYTES,
            from: "fixed",
            payer: "operator: three times what is free",
            full: "the call is refused",
            metric: "operators_model_bytes",
        },
        Bound {
            what: "LMAPs of operators, and the metrics that they chose",
            bytes: (config.services.limits.services + wire::control::MAX_LMAPS) as u64 * LMAP_BYTES
                + MAX_CHOICE_BYTES as u64,
            from: "(`services.limits.services` + 4,096) × 1 KiB + 32 MiB",
            payer: "operator",
            full: "the call is refused",
            metric: "choice_bytes",
        },
        over_several(),
        Bound {
            what: "messages to and from a worker: configurations, rows, verdicts",
            bytes: wire::control::MAX_MESSAGE_BYTES as u64 + load.all_columns().saturating_mul(CONFIGURED_BYTES),
            from: "16 MiB + services × columns × 300 B, at most 1,024 messages, for one worker",
            payer: "worker",
            full: "the worker is disconnected",
            metric: "slow_workers",
        },
    ]
}

/// LMAPs over several services: their series, each here and in the configuration that was sent.
fn over_several() -> Bound {
    let each = MAX_MEMBER_SERIES as u64 * MEMBER_SERIES_BYTES + 3 * MAX_MEMBER_TEXT as u64;
    Bound {
        what: "series of LMAPs over several services",
        bytes: MAX_OVER_SEVERAL as u64 * each,
        from: "32 × (1,024 × 1 KiB + 3 × 256 KiB)",
        payer: "operators",
        full: "the call is refused; further series are left out, and the status says so",
        metric: "left_out_series",
    }
}
