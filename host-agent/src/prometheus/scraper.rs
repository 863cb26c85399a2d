//! Scrapes one target.

use std::convert::Infallible;
use std::sync::Arc;

use agent_runtime::http_client::{GetError, SendError};
use exposition::{ACCEPT, Format, FormatError, cost};
use otlp::gzip::{self, GzipError};
use otlp::{ForeignListener, ListenerRules};
use tokio::sync::watch;
use wire::name::ServiceName;
use wire::time::Nanos;

use super::plan::TargetPlan;
use super::replica::{of_health, of_values, write_health};
use super::view::{FOREIGN, REASONS, ScrapeFailure, TargetView};
use crate::clock::Clock;
use crate::control_plane::Paces;
use crate::filled_region::{FilledRegion, Sampling};
use crate::node::Node;

/// Time between two scrapes while a target is learnt.
const LEARN_EVERY: Nanos = Nanos::from_secs(1);
/// Most of a processor that a target with an interval of its own gives while it is learnt.
const FIXED_SHARE: f64 = 0.25;
/// A start shows in several scrapes: one by one counters begin anew. So many later, another one is a start by itself.
const STARTING: u32 = 5;

/// Why a scrape failed.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("{0}")]
    Get(#[from] GetError),
    #[error("{0}")]
    Foreign(#[from] ForeignListener),
    #[error("its answer is packed as `{0}`, which was not asked for")]
    Encoding(String),
    #[error("{0}")]
    Gzip(GzipError<Infallible>),
    #[error("it answers with `{0}`, which is no format of metrics")]
    NoMetrics(String),
    #[error("{0}")]
    Format(#[from] FormatError),
}

impl ScrapeError {
    /// Its kind, and what it says together with what to do.
    fn failure(&self) -> ScrapeFailure {
        let (reason, advice) = match self {
            Self::Get(error) => (
                error.reason(),
                match error {
                    GetError::Send(SendError::Connect { .. } | SendError::Tls(_)) => {
                        "does the program run, and is the address right?"
                    }
                    GetError::Status(401 | 403) => "set headers: {Authorization: …} of the target",
                    GetError::Status(_) | GetError::Send(SendError::Http(_)) => "is the path right?",
                    GetError::Send(SendError::Deadline(_)) => "raise timeout_ms, or ask for fewer series",
                    GetError::TooLong(_) => "raise max_bytes",
                    _ => "see the log of the target",
                },
            ),
            Self::Foreign(_) => (FOREIGN, "a rule with its uid, cgroup or address (peers) lets it"),
            Self::Encoding(_) | Self::Gzip(_) => ("encoding", "does a proxy change it?"),
            Self::NoMetrics(_) => ("no_metrics", "is the path right?"),
            Self::Format(_) => ("format", "does the program write it so?"),
        };
        ScrapeFailure { reason, text: format!("{self}; {advice}") }
    }
}

/// A scrape that has ended.
#[derive(Clone, Copy, Debug)]
struct ScrapeTime {
    began: Nanos,
    took: Nanos,
    /// Whether it came before the usual one would have.
    is_extra: bool,
}

/// The task of one target.
pub(super) struct Scraper {
    plan: TargetPlan,
    view: Arc<TargetView>,
    node: Arc<Node>,
    /// `None`: the API server says whose the target is.
    listeners: Option<Arc<ListenerRules>>,
    body: Vec<u8>,
    values: Option<FilledRegion>,
    health: Option<FilledRegion>,
    /// How long scrapes took, while it is learnt.
    took: Vec<Nanos>,
    interval: Nanos,
    /// The shortest time between two scrapes, while its service is fetched faster; `None`: its interval is fixed.
    fastest: Option<Nanos>,
    /// Scrapes that failed since the last one that succeeded.
    failures: u32,
    /// Whether the exporter said in the scrape before that its program is down.
    said_down: bool,
    /// Scrapes that succeeded since its program started.
    running: u32,
}

impl Scraper {
    /// The task of `plan`, whose service's name belongs to others unless `listeners` let it, if there are any.
    pub(super) fn new(
        plan: TargetPlan,
        view: Arc<TargetView>,
        node: Arc<Node>,
        listeners: Option<Arc<ListenerRules>>,
    ) -> Self {
        let interval = plan.interval.unwrap_or(LEARN_EVERY);
        view.state().interval = interval;
        let (body, took) = (Vec::new(), Vec::new());
        Self {
            plan,
            view,
            node,
            listeners,
            body,
            values: None,
            health: None,
            took,
            interval,
            fastest: None,
            failures: 0,
            said_down: false,
            running: 0,
        }
    }

    /// Removes its replicas from the service.
    pub(super) fn remove(self) {
        for region in [self.values, self.health].into_iter().flatten() {
            region.leave(&self.node);
        }
    }

    /// Scrapes for ever. A scrape that is missed since the one before took too long is counted, and not made up for.
    pub(super) async fn run(&mut self, offset: Nanos) {
        let (clock, mut paces) = (self.node.clock(), self.node.paces());
        let (mut next, mut last) = (clock.now().plus(offset), None);
        loop {
            let early = last.filter(|_| self.may_hurry()).map(|last| (last, self.plan.cpu_share));
            let due = wait(&mut paces, &self.plan.service, (next, early), clock).await;
            let began = clock.now();
            let outcome = self.scrape_in_time().await;
            let took = clock.now().since(began).unwrap_or(Nanos::ZERO);
            self.end(outcome, ScrapeTime { began, took, is_extra: due < next });
            // Once series are chosen, the interval itself keeps to the share.
            let share = if self.plan.interval.is_some() { FIXED_SHARE } else { self.plan.cpu_share };
            let rest = self.values.is_none().then(|| cost::rest(took, share));
            let (after, missed) = following(due, clock.now(), self.interval, rest);
            self.view.counts.late.add(missed);
            (next, last) = (after, Some((began, took)));
        }
    }

    /// Whether it may be scraped before it is due as usual. Not while it fails, has just started, or is learnt:
    /// failures, starts and what is learnt are counted in scrapes.
    fn may_hurry(&self) -> bool {
        let is_calm = self.failures == 0 && !self.said_down && self.running > STARTING;
        self.fastest.is_some() && self.values.is_some() && is_calm && !self.view.target().is_learning()
    }

    /// Scrapes once. As long as there is no answer, each interval counts as a failure: a target that hangs would
    /// otherwise be silent until the deadline, which may be many rows.
    async fn scrape_in_time(&mut self) -> Result<bool, ScrapeError> {
        let interval = self.interval;
        let rules = (self.listeners.as_deref(), self.node.clock().now());
        let mut scraping = core::pin::pin!(scrape(&mut self.plan, &self.view, &mut self.body, rules));
        let mut waited = Nanos::ZERO;
        loop {
            tokio::select! {
                biased;
                outcome = &mut scraping => return outcome,
                () = tokio::time::sleep(interval.into()) => {}
            }
            waited = waited.plus(interval);
            self.failures = self.failures.saturating_add(1);
            if let Some(health) = &self.health {
                write_health(health, self.failures, (waited, 0), self.node.clock().now());
            }
        }
    }

    fn end(&mut self, outcome: Result<bool, ScrapeError>, ScrapeTime { began, took, is_extra }: ScrapeTime) {
        let counts = &self.view.counts;
        counts.scrapes.one_more();
        counts.took_us.add(took.0 / 1_000);
        // A program that restarts is down for one scrape. An exporter that says so again has failed to reach it.
        let says_down = outcome.is_ok() && self.view.target().program().down;
        let failed = outcome.is_err() || says_down && self.said_down;
        self.said_down = says_down;
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        match outcome {
            Ok(choose) => {
                let was_down = {
                    let mut state = self.view.state();
                    state.took = took;
                    state.down.take().is_some()
                };
                let (service, url) = (self.view.service(), self.view.url());
                if was_down {
                    tracing::info!(service, url, "target answers again");
                }
                self.took.push(took);
                let refused = self.view.target().last_scrape().1.counts();
                for (count, refused) in counts.refused.iter().zip(refused) {
                    count.add(refused as u64);
                }
                self.running = self.running.saturating_add(u32::from(!is_extra));
                if self.view.target().program().restarted && self.running > STARTING {
                    self.leave();
                }
                if choose {
                    self.choose(began);
                } else if self.values.is_none() && self.view.target().is_chosen() {
                    self.enter(began);
                }
                if let Some(values) = &self.values {
                    values.write(&self.view.target(), began);
                }
            }
            Err(error) => {
                if matches!(error, ScrapeError::Foreign(_)) {
                    // Not even as down: it is another one that is.
                    let gone = [self.values.take(), self.health.take()];
                    gone.into_iter().flatten().for_each(|region| region.leave(&self.node));
                }
                self.failed(&error.failure());
            }
        }
        if let Some(health) = &self.health {
            let samples = if self.failures == 0 { self.view.target().last_scrape().0 } else { 0 };
            write_health(health, self.failures, (took, samples), self.node.clock().now());
        }
        if self.took.len() > self.plan.settings.window as usize {
            self.took.clear();
        }
    }

    /// The program has started anew: another replica begins, so that nothing is compared with the run before. As with
    /// any service that returns, its first rows are not judged.
    fn leave(&mut self) {
        self.running = 0;
        self.view.counts.restarts.one_more();
        let gone = [self.values.take(), self.health.take()];
        if gone.iter().any(Option::is_some) {
            tracing::info!(service = self.view.service(), url = self.view.url(), "the program behind it has restarted");
        }
        gone.into_iter().flatten().for_each(|region| region.leave(&self.node));
    }

    fn failed(&self, failure: &ScrapeFailure) {
        if let Some(count) = REASONS.iter().zip(&self.view.counts.failed).find(|(reason, _)| **reason == failure.reason)
        {
            count.1.one_more();
        }
        let now = self.node.clock().now();
        let mut state = self.view.state();
        let since = state.down.as_ref().map_or(now, |(_, since)| *since);
        if state.down.replace((failure.clone(), since)).is_none() {
            let (service, url) = (self.view.service(), self.view.url());
            tracing::warn!(service, url, why = failure.text, "target is down");
        }
    }

    /// Chooses series, then replaces the region by one for them. The old one goes after the new one is there, so that
    /// common series stay.
    fn choose(&mut self, began: Nanos) {
        let mut target = self.view.target();
        let before = target.placed();
        target.choose();
        if self.values.is_some() && target.placed() == before {
            self.took.clear();
            return;
        }
        if self.plan.interval.is_none() && self.values.is_none() {
            self.interval = cost::interval(&mut self.took, self.plan.cpu_share);
            self.fastest = Some(cost::fastest(&mut self.took, self.plan.cpu_share));
            self.view.state().interval = self.interval;
        }
        let service = self.view.service();
        let what = (target.exposed(), target.watched(), target.columns());
        tracing::info!(
            service,
            url = self.view.url(),
            series = what.0,
            watched = what.1,
            columns = what.2,
            "series chosen"
        );
        drop(target);
        self.enter(began);
        self.took = Vec::new();
    }

    /// Announces regions for the chosen series, first with values of a scrape that `began` then. Old ones go after the
    /// new ones are there.
    fn enter(&mut self, began: Nanos) {
        let (target, service) = (self.view.target(), self.view.service());
        let sampling = Sampling { every: self.interval, fastest: self.fastest, first: began };
        match of_values(&self.plan, &target, sampling, &self.node) {
            Ok(new) => {
                if let Some(old) = self.values.replace(new) {
                    old.leave(&self.node);
                }
            }
            Err(error) => tracing::warn!(service, error = &*error as &dyn core::error::Error, "no region for a target"),
        }
        if self.health.is_none() {
            match of_health(&self.plan, sampling, &self.node) {
                Ok(new) => self.health = Some(new),
                Err(error) => {
                    tracing::warn!(service, error = &*error as &dyn core::error::Error, "no region for a target");
                }
            }
        }
    }
}

/// When the last scrape began and how long it took, and the share of a processor.
type EarlyScrape = ((Nanos, Nanos), f64);

/// Waits until a target of `service` is due: at `next` as usual; earlier while its service is fetched faster, if there
/// is an `early` scrape to come. Returns when it was due.
async fn wait(
    paces: &mut watch::Receiver<Paces>,
    service: &ServiceName,
    (next, early): (Nanos, Option<EarlyScrape>),
    clock: Clock,
) -> Nanos {
    loop {
        let pace = paces.borrow_and_update().get(service).copied();
        let sooner = early.zip(pace).map(|((last, share), pace)| cost::sooner(last, pace.length(), share));
        // One that would have been before anything seemed wrong is due now: the next usual one is a whole interval
        // later.
        let due = sooner.map_or(next, |sooner| sooner.max(clock.now()).min(next));
        let left = due.since(clock.now()).unwrap_or(Nanos::ZERO);
        tokio::select! {
            () = tokio::time::sleep(left.into()) => return due,
            // The scraper has the node, and so the sender.
            _ = paces.changed() => {}
        }
    }
}

/// When the scrape after the one that was due at `due` is, as of `now`, and how many are left out: an `interval` later,
/// or once `rest` is over.
fn following(due: Nanos, now: Nanos, interval: Nanos, rest: Option<Nanos>) -> (Nanos, u64) {
    let next = due.plus(interval);
    if let Some(rest) = rest {
        // Not by whole intervals: of scrapes now one and now two of them apart, all counters would seem to move alike.
        let earliest = now.plus(rest);
        return (next.max(earliest), earliest.0.saturating_sub(next.0) / interval.0.max(1));
    }
    // A scrape that ran into its deadline ends when the next one is due: that one begins at once.
    let earliest = Nanos(now.0.saturating_sub(interval.0 / 2));
    let missed = earliest.0.saturating_sub(next.0).div_ceil(interval.0.max(1));
    (next.plus(Nanos(interval.0.saturating_mul(missed))), missed)
}

/// Asks the target once, and takes its answer in, if the rules of now let it. True if there is something to choose.
async fn scrape(
    plan: &mut TargetPlan,
    view: &TargetView,
    body: &mut Vec<u8>,
    (listeners, now): (Option<&ListenerRules>, Nanos),
) -> Result<bool, ScrapeError> {
    let limit = plan.max_bytes;
    let page = plan.client.get(ACCEPT, body, limit).await?;
    if let Some(listeners) = listeners {
        listeners.check(plan.client.listener(), plan.service.as_str(), now).await?;
    }
    let unpacked;
    let text = match page.encoding.as_deref() {
        None => body.as_slice(),
        Some("gzip") => {
            unpacked = gzip::unpack(&*body, limit, |_| Ok(())).map_err(ScrapeError::Gzip)?;
            unpacked.as_slice()
        }
        Some(other) => return Err(ScrapeError::Encoding(other.to_owned())),
    };
    let format = Format::of(page.content_type.as_deref());
    let format = format.ok_or_else(|| ScrapeError::NoMetrics(page.content_type.unwrap_or_default()))?;
    view.counts.bytes.add(body.len() as u64);
    {
        let mut state = view.state();
        (state.format, state.bytes) = (format.name(), body.len());
    }
    Ok(view.target().take(text, format)?)
}

#[cfg(test)]
mod tests {
    use wire::time::Interval;

    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// When each of `scrapes` scrapes of `took` begins, of a target that is learnt at `share`; when the next one would,
    /// and how many are left out.
    fn learnt(scrapes: usize, took: Nanos, share: f64) -> (Vec<Nanos>, Nanos, u64) {
        let (mut next, mut now, mut late, mut began) = (Nanos::ZERO, Nanos::ZERO, 0, Vec::new());
        for _ in 0..scrapes {
            now = now.max(next);
            began.push(now);
            now = now.plus(took);
            let (after, missed) = following(next, now, SECOND, Some(cost::rest(took, share)));
            (next, late) = (after, late + missed);
        }
        (began, next, late)
    }

    #[test]
    fn while_a_target_is_learnt_scrapes_take_no_more_than_its_share() {
        for (millis, share) in [(1, 0.05), (49, 0.05), (51, 0.05), (200, 0.05), (700, 0.05), (40, 0.01), (10, 1.0)] {
            let took = Nanos::from_millis(millis);
            let (began, end, late) = learnt(60, took, share);

            let busy = took.0 as f64 * 60.0 / end.0 as f64;
            assert!(busy <= share + 1e-6, "{millis} ms: {busy} of {share}");
            assert!(began.windows(2).all(|pair| pair[1] >= pair[0].plus(SECOND)), "{millis} ms");
            // It is learnt each second where the share has room for that.
            assert_eq!(end == Nanos::from_secs(60), busy < share, "{millis} ms");
            assert_eq!(late == 0, (millis as f64) < share * 2_000.0, "{millis} ms: {late}");
        }
    }

    #[tokio::test]
    async fn a_target_is_scraped_earlier_as_soon_as_its_service_is_fetched_faster_and_not_if_it_may_not_be() {
        let (clock, name) = (Clock::start(), |name| ServiceName::new(name).unwrap());
        let (sender, mut paces) = watch::channel(Paces::default());
        let pace = Interval::new(Nanos::from_millis(100)).unwrap();
        let (last, hour) = ((clock.now(), Nanos::from_millis(1)), clock.now().plus(Nanos::from_secs(3_600)));
        let redis = name("redis");

        let waiting = wait(&mut paces, &redis, (hour, Some((last, 0.05))), clock);
        let told = async { sender.send_replace(Paces::new([(name("redis"), pace)].into())) };
        let (due, _) = tokio::join!(waiting, told);
        // Later only if this machine was busy until it was told.
        assert!(last.0.plus(Nanos::from_millis(100)) <= due && due < hour, "{due:?}");

        let soon = clock.now().plus(Nanos::from_millis(1));
        assert_eq!(wait(&mut paces, &redis, (soon, None), clock).await, soon);
        assert_eq!(wait(&mut paces, &name("cart"), (soon, Some((last, 0.05))), clock).await, soon);
    }

    #[test]
    fn a_scrape_that_waited_for_long_is_followed_by_another_after_fifteen_seconds() {
        let (began, ..) = learnt(2, Nanos::from_secs(30), 0.05);

        assert_eq!(began, [Nanos::ZERO, Nanos::from_secs(45)]);
    }

    #[test]
    fn once_series_are_chosen_scrapes_keep_to_their_grid() {
        let of = |now_ms: u64| {
            let (next, missed) = following(SECOND, Nanos::from_millis(now_ms), SECOND, None);
            (next.as_millis(), missed)
        };

        assert_eq!((of(1_010), of(2_000), of(2_500)), ((2_000, 0), (2_000, 0), (2_000, 0)));
        assert_eq!((of(2_600), of(4_600)), ((3_000, 1), (5_000, 3)));
    }
}
