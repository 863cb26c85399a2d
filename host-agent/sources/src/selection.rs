//! Which processes are meant by a name, a command line or a systemd unit.

use std::collections::{BTreeMap, BTreeSet};

use crate::fields::number;

/// How many bytes of a program's name the kernel keeps.
const KEPT_OF_NAME: usize = 15;

/// What names a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The process with this id.
    Pid(u32),
    /// Its name as `ps` shows it, or the file name of its program.
    Name(String),
    /// A part of its command line, words separated by one space.
    Command(String),
    /// A systemd unit, such as `redis.service`: a folder of its cgroup.
    Unit(String),
}

/// A running process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// The process id.
    pub pid: u32,
    /// The process id of its parent.
    pub parent: u32,
    /// Its start, in clock ticks since boot.
    pub started: u64,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// The words of its command line; empty unless the selector needs them.
    pub command: Vec<String>,
    /// The text of its `cgroup` file; empty unless the selector needs it.
    pub cgroup: String,
}

/// The processes of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedProcesses {
    /// Those that the selector names and whose parents it does not name: process id and start.
    pub roots: BTreeSet<(u32, u64)>,
    /// These and all their descendants: process ids.
    pub all: BTreeSet<u32>,
}

impl Candidate {
    /// A process from its `stat`: id, parent, start and name. `None` for a text that the kernel does not write, and for
    /// a zombie, which has ended and waits for its parent.
    #[must_use]
    pub fn from_stat(text: &[u8]) -> Option<Self> {
        let (opens, closes) = (text.iter().position(|b| *b == b'(')?, text.iter().rposition(|b| *b == b')')?);
        let mut fields = text.get(closes + 1..)?.trim_ascii().split(|byte| *byte == b' ');
        let state = fields.next()?;
        let parent = number(fields.next()?)?;
        // The start is field 22; the parent was field 4.
        let started = number(fields.nth(17)?)?;
        (state != b"Z" && state != b"X").then_some(())?;
        Some(Self {
            pid: u32::try_from(number(text.get(..opens)?.trim_ascii())?).ok()?,
            parent: u32::try_from(parent).ok()?,
            started,
            name: String::from_utf8_lossy(text.get(opens + 1..closes)?).into_owned(),
            ..Self::default()
        })
    }
}

impl Selector {
    /// Whether [`select`] needs the command lines of candidates.
    #[must_use]
    pub fn needs_commands(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Command(_))
    }

    /// Whether [`select`] needs the cgroups of candidates.
    #[must_use]
    pub fn needs_cgroups(&self) -> bool {
        matches!(self, Self::Unit(_))
    }

    fn names(&self, candidate: &Candidate) -> bool {
        match self {
            Self::Pid(pid) => candidate.pid == *pid,
            Self::Name(name) => is_called(candidate, name),
            Self::Command(part) => !candidate.command.is_empty() && candidate.command.join(" ").contains(part),
            Self::Unit(unit) => candidate.cgroup.lines().any(|line| line.split('/').any(|folder| folder == unit)),
        }
    }
}

/// A program may rename itself (`redis-server *:6379`), and the kernel cuts names, so three places are looked at.
fn is_called(candidate: &Candidate, name: &str) -> bool {
    let cut = name.as_bytes().get(..KEPT_OF_NAME);
    let by_kernel = cut.map_or(candidate.name == name, |cut| candidate.name.as_bytes() == cut);
    let program = candidate.command.first().map(|first| first.split(' ').next().unwrap_or_default());
    let by_program = program.is_some_and(|program| program.rsplit('/').next() == Some(name));
    match program {
        // A name that was cut may be another program's.
        Some(_) if cut.is_some() => by_program,
        _ => by_kernel || by_program,
    }
}

/// The processes that `selector` names among `candidates`, and their descendants; never `own`, the process that asks,
/// nor its ancestors, whose command lines have the same words.
#[must_use]
pub fn select(selector: &Selector, candidates: &[Candidate], own: u32) -> SelectedProcesses {
    let parents: BTreeMap<u32, u32> = candidates.iter().map(|candidate| (candidate.pid, candidate.parent)).collect();
    let excluded: BTreeSet<u32> =
        if matches!(selector, Selector::Pid(_)) { BTreeSet::new() } else { ancestors(own, &parents).collect() };
    let matched = candidates.iter().filter(|candidate| !excluded.contains(&candidate.pid) && selector.names(candidate));
    let matched: BTreeMap<u32, &Candidate> = matched.map(|candidate| (candidate.pid, candidate)).collect();
    let is_root = |candidate: &&&Candidate| !matched.contains_key(&candidate.parent);
    let roots: BTreeSet<_> = matched.values().filter(is_root).map(|root| (root.pid, root.started)).collect();
    let descends = |pid: &u32| *pid != own && ancestors(*pid, &parents).any(|pid| matched.contains_key(&pid));
    let all = parents.keys().copied().filter(descends).collect();
    SelectedProcesses { roots, all }
}

