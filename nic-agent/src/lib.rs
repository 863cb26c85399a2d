//! The data plane: fetches the regions of its LMAPs every interval, turns slots into rows, judges them, and says what it found.
//!
//! [`Worker`] decides; it is given the time and owns no thread, clock or socket. The runner acts: it waits, fetches, attaches regions, runs
//! jobs and keeps the control connection.
//!
//! | module | what |
//! | --- | --- |
//! | [`worker`](Worker) | the state machine over all LMAPs of one worker |
//! | `ticker` | absolute deadlines; missed ticks are counted |
//! | `watch` | one LMAP: regions, columns, detectors, what to say of them |
//! | `fetched`, `liveness` | headers and heartbeats of fetched regions; silent replicas |
//! | `columns`, `reading`, `histogram`, `aggregation` | slots → values per replica, in flat arrays → one row |
//! | `judge`, `asked`, `jobs` | detectors, shadow detectors, what operators asked of them, work that is run elsewhere |
//! | `alarm`, `digest`, `rows`, `outbox` | what is said: episodes, summaries, raw rows; bounded |
//! | `attachments`, `claims`, `backoff` | which regions the reader has to know, and what of them is believed; when to try again |
//! | `queue_pair` | the connection to the host agent's memory, made and made again |
//! | `network` | packets that pass an interface, as services of their own |
//! | [`runner`](run), `clock`, [`config`], `metrics` | the edge: threads, sockets, time, files |

mod aggregation;
mod alarm;
mod asked;
mod attachments;
mod backoff;
mod claims;
mod clock;
mod clock_state;
mod columns;
pub mod config;
mod digest;
mod error;
mod fetched;
mod histogram;
mod jobs;
mod judge;
mod liveness;
mod metrics;
mod network;
mod outbox;
mod queue_pair;
mod reading;
mod rows;
mod runner;
mod settings;
mod ticker;
mod watch;
mod worker;

pub use aggregation::{Aggregate, Aggregations};
pub use attachments::{AttachRequest, Effect};
pub use backoff::Backoff;
pub use claims::{RegionLimits, RegionsError};
pub use columns::fingerprint;
pub use error::ForeignMessage;
pub use jobs::JobId;
pub use queue_pair::{AnswerError, QueuePairEffect};
pub use runner::{RunError, run, run_with};
pub use settings::{Fetching, WorkerSettings};
pub use ticker::{Schedule, Ticker};
pub use wire;
pub use worker::{Step, Worker, WorkerStatus};
