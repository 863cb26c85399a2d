//! Incidents: what one is, what is kept of it, and how it is drawn.
//!
//! An incident is a group of alarms that the control plane has put together. Its record has the services by suspicion,
//! their scores over time, the metrics that stood out, kept traces and log records, streams of packets, and what was
//! changed. This crate decides, and acts nowhere: times, verdicts, scores, traces, log records and facts about
//! processes are arguments.
//!
//! | module | what |
//! | --- | --- |
//! | [`recorder`] | follows incidents from their first alarm until nothing more can be known, within a budget |
//! | [`recent`] | scores of the last minutes of each service: what was normal before |
//! | [`changes`] | what differs between two looks at a service's processes: restarts, versions, limits |
//! | [`evidence`] | which kept traces belong to an incident, and which five are the best |
//! | [`logs`] | the same for kept log records |
//! | [`streams`] | delay and loss of packets while it is followed |
//! | [`profiles`] | stacks of a service: the heaviest functions, and files for other tools |
//! | [`words`] | what is named first, in a sentence |
//! | [`page`](draw) | one page of HTML without outside references |

pub mod changes;
pub mod draw;
pub mod evidence;
pub mod logs;
pub mod profiles;
pub mod recent;
pub mod recorder;
pub mod streams;
pub mod words;
