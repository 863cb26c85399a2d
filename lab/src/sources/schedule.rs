//! Which faults come when, drawn from a seed. Pure.

use core::fmt;

use clap::ValueEnum;
use demo::noise::Noise;
use serde::{Deserialize, Serialize};
use wire::time::Nanos;

/// A program that is watched as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    Redis,
    Nginx,
    Postgres,
}

impl Program {
    /// Its name in output and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Nginx => "nginx",
            Self::Postgres => "postgres",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    CpuHog,
    SlowDisk,
    ClientPause,
    Flood,
    MemoryLimit,
    Hang,
    Restart,
}

impl Fault {
    /// All faults, in no particular order.
    pub const ALL: [Self; 7] =
        [Self::CpuHog, Self::SlowDisk, Self::ClientPause, Self::Flood, Self::MemoryLimit, Self::Hang, Self::Restart];

    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuHog => "CPU hog",
            Self::SlowDisk => "slow disk",
            Self::ClientPause => "CLIENT PAUSE",
            Self::Flood => "flood of connections",
            Self::MemoryLimit => "memory limit",
            Self::Hang => "SIGSTOP",
            Self::Restart => "kill and restart",
        }
    }

    /// What is done, for the table.
    pub const fn story(self) -> &'static str {
        match self {
            Self::CpuHog => "three burners pinned to each core, beside the programs",
            Self::SlowDisk => "two loops of `dd oflag=dsync` on the programs' file system",
            Self::ClientPause => "`CLIENT PAUSE … ALL`",
            Self::Flood => "400 connections (PostgreSQL: 60), a new one for each request",
            Self::MemoryLimit => "the cgroup's limit is set to what is in use, while clients write more",
            Self::Hang => "SIGSTOP to all of its processes",
            Self::Restart => "SIGKILL (PostgreSQL: SIGQUIT) to all of its processes, then a new start at once",
        }
    }

    /// Whether it is of the machine, and all programs that can have it have it at once.
    pub const fn is_of_machine(self) -> bool {
        matches!(self, Self::CpuHog | Self::SlowDisk)
    }

    /// The programs that can have it. nginx sends a few files, and writes its log without waiting for the disk: neither
    /// a slow disk nor a limit of memory harms it.
    pub const fn programs(self) -> &'static [Program] {
        match self {
            Self::CpuHog | Self::Flood | Self::Hang | Self::Restart => {
                &[Program::Redis, Program::Nginx, Program::Postgres]
            }
            Self::SlowDisk | Self::MemoryLimit => &[Program::Redis, Program::Postgres],
            Self::ClientPause => &[Program::Redis],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Lengths of a run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between two samples of `uview watch`, and between two scrapes, in milliseconds.
    pub interval_ms: u32,
    /// Scrapes that are learnt before series are chosen.
    pub learn_scrapes: u32,
    /// Time without a fault from when all are armed. Processor time is measured in it.
    pub healthy: Nanos,
    /// Time after that, still without a fault. From here on rows are recorded, with which those of faults are compared.
    pub recorded: Nanos,
    /// The shortest and the longest fault, in seconds.
    pub lasts_s: (f64, f64),
    /// The shortest and the longest pause after a fault, in seconds: longer than the judge's grace, or it is no quiet
    /// time.
    pub gap_s: (f64, f64),
    /// The longest pause, if an alarm goes on after it.
    pub longest_gap: Nanos,
}

impl Pace {
    /// A sample, and a scrape, each second. Of `uview watch` that is the default; an endpoint would be scraped more
    /// seldom once it is learnt if it took long.
    pub const FULL: Self = Self {
        interval_ms: 1000,
        learn_scrapes: 60,
        healthy: Nanos::from_secs(45),
        recorded: Nanos::from_secs(30),
        lasts_s: (8.0, 12.0),
        gap_s: (12.0, 18.0),
        longest_gap: Nanos::from_secs(60),
    };

