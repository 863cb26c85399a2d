//! Memory of both agents over 24 hours of virtual time, on a node where names change all the time: services restart
//! with other metrics, with other names, rename metrics while they run, fall silent and alarm; connections break, and
//! operators come and go. Living bytes stay below what the budgets say, and are the same after hour 2 and hour 24.
//!
//! An allocator counts (`accounts.rs`), so that it is not a question of what the system's allocator gives back; that is
//! what `cargo lab memory` measures. Not here: what edges keep of connections (docs/bounds.md lists it).
//!
//! Seen to fail with an injected leak of 16 bytes per verdict, and of 600 bytes per configuration of the NIC agent.

mod accounts;
mod node;
mod service;

use agent_runtime::budget::{Budget, Load};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use wire::id::Incarnation;
use wire::time::Nanos;

use crate::accounts::Account;
use crate::node::Node;
use crate::service::{Service, columns};

/// Virtual time between two looks at everything.
const STEP: Nanos = Nanos::from_millis(500);
const STEPS_PER_S: u64 = 2;
const HOURS: usize = 24;
/// The first hours have still to fill what is kept for those who come back.
const SETTLED: usize = 2;
/// What happens is the same again after so many hours.
const CYCLE: usize = 4;
/// The most by which the hours may differ.
const MOST: f64 = 0.05;
/// Rows of the host agent's budget that this test fills.
const OF_HOST: [&str; 3] = ["series of services", "connections of services", "learnt models"];
/// Rows of the NIC agent's budget that this test fills.
const OF_NIC: [&str; 7] = [
    "detectors of services that are running",
    "rows for subscribers",
    "descriptions of columns",
    "a fit in progress",
    "buffers of regions",
    "detectors of services without",
    "models of services that are gone",
];

/// How large the node is.
#[derive(Clone, Copy, Debug)]
struct Size {
    services: usize,
    metrics: usize,
    /// Steps from one row to the next.
    row: u64,
    /// Seconds between two restarts.
    restart_s: u64,
    /// The rank of detectors; `None` if each chooses its own.
    rank: Option<usize>,
}

/// Living bytes of an account in one hour.
#[derive(Clone, Copy, Debug)]
struct Hour {
    mean: f64,
    peak: f64,
}

/// A node, and what happens to it.
struct Day {
    size: Size,
    node: Node,
    random: ChaCha8Rng,
    runs: u64,
    names: u64,
    restarts: u64,
    watchers: Vec<wire::id::HookId>,
    budgets: [Budget; 2],
}

impl Day {
    fn new(size: Size) -> Self {
        let Size { services, metrics, row, .. } = size;
        // So small that all of it is in use within two hours.
        let models = 10_000 * columns(metrics);
        let (series, interval) = (services * metrics * 2, row * 1000 / STEPS_PER_S);
        let host = format!(
            "lmap: {{interval_ms: {interval}, model_bytes: {models}}}\nservices: {{limits: {{series: {series}, connections: {}}}}}\n",
            2 * services,
        );
        let rank = size.rank.map(|rank| format!("detector: {{rank: {rank}}}\n")).unwrap_or_default();
        let nic = format!(
            "{rank}limits: {{region_bytes: {}, retained_detector_bytes: {}, retained_models: 16, retained_model_bytes: {models}}}",
            services * 3 * (8192 + 20 * metrics),
            3 * models,
        );
        let host = host_agent::config::Config::parse(&host).expect("a configuration");
        let nic = nic_agent::config::Config::parse(&nic).expect("a configuration");
        let load = Load { services: services as u64, columns: columns(metrics) as u64 };
        let budgets = [host_agent::budget(&host, load), nic_agent::budget(&nic, load)];
        let mut settings = host.settings(Incarnation(1)).expect("a configuration");
        settings.limits.unwatched_services = 4;
        let nic = nic_agent::WorkerSettings { transports: vec!["local".to_owned()], ..nic.settings() };
        let node = Node::new(settings, nic);
        let random = ChaCha8Rng::seed_from_u64(24);
        let mut day = Self { size, node, random, runs: 0, names: 0, restarts: 0, watchers: Vec::new(), budgets };
        (0..services).for_each(|at| day.start(at, true));
        day
    }

    /// Starts the service in place `at` anew, perhaps with a name that no service had.
    fn start(&mut self, at: usize, with_new_name: bool) {
        self.runs += 1;
        let mut name = String::new();
        self.node.with(at, |service| name.clone_from(&service.name));
        if with_new_name {
            self.names += 1;
            name = format!("service-{}", self.names);
        }
        // Some users.
        let uid = 1000 + at as u32 % 3;
        let service = Service::new(name, uid, self.runs, self.size.metrics);
        self.node.start(at, service);
    }