/// `pid`, its parent, and so on. Ends although a list that was read while processes ended may have a circle.
fn ancestors(pid: u32, parents: &BTreeMap<u32, u32>) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(parents.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, command: &str) -> Candidate {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let name = command[0].rsplit('/').next().unwrap().chars().take(KEPT_OF_NAME).collect();
        Candidate { pid, parent, started: u64::from(pid) * 10, name, command, cgroup: String::new() }
    }

    fn machine() -> Vec<Candidate> {
        vec![
            process(1, 0, "/sbin/init"),
            process(50, 1, "bash -c uview watch --command redis-server"),
            process(51, 50, "uview watch --command redis-server"),
            process(52, 51, "uview host-agent"),
            process(60, 1, "/usr/bin/redis-server *:6379"),
            process(61, 60, "redis-rdb-bgsave"),
            process(70, 1, "nginx: master"),
            process(71, 70, "nginx: worker"),
        ]
    }

    fn pids(selector: &Selector) -> Vec<u32> {
        select(selector, &machine(), 51).all.into_iter().collect()
    }

    #[test]
    fn a_program_is_its_process_and_those_that_it_started() {
        for selector in
            [Selector::Pid(60), Selector::Name("redis-server".into()), Selector::Command("redis-server *".into())]
        {
            assert_eq!(pids(&selector), [60, 61], "{selector:?}");
            assert_eq!(select(&selector, &machine(), 51).roots, [(60, 600)].into(), "{selector:?}");
        }
    }

    #[test]
    fn whoever_asks_is_not_meant_nor_whoever_started_it() {
        assert_eq!(pids(&Selector::Command("redis-server".into())), [60, 61]);
        assert_eq!(pids(&Selector::Command("uview watch".into())), Vec::<u32>::new());
    }

    #[test]
    fn names_are_whole_and_longer_ones_than_the_kernel_keeps_are_compared_by_program() {
        assert_eq!(pids(&Selector::Name("redis".into())), Vec::<u32>::new());
        let long = process(80, 1, "/opt/a-very-long-program-name");
        let other = process(81, 1, "/opt/a-very-long-program-other");
        let selected = select(&Selector::Name("a-very-long-program-name".into()), &[long, other], 51);

        assert_eq!(selected.all, [80].into());
    }

    #[test]
    fn a_unit_is_a_folder_of_the_cgroup() {
        let mut machine = machine();
        machine[4].cgroup =
            "12:pids:/system.slice/redis.service\n1:name=systemd:/system.slice/redis.service\n".to_owned();
        machine[6].cgroup = "0::/system.slice/redis.service.d\n".to_owned();

        assert_eq!(select(&Selector::Unit("redis.service".into()), &machine, 51).all, [60, 61].into());
    }

    #[test]
    fn a_process_is_read_from_its_stat_whatever_it_is_called_and_a_zombie_is_none() {
        let stat = b"4711 (a) b (c) S 17 4711 4711 0 -1 4194560 1206 30 7 0 12 5 0 0 20 0 3 0 8911 8425472 1330 1\n";
        let expected =
            Candidate { pid: 4711, parent: 17, started: 8911, name: "a) b (c".to_owned(), ..Candidate::default() };

        assert_eq!(Candidate::from_stat(stat), Some(expected));
        assert_eq!(Candidate::from_stat(b"4711 (a) Z 17 1 1 0 -1 1 1 3 7 0 1 5 0 0 20 0 3 0 8911 84 1\n"), None);
        assert_eq!(Candidate::from_stat(b"4711 (a"), None);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let circle = [process(5, 6, "a"), process(6, 5, "b")];

        assert_eq!(select(&Selector::Name("a".into()), &circle, 51).all, [5, 6].into());
    }
}
