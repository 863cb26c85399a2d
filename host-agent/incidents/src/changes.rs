//! What was changed: differences between two looks at the replicas of services, at their programs, and at their limits.
//!
//! The first look at a service is what later ones are compared with, and no change. A replica that leaves is remembered
//! for [`COMES_BACK_WITHIN`]: one that joins in its place is its restart, another program is a new version, other
//! arguments or variables are another configuration. Values of arguments and variables are compared, and never kept:
//! secrets are among them.
//!
//! *Memory*: about [`REPLICA_BYTES`] for each of [`MAX_REPLICAS`] replicas, and [`MAX_CHANGES`] changes of at most 600
//! bytes.

use core::fmt::Write as _;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::printable::line;
use wire::proto::operators::IncidentChange;
use wire::time::{Nanos, UnixNanos};

/// A replica that joins so long after another one has left is that one, started again.
pub const COMES_BACK_WITHIN: Nanos = Nanos::from_secs(120);
/// Changes are remembered for so long before an incident: ten minutes.
pub const REMEMBERED: Nanos = Nanos::from_secs(600);
/// Changes that are remembered.
pub const MAX_CHANGES: usize = 512;
/// Replicas that are compared.
pub const MAX_REPLICAS: usize = 2_048;
/// Bytes of a replica: names, hashes of 64 variables.
pub const REPLICA_BYTES: usize = 4_096;
/// Variables of a program that are compared.
pub const MAX_VARIABLES: usize = 64;
/// Characters of a name.
const MAX_NAME: usize = 120;
/// Names of variables that are said of one change.
const NAMED_VARIABLES: usize = 4;

/// A program as it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Path of its file.
    pub path: String,
    /// A number for the file itself and when it was changed.
    pub file: u64,
    /// A number for its arguments.
    pub arguments: u64,
    /// A number for the value of each of its variables, by name.
    pub variables: BTreeMap<String, u64>,
}

/// A replica of a service, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replica {
    /// Number of its registration, never given twice.
    pub number: u32,
    /// Its own name.
    pub instance: String,
    /// Its process; 0 if it is unknown.
    pub process: u32,
    /// Its program, if that can be read.
    pub program: Option<Arc<Program>>,
    /// Its limits by name, in words.
    pub limits: Arc<BTreeMap<&'static str, String>>,
}

/// A service as it was at the last look.
#[derive(Clone, Debug, Default)]
struct KnownService {
    replicas: BTreeMap<u32, Replica>,
    left: VecDeque<(UnixNanos, Replica)>,
    versions: Vec<String>,
}

/// What is known of all services, and what was changed lately.
#[derive(Clone, Debug, Default)]
pub struct ChangeLog {
    services: BTreeMap<String, KnownService>,
    changes: VecDeque<IncidentChange>,
    noted: u64,
}