    /// The services that restart at times, all but the first two, take turns.
    const fn restless(&self, turn: u64) -> usize {
        2 + turn as usize % (self.size.services - 2)
    }

    fn step(&mut self, step: u64) {
        let second = step / STEPS_PER_S;
        if step.is_multiple_of(self.size.row) {
            self.node.write(&mut self.random);
        }
        if step.is_multiple_of(STEPS_PER_S) {
            self.happen(second);
        }
        self.node.step(Nanos::from_secs(1).plus(Nanos(STEP.0 * (step + 1))));
    }

    /// What happens in this second.
    fn happen(&mut self, second: u64) {
        let is_time = |every: u64, at: u64| second % every == at;
        if is_time(self.size.restart_s, 7) {
            self.restarts += 1;
            self.start(self.restless(self.restarts), self.restarts.is_multiple_of(3));
        }
        if is_time(60, 30) {
            let (at, runs) = (self.restless(second / 60), self.runs + second);
            self.node.with(at, |service| service.rename_one(runs));
        }
        if is_time(600, 100) {
            let at = self.restless(second / 600);
            self.node.with(at, |service| service.load = 4);
        }
        if is_time(1800, 900) {
            let at = self.restless(second / 1800);
            self.node.with(at, |service| service.is_stopped = true);
        }
        if is_time(600, 160) {
            for at in 0..self.size.services {
                self.node.with(at, |service| (service.load, service.is_stopped) = (1, false));
            }
        }
        if is_time(3600, 300) {
            self.node.break_worker(Nanos::from_secs(3));
        }
        // Longer than the lease, and than the worker goes on alone.
        if is_time(3600, 1200) {
            self.node.break_worker(Nanos::from_secs(90));
        }
        if is_time(1200, 500) {
            self.node.watch(&mut self.watchers);
        }
        if is_time(1800, 700) {
            let (at, mut name) = (self.restless(second / 1800), String::new());
            self.node.with(at, |service| name.clone_from(&service.name));
            self.node.renew_lmap(&name);
        }
        if is_time(7200, 4000) {
            self.node.fit_again();
        }
    }

    /// Runs all hours. Living bytes of `accounts` in each.
    fn run<const N: usize>(&mut self, accounts: [Account; N]) -> [Vec<Hour>; N] {
        let mut hours = [const { Vec::new() }; N];
        for hour in 0..HOURS as u64 {
            let mut sums = [0.0; N];
            for step in 0..3600 * STEPS_PER_S {
                self.step(hour * 3600 * STEPS_PER_S + step);
                for (sum, account) in sums.iter_mut().zip(accounts) {
                    *sum += account.live() as f64;
                }
            }
            for ((hours, sum), account) in hours.iter_mut().zip(sums).zip(accounts) {
                let peak = account.take_peak() as f64;
                hours.push(Hour { mean: sum / (3600 * STEPS_PER_S) as f64, peak });
            }
            eprintln!("hour {} of {HOURS}", hour + 1);
        }
        hours
    }
}

/// The sum of those rows of a budget that begin with one of `names`.
fn sum(budget: &Budget, names: &[&str]) -> f64 {
    let rows = names.iter().map(|name| {
        let row = budget.bounds.iter().find(|bound| bound.what.starts_with(name));
        row.expect("the budget has such a row").bytes
    });
    rows.sum::<u64>() as f64
}

/// The hours of one cycle together.
fn cycle(hours: &[Hour]) -> Hour {
    let mean = hours.iter().map(|hour| hour.mean).sum::<f64>() / hours.len() as f64;
    Hour { mean, peak: hours.iter().map(|hour| hour.peak).fold(0.0, f64::max) }
}

/// What a node of so many services has taken once they have run for a minute.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    /// Living bytes of the host agent.
    host: f64,
    /// What it has by its own count.
    counted: f64,
    /// The NIC agent's columns.
    columns: f64,
    /// What the host agent takes in addition while it sends all configurations again.
    sent: f64,
}

fn footprint(services: usize, metrics: usize) -> Footprint {
    let mut day = Day::new(Size { services, metrics, row: 2, restart_s: u64::MAX, rank: None });
    (0..120).for_each(|step| day.step(step));
    let columns = (services * columns(metrics)) as f64;
    assert_eq!(day.node.worker.status().lmaps[0], services, "all of them learn");
    let (host, counted) = (Account::Host.live() as f64, day.node.host.kept_bytes() as f64);
    Account::Host.take_peak();
    day.node.break_worker(STEP);
    (120..130).for_each(|step| day.step(step));
    let sent = Account::Host.take_peak() as f64 - host;
    // On its accounts, or the next one has its bytes, too.
    day.node.end();
    Footprint { host, counted, columns, sent }
}

