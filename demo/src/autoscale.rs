//! One service of the shop under a load that grows, with replicas that are really added: how its LMAP takes transient and persistent overload.
//!
//! # Source
//! uView, Sec. 4.8.3: a stationary load to learn from, then a load that grows in a straight line; an autoscaler adds replicas until it may add
//! no more. There one replica is a pod and the autoscaler that of Kubernetes; here one is a process with one hand, which is busy for some
//! time with each request, and the autoscaler looks at how busy the hands are.

mod scaler;
mod visitors;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use axum::http::Method;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};
use wire::proto::operators::{HookEvent, RowEvent, StatusReply};
use wire::time::Nanos;

use crate::clock::Clock;
use crate::error::DemoError;
use crate::graph::Service;
use crate::http::{Answer, Caller};
use crate::link::Link;
use crate::screen::Screen;
use crate::shop::{Facts, Ready};
use crate::stage::{Setting, Stage};
use scaler::{Decision, Scaler};
use visitors::Visitors;

/// The service: it asks nobody, so that all that happens to it is its own.
const SERVICE: Service = Service::Cart;
/// A hand is busy with a request for about so long: 45 requests a second are all that a replica can do.
const WAIT: Nanos = Nanos::from_millis(20);
/// From the start of a replica's process until visitors are sent to it.
const STARTS: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const ADMIN_WITHIN: Duration = Duration::from_secs(2);

/// How long what lasts, and how much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Makes arrivals and work.
    pub seed: u64,
    /// The local scraping interval.
    pub interval_ms: u32,
    /// Seconds of stationary load once the LMAP has its first row.
    pub stationary_s: f64,
    /// Requests a second before the load grows.
    pub per_second: f64,
    /// By how much that grows every second.
    pub growth: f64,
    /// Replicas at the most.
    pub replicas: usize,
    /// Seconds of persistent overload.
    pub overloaded_s: f64,
}

impl Default for Plan {
    /// About five minutes: the LMAP is fitted at 120 and at 600 rows before the load grows.
    fn default() -> Self {
        Self {
            seed: 1,
            interval_ms: 100,
            stationary_s: 100.0,
            per_second: 20.0,
            growth: 0.7,
            replicas: 3,
            overloaded_s: 40.0,
        }
    }
}

/// One row of the service's LMAP. Times are seconds since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// When it was fetched.
    pub at_s: f64,
    /// The score that the NIC agent gave it.
    pub score: f64,
    /// γ as it was known then, 0 while learning.
    pub gamma: f64,
    /// One per column.
    pub values: Vec<f64>,
}

/// One alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    /// When it began.
    pub began_s: f64,
    /// When it ended; `None` if it was on at the end.
    pub ended_s: Option<f64>,
    /// The metric named first, with its share of the score, whenever the agent said so, as (seconds, column, share).
    pub named: Vec<(f64, String, f64)>,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Autoscaled {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Every row.
    pub rows: Vec<Row>,
    /// When the load began to grow.
    pub grows_from_s: f64,
    /// When a replica began to take visitors, beside the first.
    pub added_s: Vec<f64>,
    /// When all replicas were overloaded and no further one was allowed; `None` if that never came.
    pub overloaded_from_s: Option<f64>,
    /// Alarms in order.
    pub alarms: Vec<Alarm>,
    /// The metric named first in verdicts outside of alarms, as (seconds, column, share).
    pub named: Vec<(f64, String, f64)>,
    /// Requests sent, and of them those without a good answer.
    pub sent: (u64, u64),
}

/// Runs the experiment. `program` is the command that all processes are.
///
/// # Errors
///
/// [`DemoError`] if a process does not run or the agents do not do their part.
pub fn run(plan: &Plan, program: &Path) -> Result<Autoscaled, DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Runtime)?;
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let setting = Setting {
            program: program.to_owned(),
            interval_ms: plan.interval_ms,
            seed: plan.seed,
            per_second: plan.per_second,
            way: false,
        };
        let mut run = Run::begin(plan, &setting).await?;
        run.go(plan).await?;
        Ok(run.finish())
    }))
}

struct Run {
    clock: Clock,
    stage: Stage,
    link: Link,
    rows: Option<mpsc::Receiver<RowEvent>>,
    replicas: Vec<Ready>,
    visitors: Rc<RefCell<Visitors>>,
    caller: Caller,
    scaler: Scaler,
    /// A replica that starts, and when visitors are sent to it.
    starting: Option<(Ready, Nanos)>,
    gamma: f64,
    screen: Screen,
    found: Autoscaled,
}

impl Run {
    async fn begin(plan: &Plan, setting: &Setting) -> Result<Self, DemoError> {
        let (clock, screen) = (Clock::start(), Screen::new());
        screen.say("autoscaling: one replica, stationary load");
        let mut stage = Stage::empty(setting)?;
        let first = stage.replica(SERVICE, 1, plan.seed, WAIT).await?;
        let visitors = Visitors::new(plan.seed, plan.per_second);
        visitors.borrow_mut().open(first.listen);
        tokio::task::spawn_local(visitors::send(visitors.clone()));
        stage.agents(setting).await?;
        let link = Link::open(stage.operators, clock).await?;
        Ok(Self {
            clock,
            stage,
            link,
            rows: None,
            replicas: vec![first],
            visitors,
            caller: Caller::new(ADMIN_WITHIN),
            scaler: Scaler::new(plan.replicas),
            starting: None,
            gamma: 0.0,
            screen,
            found: Autoscaled::default(),
        })
    }

