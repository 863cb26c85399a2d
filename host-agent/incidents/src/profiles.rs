//! A profile of an incident: stacks and how often each was seen, what they say, and files for other tools.

mod pprof;

use core::fmt::Write as _;
use std::collections::BTreeMap;

use prost::Message as _;
use wire::printable::line;
use wire::proto::operators::{IncidentProfile, IncidentStack};
use wire::quantity::quantity;

/// The event whose counts are samples. Counts of others are what the samples stand for.
const PROCESSOR_TIME: &str = "processor time";

/// A function and its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heavy<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Share of the samples in which it was seen running, 0 to 1.
    pub itself: f64,
    /// Share of the samples in which it, or what it called, was seen.
    pub whole: f64,
}

/// A function below its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Functions between it and the process.
    pub depth: usize,
    /// Samples to the left of it.
    pub from: u64,
    /// Samples in which it was seen at this place.
    pub samples: u64,
}

/// The names of a stack, the process first, and how often it was seen.
type Named<'a> = (Vec<&'a str>, u64);

/// The names of a stack, the process first. Numbers that name nothing are left out.
fn frames<'a>(profile: &'a IncidentProfile, stack: &'a IncidentStack) -> impl Iterator<Item = &'a str> {
    stack.frames.iter().filter_map(|name| profile.names.get(*name as usize)).map(String::as_str)
}

/// The functions that were seen running most often, at most `most`.
#[must_use]
pub fn heaviest(profile: &IncidentProfile, most: usize) -> Vec<Heavy<'_>> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for stack in &profile.stacks {
        let mut seen: Vec<&str> = frames(profile, stack).skip(1).collect();
        if let Some(innermost) = seen.last() {
            counts.entry(innermost).or_default().0 += stack.samples;
        }
        seen.sort_unstable();
        seen.dedup();
        for name in seen {
            counts.entry(name).or_default().1 += stack.samples;
        }
    }
    let all = profile.samples.max(1) as f64;
    let mut heavy: Vec<_> = counts
        .into_iter()
        .map(|(name, (itself, whole))| Heavy { name, itself: itself as f64 / all, whole: whole as f64 / all })
        .collect();
    heavy.sort_by(|one, other| other.itself.total_cmp(&one.itself).then(other.whole.total_cmp(&one.whole)));
    heavy.truncate(most);
    heavy
}

/// Every function at every place, each after its caller, the more frequent ones first.
#[must_use]
pub fn nodes(profile: &IncidentProfile) -> Vec<Node<'_>> {
    let stacks: Vec<Named<'_>> =
        profile.stacks.iter().map(|stack| (frames(profile, stack).collect(), stack.samples)).collect();
    // Groups of stacks that are the same as far as `depth`, each with where it begins.
    let mut open = vec![(stacks.iter().collect::<Vec<_>>(), 0, 0)];
    let mut nodes = Vec::new();
    while let Some((group, depth, begin)) = open.pop() {
        let mut below: BTreeMap<&str, (u64, Vec<&Named<'_>>)> = BTreeMap::new();
        for stack in group {
            let Some(name) = stack.0.get(depth) else { continue };
            let entry = below.entry(name).or_default();
            entry.0 += stack.1;
            entry.1.push(stack);
        }
        let mut below: Vec<_> = below.into_iter().collect();
        below.sort_by_key(|(_, (samples, _))| core::cmp::Reverse(*samples));
        let mut from = begin;
        for (name, (samples, group)) in below {
            nodes.push(Node { name, depth, from, samples });
            open.push((group, depth + 1, from));
            from += samples;
        }
    }
    nodes
}

/// One line for each stack: functions between semicolons, then how often. What other tools call folded or collapsed
/// stacks.
#[must_use]
pub fn folded(profile: &IncidentProfile) -> String {
    let of = |stack: &IncidentStack| {
        let frames: Vec<String> = frames(profile, stack).map(|name| line(name).replace(';', ":")).collect();
        format!("{} {}\n", frames.join(";"), stack.samples)
    };
    profile.stacks.iter().map(of).collect()
}

/// The profile for `pprof` and what reads its files.
#[must_use]
pub fn pprof(profile: &IncidentProfile) -> Vec<u8> {
    pprof::of(profile).encode_to_vec()
}