#[test]
fn what_the_budget_counts_for_a_series_and_a_message_is_what_they_take() {
    let [few, more] = [footprint(8, 100), footprint(8, 200)];
    let series = (more.host - few.host) / 800.0;
    let own_count = (more.counted - few.counted) / 800.0;
    let configured = (more.sent - few.sent) / (more.columns - few.columns);
    println!(
        "{series:.0} bytes for a series, {own_count:.0} by the agent's own count; {configured:.0} for a column in a message"
    );

    // Where series come and go it is known what they take.
    assert!((0.9..1.1).contains(&(own_count / series)), "{own_count} of {series} are counted");
    // What is stated has room for longer names and labels, and for what an update of a configuration copies.
    let stated = host_agent::budget(&host_agent::config::Config::default(), Load { services: 1, columns: 1 });
    let stated = sum(&stated, &["series of services"]) / f64::from(1 << 18);
    assert!((stated / 3.0..stated).contains(&series), "{series} of {stated}");
    let row = |columns| {
        let load = Load { services: 1, columns };
        sum(&host_agent::budget(&host_agent::config::Config::default(), load), &["messages to and from a worker"])
    };
    let stated = row(2) - row(1);
    assert!((stated / 2.0..stated).contains(&configured), "{configured} of {stated}");
}

fn check(size: Size) {
    const ACCOUNTS: [Account; 3] = [Account::Host, Account::Hooks, Account::Nic];
    let mut day = Day::new(size);
    let hours = day.run(ACCOUNTS);
    let [host, nic] = &day.budgets;
    let stated = [sum(host, &OF_HOST), sum(host, &["verdicts for hooks", "rows for watchers"]), sum(nic, &OF_NIC)];
    println!("{size:?}: {} restarts, {} names of services", day.restarts, day.names);
    println!("verdicts {:?}, {:?}", day.node.hooks.delivered(), day.node.worker.status().counters);
    let mut grown = Vec::new();
    for ((account, hours), stated) in ACCOUNTS.into_iter().zip(&hours).zip(stated) {
        let kib = |bytes: f64| bytes / 1024.0;
        let shown: Vec<_> = hours.iter().map(|hour| format!("{:.0}", kib(hour.mean))).collect();
        let peak = hours.iter().map(|hour| hour.peak).fold(0.0, f64::max);
        println!("{account:?}: KiB by hour {}", shown.join(" "));
        println!(
            "{account:?}: at most {:.0} KiB of {:.0} stated ({:.0} %)",
            kib(peak),
            kib(stated),
            100.0 * peak / stated
        );
        assert!(peak <= stated, "{account:?} had {peak} bytes and may have {stated}");
        let (early, late) = (cycle(&hours[SETTLED..SETTLED + CYCLE]), cycle(&hours[HOURS - CYCLE..]));
        for (what, early, late) in [("mean", early.mean, late.mean), ("peak", early.peak, late.peak)] {
            let change = (late - early) / early;
            println!("{account:?}: {what} after {SETTLED} hours and in the last {CYCLE}: {:+.1} %", 100.0 * change);
            if change >= MOST {
                grown.push(format!("{account:?}: {what} {early} bytes, then {late}"));
            }
        }
    }
    assert!(grown.is_empty(), "more is kept after a day: {grown:#?}");
    let node = day.node;
    node.end();
    let left = ACCOUNTS.map(Account::live);
    // Some messages change hands as they are: 5 kB were seen, at accounts of 770 kB and more.
    assert!(left.iter().all(|left| left.abs() < 8 << 10), "freed on another account, or never: {left:?}");
}

#[test]
fn a_day_of_changing_names_leaves_nothing_behind() {
    check(Size { services: 10, metrics: 24, row: 6, restart_s: 300, rank: None });
}

/// A thousand columns that have nothing to do with each other would get a basis of hundreds of directions, and fits of
/// it would be all that this day takes.
#[test]
#[ignore = "hours of a core in a debug build: the first of its 24 hours took some ten minutes"]
fn a_day_of_a_hundred_services_of_a_thousand_metrics_leaves_nothing_behind() {
    check(Size { services: 100, metrics: 1000, row: STEPS_PER_S, restart_s: 24, rank: Some(12) });
}