fn short(text: &str) -> String {
    let text = line(text);
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

impl ChangeLog {
    /// Compares `replicas`, all that `service` has `at` this moment since 1970, with those of before.
    pub fn replicas(&mut self, service: &str, replicas: Vec<Replica>, at: UnixNanos) {
        let total: usize = self.services.values().map(|known| known.replicas.len()).sum();
        let Some(known) = self.services.get_mut(service) else {
            if total + replicas.len() <= MAX_REPLICAS {
                let replicas = replicas.into_iter().map(|replica| (replica.number, replica)).collect();
                self.services.insert(service.to_owned(), KnownService { replicas, ..KnownService::default() });
            }
            return;
        };
        let mut said = Vec::new();
        let now: BTreeMap<u32, Replica> = replicas
            .into_iter()
            .take(MAX_REPLICAS.saturating_sub(total).saturating_add(known.replicas.len()))
            .map(|replica| (replica.number, replica))
            .collect();
        known.left.retain(|(left, _)| at >= *left && at.since(*left) <= COMES_BACK_WITHIN);
        let gone: Vec<u32> = known.replicas.keys().copied().filter(|number| !now.contains_key(number)).collect();
        for number in gone {
            if let Some(replica) = known.replicas.remove(&number) {
                said.push(("replica", format!("{} is gone", short(&replica.instance))));
                known.left.push_back((at, replica));
                if known.left.len() > 64 {
                    known.left.pop_front();
                }
            }
        }
        for (number, replica) in now {
            if let Some(before) = known.replicas.get_mut(&number) {
                limits(before, &replica, &mut said);
                // Facts may come later than the replica itself.
                let program = replica.program.or_else(|| before.program.take());
                *before = Replica { program, ..replica };
            } else {
                known.joins(&replica, &mut said);
                known.replicas.insert(number, replica);
            }
        }
        for (kind, text) in said {
            self.add(service, kind, text, at);
        }
    }

    /// Compares `versions`, those of the pods of `service`, with those of before.
    pub fn versions(&mut self, service: &str, mut versions: Vec<String>, at: UnixNanos) {
        versions.sort_unstable();
        versions.dedup();
        versions.truncate(8);
        if !self.services.contains_key(service) && self.services.len() >= MAX_REPLICAS {
            return;
        }
        let known = self.services.entry(service.to_owned()).or_default();
        let before = core::mem::replace(&mut known.versions, versions.clone());
        let new: Vec<_> = versions.iter().filter(|version| !before.contains(version)).map(|of| short(of)).collect();
        if !before.is_empty() && !new.is_empty() {
            let before: Vec<_> = before.iter().map(|version| short(version)).collect();
            self.add(service, "version", format!("version {} after {}", new.join(", "), before.join(", ")), at);
        }
    }

    /// Services other than those that `is_there` says are not compared any more, once nothing can come back.
    pub fn forget(&mut self, is_there: impl Fn(&str) -> bool, at: UnixNanos) {
        let absent: Vec<String> = self.services.keys().filter(|name| !is_there(name)).cloned().collect();
        for service in absent {
            self.replicas(&service, Vec::new(), at);
            let is_over = |known: &KnownService| known.left.is_empty() && known.versions.is_empty();
            if self.services.get(&service).is_some_and(is_over) {
                self.services.remove(&service);
            }
        }
    }

    /// Notes a change of `service`, empty for no single one, in the words `text`.
    pub fn add(&mut self, service: &str, kind: &str, text: String, at: UnixNanos) {
        self.noted += 1;
        if self.changes.len() >= MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(IncidentChange {
            at_unix_ns: at.0,
            service: short(service),
            kind: kind.to_owned(),
            text,
            precedes_alarm: false,
        });
    }

    /// How many changes were noted so far.
    #[must_use]
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Changes between two moments since 1970, oldest first.
    pub fn between(&self, from: UnixNanos, until: UnixNanos) -> impl Iterator<Item = &IncidentChange> {
        self.changes.iter().filter(move |change| (from.0..=until.0).contains(&change.at_unix_ns))
    }
}

impl KnownService {
    /// What it means that `replica` joins.
    fn joins(&mut self, replica: &Replica, said: &mut Vec<(&'static str, String)>) {
        let same = self.left.iter().position(|(_, left)| left.instance == replica.instance);
        let Some((_, before)) =
            same.or_else(|| (!self.left.is_empty()).then_some(0)).and_then(|at| self.left.remove(at))
        else {
            // What a service has first is no change of it.
            if !self.replicas.is_empty() {
                said.push(("replica", format!("{} joins", short(&replica.instance))));
            }
            return;
        };
        // It says the same, better.
        let gone = format!("{} is gone", short(&before.instance));
        said.retain(|(_, text)| *text != gone);
        let mut text = if before.instance == replica.instance {
            format!("{} was started again", short(&replica.instance))
        } else {
            format!("{} is there in place of {}", short(&replica.instance), short(&before.instance))
        };
        if before.process != 0 && replica.process != 0 && before.process != replica.process {
            // Writing into a string cannot fail.
            _ = write!(text, " (process {}, before {})", replica.process, before.process);
        }
        said.push(("restart", text));
        if let (Some(before), Some(now)) = (&before.program, &replica.program) {
            program(before, now, said);
        }
        limits(&before, replica, said);
    }
}

/// What differs between two programs.
fn program(before: &Program, now: &Program, said: &mut Vec<(&'static str, String)>) {
    if before.path != now.path {
        said.push(("version", format!("the program is {}, before {}", short(&now.path), short(&before.path))));
    } else if before.file != now.file {
        said.push(("version", format!("the file of the program has changed: {}", short(&now.path))));
    }
    if before.arguments != now.arguments {
        said.push(("configuration", "the program has other arguments".to_owned()));
    }
    let names = before.variables.keys().chain(now.variables.keys());
    let mut other: Vec<_> = names.filter(|name| before.variables.get(*name) != now.variables.get(*name)).collect();
    other.sort_unstable();
    other.dedup();
    if !other.is_empty() {
        let more = other.len().saturating_sub(NAMED_VARIABLES);
        let named: Vec<_> = other.iter().take(NAMED_VARIABLES).map(|name| short(name)).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        said.push(("configuration", format!("other values of variables: {}{more}", named.join(", "))));
    }
}

/// What differs between the limits of two replicas, or of one.
fn limits(before: &Replica, now: &Replica, said: &mut Vec<(&'static str, String)>) {
    for (name, limit) in &*now.limits {
        if let Some(was) = before.limits.get(name).filter(|was| *was != limit) {
            let text = format!("{}: {name} {}, before {}", short(&now.instance), short(limit), short(was));
            said.push(("limit", text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(number: u32, instance: &str, process: u32) -> Replica {
        Replica { number, instance: instance.to_owned(), process, ..Replica::default() }
    }

    fn said(log: &ChangeLog) -> Vec<(&str, &str)> {
        log.changes.iter().map(|change| (change.kind.as_str(), change.text.as_str())).collect()
    }

    const SECOND: Nanos = Nanos::from_secs(1);

    fn at(seconds: u64) -> UnixNanos {
        UnixNanos(seconds * SECOND.0)
    }

    #[test]
    fn what_is_there_first_is_no_change_and_neither_is_what_stays() {
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![replica(1, "cart-1", 17)], at(0));
        log.replicas("cart", vec![replica(1, "cart-1", 17)], at(1));
        log.versions("shop/cart", vec!["1.2".to_owned()], at(1));

        assert_eq!(said(&log), []);
    }

    #[test]
    fn a_replica_that_comes_back_was_started_again() {
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![replica(1, "cart-1", 17)], at(0));
        log.replicas("cart", vec![], at(5));
        log.replicas("cart", vec![replica(2, "cart-1", 23)], at(9));
        log.replicas("cart", vec![replica(3, "cart-b", 31)], at(20));

        assert_eq!(
            said(&log),
            [
                ("replica", "cart-1 is gone"),
                ("restart", "cart-1 was started again (process 23, before 17)"),
                ("restart", "cart-b is there in place of cart-1 (process 31, before 23)"),
            ]
        );
    }

    #[test]
    fn replicas_that_come_and_go_by_themselves_are_no_restart() {
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![replica(1, "a", 1)], at(0));
        log.replicas("cart", vec![replica(1, "a", 1), replica(2, "b", 2)], at(1));
        log.replicas("cart", vec![replica(1, "a", 1)], at(2));
        log.replicas("cart", vec![replica(1, "a", 1), replica(3, "b", 3)], at(200));

        assert_eq!(said(&log), [("replica", "b joins"), ("replica", "b is gone"), ("replica", "b joins")]);
    }

    #[test]
    fn a_restart_with_another_program_is_a_version_and_secrets_are_not_said() {
        let variable = |name: &str, value| (name.to_owned(), value);
        let program = |file, arguments, token| Program {
            path: "/usr/bin/cart".to_owned(),
            file,
            arguments,
            variables: [variable("TOKEN", token), variable("HOME", 7)].into(),
        };
        let with = |number, program| Replica { program: Some(Arc::new(program)), ..replica(number, "cart-1", 0) };
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![with(1, program(1, 1, 1))], at(0));
        log.replicas("cart", vec![with(2, program(2, 2, 2))], at(1));
        let elsewhere = Program { path: "/opt/cart\u{202e}".to_owned(), ..program(2, 2, 2) };
        log.replicas("cart", vec![with(3, elsewhere)], at(2));

        assert_eq!(
            said(&log),
            [
                ("restart", "cart-1 was started again"),
                ("version", "the file of the program has changed: /usr/bin/cart"),
                ("configuration", "the program has other arguments"),
                ("configuration", "other values of variables: TOKEN"),
                ("restart", "cart-1 was started again"),
                ("version", "the program is /opt/cart\\u{202e}, before /usr/bin/cart"),
            ]
        );
    }

    #[test]
    fn limits_change_while_a_replica_runs() {
        let limited = |limit: &str| Replica {
            limits: Arc::new([("memory", limit.to_owned())].into()),
            ..replica(1, "cart-1", 0)
        };
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![replica(1, "cart-1", 0)], at(0));
        log.replicas("cart", vec![limited("512 MB")], at(1));
        log.replicas("cart", vec![limited("256 MB")], at(2));

        assert_eq!(said(&log), [("limit", "cart-1: memory 256 MB, before 512 MB")], "unknown before is no change");
    }

    #[test]
    fn a_rollout_is_the_first_pod_of_a_new_version() {
        let mut log = ChangeLog::default();
        let versions = |of: &[&str]| of.iter().map(|version| (*version).to_owned()).collect::<Vec<_>>();
        log.versions("shop/cart", versions(&["1.2"]), at(0));
        log.versions("shop/cart", versions(&["1.2", "1.3", "1.2"]), at(1));
        log.versions("shop/cart", versions(&["1.3"]), at(2));

        assert_eq!(said(&log), [("version", "version 1.3 after 1.2")]);
    }

    #[test]
    fn services_that_are_gone_are_forgotten_and_changes_are_bounded() {
        let mut log = ChangeLog::default();
        log.replicas("cart", vec![replica(1, "a", 1)], at(0));
        log.forget(|_| false, at(1));
        assert_eq!((said(&log), log.services.len()), (vec![("replica", "a is gone")], 1));
        log.forget(|_| false, at(300));
        assert!(log.services.is_empty());

        (0..2 * MAX_CHANGES as u64).for_each(|second| log.add("cart", "restart", "again".to_owned(), at(second)));
        assert_eq!(log.changes.len(), MAX_CHANGES);
        assert_eq!(log.between(at(1_000), at(1_005)).count(), 6);
    }

    #[test]
    fn more_replicas_than_fit_are_not_compared() {
        let mut log = ChangeLog::default();
        let many = (0..=MAX_REPLICAS as u32).map(|number| replica(number, "a", 1)).collect();
        log.replicas("many", many, at(0));
        log.replicas("cart", vec![replica(1, "a", 1)], at(0));

        assert_eq!(log.services.keys().collect::<Vec<_>>(), ["cart"]);
    }
}