/// How it was sampled, in words.
#[must_use]
pub fn sampled(profile: &IncidentProfile) -> String {
    if !profile.problem.is_empty() {
        return profile.problem.clone();
    }
    let IncidentProfile { event, samples, frequency_hz, lost, left_out, further_threads, .. } = profile;
    let count = quantity(*samples as f64, "");
    let what = if event == PROCESSOR_TIME { "samples" } else { "times" };
    let mut text = format!("{event}: {count} {what}, sampled at {frequency_hz} Hz");
    let threads = u64::from(*further_threads);
    let left_out_of = format!("{what} in stacks that did not fit");
    for (count, what) in [(*lost, "samples lost"), (*left_out, &left_out_of), (threads, "threads not sampled")] {
        if count > 0 {
            // Writing into a string cannot fail.
            _ = write!(text, ", {count} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn profile() -> IncidentProfile {
        let stack = |frames: &[u32], samples| IncidentStack { frames: frames.to_vec(), samples };
        IncidentProfile {
            service: "payment".to_owned(),
            event: "processor time".to_owned(),
            frequency_hz: 99,
            samples: 100,
            names: ["payment-1", "main", "serve", "burn"].map(str::to_owned).to_vec(),
            stacks: vec![stack(&[0, 1, 2, 3], 90), stack(&[0, 1, 2], 6), stack(&[0, 1, 3, 3], 4)],
            ..IncidentProfile::default()
        }
    }

    #[test]
    fn the_function_that_burns_is_the_heaviest() {
        let profile = profile();

        let heavy = heaviest(&profile, 2);

        assert_eq!((heavy[0].name, heavy[0].itself, heavy[0].whole), ("burn", 0.94, 0.94));
        assert_eq!((heavy[1].name, heavy[1].itself, heavy[1].whole), ("serve", 0.06, 0.96));
    }

    #[test]
    fn functions_lie_below_their_callers_within_their_width() {
        let profile = profile();

        let mut nodes = nodes(&profile);

        nodes.sort_by_key(|node| (node.depth, node.from));
        let shown: Vec<_> = nodes.iter().map(|node| (node.name, node.depth, node.from, node.samples)).collect();
        let expected = [
            ("payment-1", 0, 0, 100),
            ("main", 1, 0, 100),
            ("serve", 2, 0, 96),
            ("burn", 2, 96, 4),
            ("burn", 3, 0, 90),
            ("burn", 3, 96, 4),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn stacks_are_folded_to_lines() {
        let profile = profile();

        assert_eq!(folded(&profile).lines().next(), Some("payment-1;main;serve;burn 90"));
    }

    #[test]
    fn a_name_cannot_end_its_frame_or_its_line() {
        let hostile = "a;b\n\u{1b}[31m<script>";
        let stacks = vec![IncidentStack { frames: vec![0, 7], samples: 1 }];
        let profile = IncidentProfile {
            service: hostile.to_owned(),
            samples: 1,
            names: vec![hostile.to_owned()],
            stacks,
            ..IncidentProfile::default()
        };

        assert_eq!(folded(&profile).lines().count(), 1);
    }

    #[test]
    fn a_file_for_pprof_has_each_stack_from_the_inside() {
        let profile = IncidentProfile { began_unix_ns: 7, ..profile() };

        let file = pprof::File::decode(&*pprof(&profile)).unwrap();

        let name = |location: u64| {
            let function = file.location[location as usize - 1].line[0].function_id;
            file.string_table[file.function[function as usize - 1].name as usize].as_str()
        };
        let names: Vec<_> = file.sample[0].location_id.iter().map(|id| name(*id)).collect();
        assert_eq!((names, &file.sample[0].value[..]), (vec!["burn", "serve", "main", "payment-1"], &[90_i64][..]));
        assert_eq!((file.time_nanos, file.string_table[0].as_str()), (7, ""));
    }

    #[test]
    fn what_is_not_in_it_is_said() {
        let whole = profile();
        let less = IncidentProfile { lost: 3, further_threads: 2, ..profile() };
        let none = IncidentProfile { problem: "process 7 is gone".to_owned(), ..profile() };

        assert_eq!(sampled(&whole), "processor time: 100 samples, sampled at 99 Hz");
        assert!(sampled(&less).ends_with(", 3 samples lost, 2 threads not sampled"));
        assert_eq!(sampled(&none), "process 7 is gone");
    }
}
