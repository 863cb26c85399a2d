//! The state of the live view: the last status, a history of scores, sort order, filter and cursor. Pure: time,
//! statuses and keys are inputs, and [`super::render`] draws the state.

use core::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use wire::proto::operators::{LmapStatus, StatusReply, WorkerStatus};

/// Scores kept per service: 64 s at 16 scores a second.
const HISTORY: usize = 1024;

/// The state of the connection to the host agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// No reply and no error yet.
    Waiting,
    /// The last request was answered.
    Live,
    /// The last request failed. The view shows the last reply.
    Gone {
        /// The time of the first failed request.
        since: Duration,
        /// The error of the last request.
        why: String,
    },
}

/// The sort order of the services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The newest incident first, its services by rank, so that the suspected cause is on top; then older incidents,
    /// other alarms and silent services; then by score as a share of γ.
    #[default]
    Urgency,
    /// By the name of the service.
    Name,
    /// By the number of alarms, most first.
    Alarms,
}

impl Sort {
    /// The name that the view shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Urgency => "urgency",
            Self::Name => "name",
            Self::Alarms => "alarms",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Urgency => Self::Name,
            Self::Name => Self::Alarms,
            Self::Alarms => Self::Urgency,
        }
    }
}

/// One LMAP: its last status and its recent scores.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// The status in the last reply.
    pub status: LmapStatus,
    /// Recent scores, oldest first, at most 1,024.
    pub scores: VecDeque<f64>,
}

impl Service {
    /// The newest score.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.scores.back().copied().unwrap_or(f64::NAN)
    }

    /// The newest score as a share of γ; 0 while there is no γ.
    #[must_use]
    pub fn share(&self) -> f64 {
        let share = self.score() / self.status.gamma;
        if share.is_finite() { share } else { 0.0 }
    }

    /// Whether it is in alarm, or a replica is silent.
    #[must_use]
    pub fn urgent(&self) -> bool {
        self.status.alarm || self.status.state == "silent" || !self.status.silent_replicas.is_empty()
    }

    /// Whether it is the suspected cause: rank 1 of an incident.
    #[must_use]
    pub fn is_suspected(&self) -> bool {
        self.status.rank == 1
    }

    /// The key of [`Sort::Urgency`]: smaller keys come first.
    fn urgency(&self) -> impl Ord + use<> {
        let LmapStatus { rank, incident_unix_ns, .. } = self.status;
        (rank == 0, Reverse(incident_unix_ns), rank, Reverse(self.urgent()))
    }

    /// Takes a new status. Its scores are appended unless it is the same summary as before.
    fn update(&mut self, status: &LmapStatus) {
        if status.at_unix_ns != self.status.at_unix_ns {
            self.scores.extend(status.scores.iter().map(|&score| f64::from(score)));
            self.scores.drain(..self.scores.len().saturating_sub(HISTORY));
        }
        self.status = status.clone();
    }

    fn matches(&self, filter: &str) -> bool {
        let status = &self.status;
        let reasons = status.reasons.iter().flat_map(|reason| [&reason.column, &reason.about]);
        let mut texts = [&status.service, &status.state].into_iter().chain(reasons);
        texts.any(|text| text.to_lowercase().contains(filter))
    }
}

/// One worker: its last status, and its CPU usage between the last two.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// The status in the last reply.
    pub status: WorkerStatus,
    /// CPU usage as a share of one core; `None` before two different readings.
    pub cpu: Option<f64>,
    read_at: Duration,
}

/// What the user has chosen to see.
#[derive(Clone, Debug, Default)]
pub struct ViewState {
    /// The sort order of the services.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// Only services whose name, state, a top metric or whom that is about contains this text are shown.
    pub filter: String,
    /// Whether keys go to the filter.
    pub typing: bool,
    /// The LMAP under the cursor.
    pub selected: Option<u32>,
    /// Whether the selected service fills the screen.
    pub opened: bool,
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Draw again and wait for the next key.
    Continue,
    /// Leave the live view.
    Quit,
}

/// The state of the live view.
#[derive(Clone, Debug)]
pub struct Model {
    /// The state of the connection to the host agent.
    pub agent: AgentState,
    /// The current time, on the clock of the view.
    pub now: Duration,
    /// The time of the last reply; `None` before the first.
    pub last_reply: Option<Duration>,
    /// The release of the agent.
    pub version: String,
    /// Milliseconds since the agent started.
    pub uptime_ms: u64,
    /// Problems that the agent reports, newest last.
    pub problems: Vec<String>,
    /// The agent's workers, by number.
    pub workers: BTreeMap<u32, Worker>,
    /// Sort order, filter and cursor.
    pub view: ViewState,
    services: BTreeMap<u32, Service>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            agent: AgentState::Waiting,
            now: Duration::ZERO,
            last_reply: None,
            version: String::new(),
            uptime_ms: 0,
            problems: Vec::new(),
            workers: BTreeMap::new(),
            view: ViewState::default(),
            services: BTreeMap::new(),
        }
    }
}

