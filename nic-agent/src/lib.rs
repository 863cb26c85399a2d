//! The data plane: fetches the regions of its LMAPs (local metrics analysis pipelines) every interval, computes rows
//! from their slots, scores the rows, and reports to the host agent.
//!
//! [`Worker`] decides. Time is a parameter; it owns no thread, clock or socket. The runner acts: it waits, fetches,
//! attaches regions, runs jobs and keeps the control connection.
//!
//! | module | what |
//! | --- | --- |
//! | [`worker`](Worker) | the state machine over all LMAPs of one worker |
//! | `ticker` | absolute deadlines; skipped intervals are counted |
//! | `lmap_runtime` | one LMAP: regions, columns, detectors, reports |
//! | `pace`, `sliding_rows` | when an LMAP is fetched faster than its rows are due, and the rows that come of it |
//! | `regions`, `liveness` | headers and heartbeats of fetched regions; silent replicas |
//! | `columns`, `observation`, `histogram`, `aggregation` | slots → values of each replica, in flat arrays → one row |
//! | `outlier` | the replica whose value made a column unusual |
//! | `detector_slot`, `detector_settings`, `jobs` | detectors and shadow detectors, their settings, jobs |
//! | `alarm`, `digest`, `rows`, `outbox` | reports: episodes, summaries, raw rows; bounded queues |
//! | `attachments`, `region_claim`, `region_limits`, `seeds` | regions to attach, their limits; jitter of retries |
//! | `queue_pair`, `effect_error` | the RDMA connection to the host agent; why an effect failed |
//! | `network` | packets of an interface, as services of their own |
//! | [`runner`](run), [`config`], `metrics` | the edge: threads, sockets, files; time by `agent_runtime::clock` |
//! | [`budget`](budget()) | what it may keep in memory, computed from the configuration |
//! | `memory_rows` | the same with what is kept of it, for the host agent's page |
//! | `switch` | constants of programs that measure a stream in a switch |
//! | `check_config`, `reload` | files before a start, and those that change while the agent runs |

mod aggregation;
mod alarm;
mod attachments;
mod budget;
mod check_config;
mod clock_state;
mod columns;
pub mod config;
mod detector_settings;
mod detector_slot;
mod digest;
mod effect_error;
mod error;
mod histogram;
mod jobs;
mod liveness;
mod lmap_runtime;
mod memory_rows;
mod metrics;
mod network;
mod observation;
mod outbox;
mod outlier;
mod pace;
mod queue_pair;
mod region_claim;
mod region_limits;
mod regions;
mod reload;
mod retained_lmap;
mod rows;
mod runner;
mod seeds;
mod settings;
mod sliding_rows;
mod switch;
mod ticker;
mod worker;

pub use aggregation::{Aggregate, Aggregations};
pub use attachments::{AttachRequest, Effect};
pub use budget::{budget, budget_of};
pub use check_config::check_config;
pub use columns::saturation;
pub use effect_error::EffectError;
pub use error::UnexpectedMessage;
pub use jobs::JobId;
pub use queue_pair::{QueuePairEffect, QueuePairReplyError};
pub use region_limits::{RegionLimits, RegionsError};
pub use runner::{RunError, run, run_from, run_with};
pub use settings::{Fetching, WorkerSettings};
pub use switch::{FragmentPath, SwitchError, SwitchProgram, fragment_constants, switch_constants, together_constants};
pub use ticker::{Schedule, Ticker};
pub use wire;
pub use wire::metric::fingerprint;
pub use worker::{Step, Worker, WorkerStatus};