    async fn go(&mut self, plan: &Plan) -> Result<(), DemoError> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                row = next(&mut self.rows) => self.take(row),
                verdict = self.link.verdict() => {
                    let (at, event) = verdict?;
                    self.hear(at, event);
                }
                _ = looks.tick() => {
                    self.stage.check()?;
                    let status = self.link.status().await?;
                    self.learn(&status).await?;
                    if self.act(plan).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn seconds(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }

    fn take(&mut self, row: RowEvent) {
        if !row.columns.is_empty() {
            self.found.columns = row.columns;
        }
        let at_s = self.clock.at_unix(row.at_unix_ns).as_secs_f64();
        self.found.rows.push(Row { at_s, score: row.score, gamma: self.gamma, values: row.values });
    }

    fn hear(&mut self, at: Nanos, event: HookEvent) {
        if event.service != SERVICE.name() || event.state == "silent" {
            return;
        }
        let at_s = at.as_secs_f64();
        let first = event.reasons.into_iter().next().map(|reason| (at_s, reason.column, reason.share));
        match event.episode.as_str() {
            "began" => {
                self.screen.say(&format!("  {at_s:5.0} s  alarm, {:.1} times γ", event.score / event.gamma));
                self.found.alarms.push(Alarm { began_s: at_s, ended_s: None, named: first.into_iter().collect() });
            }
            "ended" => {
                if let Some(alarm) = self.found.alarms.last_mut() {
                    alarm.ended_s = Some(at_s);
                }
            }
            "on" => {
                if let Some(alarm) = self.found.alarms.last_mut() {
                    alarm.named.extend(first);
                }
            }
            _ => self.found.named.extend(first),
        }
    }

    /// What the agents summarise; and as soon as there is an LMAP, its rows.
    async fn learn(&mut self, status: &StatusReply) -> Result<(), DemoError> {
        let Some(lmap) = status.lmaps.iter().find(|lmap| lmap.service == SERVICE.name()) else { return Ok(()) };
        if matches!(lmap.state.as_str(), "armed" | "drifted") {
            self.gamma = lmap.gamma;
        }
        if self.rows.is_none() {
            self.rows = Some(self.link.rows(lmap.lmap).await?);
        }
        Ok(())
    }

    /// One look of the autoscaler; whether all is over.
    async fn act(&mut self, plan: &Plan) -> Result<bool, DemoError> {
        let now = self.seconds();
        let Some(first) = self.found.rows.first().map(|row| row.at_s) else { return Ok(false) };
        if self.found.grows_from_s == 0.0 {
            if now - first >= plan.stationary_s && self.gamma > 0.0 {
                self.screen.say(&format!("  {now:5.0} s  the load grows"));
                self.found.grows_from_s = now;
                self.visitors.borrow_mut().grow(plan.growth);
            }
            return Ok(false);
        }
        self.let_in();
        let busy = self.busy().await;
        let waits = self.starting.is_some();
        match self.scaler.look(self.clock.now(), &busy, waits) {
            Decision::Wait => {}
            Decision::Add => {
                let number = self.replicas.len() + 1;
                self.screen.say(&format!("  {now:5.0} s  replica {number} starts"));
                let ready = self.stage.replica(SERVICE, number, plan.seed, WAIT).await?;
                self.starting = Some((ready, self.clock.now().plus(STARTS.into())));
            }
            Decision::Overloaded => {
                if self.found.overloaded_from_s.is_none() {
                    self.screen.say(&format!("  {now:5.0} s  overloaded, and no further replica is allowed"));
                }
                self.found.overloaded_from_s.get_or_insert(now);
            }
        }
        Ok(self.found.overloaded_from_s.is_some_and(|from| now - from >= plan.overloaded_s))
    }

    /// Sends visitors to a replica that has started.
    fn let_in(&mut self) {
        if let Some((ready, _)) = self.starting.take_if(|(_, at)| *at <= self.clock.now()) {
            self.visitors.borrow_mut().open(ready.listen);
            self.found.added_s.push(self.seconds());
            self.screen.say(&format!("  {:5.0} s  {} replicas", self.seconds(), self.replicas.len() + 1));
            self.replicas.push(ready);
            self.scaler.changed();
        }
    }

    /// Nanoseconds that each replica's hand has been busy so far.
    async fn busy(&self) -> Vec<u64> {
        let mut busy = Vec::new();
        for ready in &self.replicas {
            let answer = self.caller.ask(Method::GET, ready.admin, "/facts").await;
            if let Answer::Answered(_, bytes) = answer
                && let Ok(facts) = serde_json::from_slice::<Facts>(&bytes)
            {
                busy.push(facts.busy_ns);
            }
        }
        busy
    }

    fn finish(mut self) -> Autoscaled {
        self.found.sent = self.visitors.borrow().sent();
        self.found
    }
}

/// The next row; never, without any.
async fn next(rows: &mut Option<mpsc::Receiver<RowEvent>>) -> RowEvent {
    match rows {
        Some(rows) => match rows.recv().await {
            Some(row) => row,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