impl Model {
    /// Takes a reply of the agent. LMAPs and workers that are not in it are removed.
    pub fn on_reply(&mut self, now: Duration, reply: &StatusReply) {
        (self.agent, self.now, self.last_reply) = (AgentState::Live, now, Some(now));
        self.version.clone_from(&reply.version);
        self.uptime_ms = reply.uptime_ms;
        self.problems.clone_from(&reply.problems);
        self.services.retain(|lmap, _| reply.lmaps.iter().any(|status| status.lmap == *lmap));
        for status in &reply.lmaps {
            self.services.entry(status.lmap).or_default().update(status);
        }
        self.workers.retain(|worker, _| reply.workers.iter().any(|status| status.worker == *worker));
        for status in &reply.workers {
            let worker = self.workers.entry(status.worker).or_default();
            let (busy, passed) = (status.cpu_ns.checked_sub(worker.status.cpu_ns), now.saturating_sub(worker.read_at));
            if busy != Some(0) {
                let has_earlier = worker.status.ticks > 0 && !passed.is_zero();
                worker.cpu = busy.filter(|_| has_earlier).map(|busy| busy as f64 / passed.as_nanos() as f64);
                worker.read_at = now;
            }
            worker.status = status.clone();
        }
    }

    /// A request failed with `why`. The last reply stays on the screen.
    pub fn on_disconnect(&mut self, now: Duration, why: String) {
        self.now = now;
        let since = if let AgentState::Gone { since, .. } = self.agent { since } else { now };
        self.agent = AgentState::Gone { since, why };
    }

    /// Sets the current time.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
    }

    /// All services, without the filter.
    pub fn all(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The services that match the filter, in the chosen order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Service> {
        let filter = self.view.filter.to_lowercase();
        let mut rows: Vec<&Service> = self.services.values().filter(|service| service.matches(&filter)).collect();
        rows.sort_by(|a, b| a.status.service.cmp(&b.status.service)); // ties keep this order
        match self.view.sort {
            Sort::Urgency => rows.sort_by(|a, b| (a.urgency().cmp(&b.urgency())).then(b.share().total_cmp(&a.share()))),
            Sort::Name => {}
            Sort::Alarms => rows.sort_by_key(|service| Reverse(service.status.alarms)),
        }
        if self.view.reverse {
            rows.reverse();
        }
        rows
    }

    /// The cursor as an index into [`rows`](Self::rows): 0 if its service no longer exists.
    #[must_use]
    pub fn cursor(&self, rows: &[&Service]) -> usize {
        let selected = self.view.selected;
        rows.iter().position(|service| Some(service.status.lmap) == selected).unwrap_or(0)
    }

    /// The service that fills the screen, if one was opened and still exists.
    #[must_use]
    pub fn opened(&self) -> Option<&Service> {
        if !self.view.opened {
            return None;
        }
        self.view.selected.and_then(|lmap| self.services.get(&lmap))
    }

    /// Handles a key press.
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Flow::Quit;
        }
        if self.view.typing {
            self.type_filter(key.code);
            return Flow::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('r') => self.view.reverse = !self.view.reverse,
            KeyCode::Char('/') => (self.view.typing, self.view.opened) = (true, false),
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(1),
            KeyCode::Enter => self.open(),
            KeyCode::Esc if self.opened().is_some() => self.view.opened = false,
            KeyCode::Esc => self.view.filter.clear(),
            _ => {}
        }
        Flow::Continue
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) if self.view.filter.chars().count() < 64 => self.view.filter.push(c),
            KeyCode::Backspace => _ = self.view.filter.pop(),
            KeyCode::Enter => self.view.typing = false,
            KeyCode::Esc => {
                self.view.filter.clear();
                self.view.typing = false;
            }
            _ => {}
        }
    }

    fn move_cursor(&mut self, by: isize) {
        let rows = self.rows();
        let to = self.cursor(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.view.selected = rows.get(to).map(|service| service.status.lmap);
    }

    fn open(&mut self) {
        let rows = self.rows();
        self.view.selected = rows.get(self.cursor(&rows)).map(|service| service.status.lmap);
        self.view.opened = self.view.selected.is_some();
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
