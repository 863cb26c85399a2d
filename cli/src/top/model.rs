//! What the live view knows: the last status, a history of scores, and where the person is looking. Pure: time, statuses and
//! keys come in, and [`super::render`] draws what is here.

use core::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use wire::proto::operators::{LmapStatus, StatusReply, WorkerStatus};

/// Scores kept per service: at 16 a second somewhat more than a minute.
const HISTORY: usize = 1024;

/// How things stand with the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Nothing heard yet.
    Waiting,
    /// It answered the last time.
    Live,
    /// It did not answer the last time; what is shown is from before.
    Gone {
        /// Since when.
        since: Duration,
        /// Why.
        why: String,
    },
}

/// What the services are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The services of the newest incident by suspicion, the suspected cause first, then those of older ones; then other alarms and silence;
    /// then the highest share of γ.
    #[default]
    Urgency,
    /// By name.
    Name,
    /// Most alarms first.
    Alarms,
}

impl Sort {
    /// Its name on the screen.
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

/// One LMAP: its last status and the scores before.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// As the agent said last.
    pub status: LmapStatus,
    /// Scores, oldest first, at most 1,024.
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

    /// In alarm, or a replica is silent.
    #[must_use]
    pub fn urgent(&self) -> bool {
        self.status.alarm || self.status.state == "silent" || !self.status.silent_replicas.is_empty()
    }

    /// It is the one to look at first of those in alarm together.
    #[must_use]
    pub fn is_suspected(&self) -> bool {
        self.status.rank == 1
    }

    /// The order of urgency: what is smaller comes first.
    fn urgency(&self) -> impl Ord + use<> {
        let LmapStatus { rank, incident_unix_ns, .. } = self.status;
        (rank == 0, Reverse(incident_unix_ns), rank, Reverse(self.urgent()))
    }

    /// A summary that was seen already adds nothing.
    fn update(&mut self, status: &LmapStatus) {
        if status.at_unix_ns != self.status.at_unix_ns {
            self.scores.extend(status.scores.iter().map(|&score| f64::from(score)));
            self.scores.drain(..self.scores.len().saturating_sub(HISTORY));
        }
        self.status = status.clone();
    }

    fn matches(&self, filter: &str) -> bool {
        let status = &self.status;
        let mut texts = [&status.service, &status.state].into_iter().chain(status.reasons.iter().map(|r| &r.column));
        texts.any(|text| text.to_lowercase().contains(filter))
    }
}

/// One worker: its last status, and what it used between the last two.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// As the agent said last.
    pub status: WorkerStatus,
    /// Share of one core, once two different readings were seen.
    pub cpu: Option<f64>,
    read_at: Duration,
}

/// What the person looks at.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The order of the services.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Shown are services, states and top metrics that contain this.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The LMAP under the cursor.
    pub selected: Option<u32>,
    /// One service fills the screen.
    pub opened: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Draw and go on.
    Continue,
    /// The person has seen enough.
    Quit,
}

/// Everything that the view shows.
#[derive(Clone, Debug)]
pub struct Model {
    /// How things stand with the agent.
    pub link: Link,
    /// The time of what is drawn.
    pub now: Duration,
    /// When the agent answered last.
    pub heard: Option<Duration>,
    /// The agent's release.
    pub version: String,
    /// How long the agent runs.
    pub uptime_ms: u64,
    /// What it refused, newest last.
    pub problems: Vec<String>,
    /// Its workers, by number.
    pub workers: BTreeMap<u32, Worker>,
    /// What the person looks at.
    pub look: Look,
    services: BTreeMap<u32, Service>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            link: Link::Waiting,
            now: Duration::ZERO,
            heard: None,
            version: String::new(),
            uptime_ms: 0,
            problems: Vec::new(),
            workers: BTreeMap::new(),
            look: Look::default(),
            services: BTreeMap::new(),
        }
    }
}

impl Model {
    /// The agent answered. LMAPs and workers that it no longer names are forgotten.
    pub fn answered(&mut self, now: Duration, reply: &StatusReply) {
        (self.link, self.now, self.heard) = (Link::Live, now, Some(now));
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
                let known = worker.status.ticks > 0 && !passed.is_zero();
                worker.cpu = busy.filter(|_| known).map(|busy| busy as f64 / passed.as_nanos() as f64);
                worker.read_at = now;
            }
            worker.status = status.clone();
        }
    }

    /// The agent did not answer. What is known stays on the screen.
    pub fn gone(&mut self, now: Duration, why: String) {
        self.now = now;
        let since = if let Link::Gone { since, .. } = self.link { since } else { now };
        self.link = Link::Gone { since, why };
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
    }

    /// All services, whatever is filtered.
    pub fn all(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The services that the filter lets through, in the chosen order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Service> {
        let filter = self.look.filter.to_lowercase();
        let mut rows: Vec<&Service> = self.services.values().filter(|service| service.matches(&filter)).collect();
        rows.sort_by(|a, b| a.status.service.cmp(&b.status.service)); // ties keep this order
        match self.look.sort {
            Sort::Urgency => rows.sort_by(|a, b| (a.urgency().cmp(&b.urgency())).then(b.share().total_cmp(&a.share()))),
            Sort::Name => {}
            Sort::Alarms => rows.sort_by_key(|service| Reverse(service.status.alarms)),
        }
        if self.look.reverse {
            rows.reverse();
        }
        rows
    }

    /// Where the cursor is in [`rows`](Self::rows): on the first row if its service is gone.
    #[must_use]
    pub fn cursor(&self, rows: &[&Service]) -> usize {
        let selected = self.look.selected;
        rows.iter().position(|service| Some(service.status.lmap) == selected).unwrap_or(0)
    }

    /// The service that fills the screen, if one was opened and is still there.
    #[must_use]
    pub fn opened(&self) -> Option<&Service> {
        if !self.look.opened {
            return None;
        }
        self.look.selected.and_then(|lmap| self.services.get(&lmap))
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Flow::Quit;
        }
        if self.look.typing {
            self.type_filter(key.code);
            return Flow::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('s') => self.look.sort = self.look.sort.next(),
            KeyCode::Char('r') => self.look.reverse = !self.look.reverse,
            KeyCode::Char('/') => (self.look.typing, self.look.opened) = (true, false),
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(1),
            KeyCode::Enter => self.open(),
            KeyCode::Esc if self.opened().is_some() => self.look.opened = false,
            KeyCode::Esc => self.look.filter.clear(),
            _ => {}
        }
        Flow::Continue
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) if self.look.filter.chars().count() < 64 => self.look.filter.push(c),
            KeyCode::Backspace => _ = self.look.filter.pop(),
            KeyCode::Enter => self.look.typing = false,
            KeyCode::Esc => {
                self.look.filter.clear();
                self.look.typing = false;
            }
            _ => {}
        }
    }

    fn move_cursor(&mut self, by: isize) {
        let rows = self.rows();
        let to = self.cursor(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.look.selected = rows.get(to).map(|service| service.status.lmap);
    }

    fn open(&mut self) {
        let rows = self.rows();
        self.look.selected = rows.get(self.cursor(&rows)).map(|service| service.status.lmap);
        self.look.opened = self.look.selected.is_some();
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