    /// Learns for half a minute. Says whether all works, and little about false alarms.
    pub const QUICK: Self = Self {
        interval_ms: 200,
        learn_scrapes: 30,
        healthy: Nanos::from_secs(10),
        recorded: Nanos::from_secs(5),
        lasts_s: (6.0, 8.0),
        gap_s: (6.0, 9.0),
        longest_gap: Nanos::from_secs(12),
    };
}

/// A fault that will be injected.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    pub fault: Fault,
    /// Those that have it: one, or all that can if it is of the machine.
    pub programs: Vec<Program>,
    pub lasts: Nanos,
    /// The pause after it.
    pub gap: Nanos,
}

/// Each fault once for each of `programs` that can have it, those of the machine once for all. The seed determines
/// order, lengths and pauses.
pub fn plan(seed: u64, programs: &[Program], pace: &Pace) -> Vec<PlannedFault> {
    let mut noise = Noise::new(seed, "sources");
    let mut all: Vec<(Fault, Vec<Program>)> = Vec::new();
    for fault in Fault::ALL {
        let able: Vec<_> = fault.programs().iter().copied().filter(|program| programs.contains(program)).collect();
        if able.is_empty() {
            continue;
        }
        if fault.is_of_machine() {
            all.push((fault, able));
        } else {
            all.extend(able.into_iter().map(|program| (fault, vec![program])));
        }
    }
    noise.shuffle(&mut all);
    let mut draw = |(low, high): (f64, f64)| Nanos((noise.between(low, high) * 1e9) as u64);
    let planned = all.into_iter().map(|(fault, programs)| {
        let (lasts, gap) = (draw(pace.lasts_s), draw(pace.gap_s));
        PlannedFault { fault, programs, lasts, gap }
    });
    planned.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [Program; 3] = [Program::Redis, Program::Nginx, Program::Postgres];

    #[test]
    fn every_program_has_each_of_its_faults_once_and_seeds_differ_in_order_and_lengths() {
        let plans: Vec<_> = (1..=5).map(|seed| plan(seed, &ALL, &Pace::FULL)).collect();

        for planned in &plans {
            let of = |program| planned.iter().filter(|one| one.programs.contains(&program)).count();
            assert_eq!((of(Program::Redis), of(Program::Nginx), of(Program::Postgres)), (7, 4, 6));
            assert!(planned.iter().all(|one| (8.0..12.0).contains(&one.lasts.as_secs_f64())));
            assert!(planned.iter().all(|one| (12.0..18.0).contains(&one.gap.as_secs_f64())));
        }
        let first: BTreeSet<_> = plans.iter().map(|planned| planned[0].lasts).collect();
        let orders: BTreeSet<Vec<Fault>> =
            plans.iter().map(|planned| planned.iter().map(|one| one.fault).collect()).collect();
        assert_eq!((first.len(), orders.len()), (5, 5));
        assert_eq!(plan(3, &ALL, &Pace::FULL), plan(3, &ALL, &Pace::FULL));
    }

    #[test]
    fn a_run_of_all_programs_takes_at_most_eleven_minutes() {
        for seed in 1..=5 {
            let faults = plan(seed, &ALL, &Pace::FULL).iter().map(|one| one.lasts.plus(one.gap).0).sum::<u64>();
            let samples = Pace::FULL.learn_scrapes + 120;
            let learning = Nanos::from_millis(u64::from(samples * Pace::FULL.interval_ms));
            let whole = learning.plus(Pace::FULL.healthy).plus(Pace::FULL.recorded).plus(Nanos(faults));
            assert!(whole <= Nanos::from_secs(660), "{}", whole.as_secs_f64());
        }
    }

    #[test]
    fn a_program_that_does_not_run_has_no_fault() {
        let planned = plan(1, &[Program::Nginx], &Pace::FULL);

        assert!(planned.iter().all(|one| one.programs == [Program::Nginx]));
        assert!(planned.iter().all(|one| one.fault != Fault::ClientPause && one.fault != Fault::SlowDisk));
    }
}
