//! Constants of the program that counts for the fragment of a switch.

use packets::switch::{Constants, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::disaggregated::{Path, Settings};

use super::{SwitchError, below, seed};
use crate::config::Config;

/// The path on which a fragment counts. Two agents agree about theirs; a switch is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentPath {
    /// Numbers of its fragments, in their order, that of the configuration among them; empty: that one alone.
    pub fragments: Vec<u32>,
    /// K, how many of them count each flow, from 1; `None`: all.
    pub updates: Option<usize>,
}

/// The constants of `p4/fragment` for the fragment of the configuration. Counters are those of the agent, for hardware
/// a power of two. All fragments of a path need the same secret: from it follow the choice, which is the same for all,
/// and the rows, which are each fragment's own.
///
/// # Errors
///
/// [`SwitchError`] if there is no fragment, it counts something else, it is not on the path, or something does not fit.
pub fn fragment_constants(
    config: &Config,
    path: &FragmentPath,
    secret: u128,
    kind: DigestKind,
) -> Result<Constants, SwitchError> {
    let fragment = config.network.fragment.as_ref().ok_or(SwitchError::NoFragment)?;
    if !fragment.filter.is_empty() {
        return Err(SwitchError::Fragment("has a filter, and programs for switches count all packets"));
    }
    if fragment.inner {
        let why = "is about packets inside tunnels, which programs for switches do not parse";
        return Err(SwitchError::Fragment(why));
    }
    let (id, own) = (fragment.id, [fragment.id]);
    let ids = if path.fragments.is_empty() { &own[..] } else { path.fragments.as_slice() };
    let elsewhere = || SwitchError::Elsewhere { id, path: ids.to_vec() };
    let position = ids.iter().position(|other| *other == id).ok_or_else(elsewhere)?;
    let updates = path.updates.unwrap_or(ids.len());
    if updates > ids.len() {
        return Err(SwitchError::Updates { found: updates, most: ids.len() });
    }
    let counters = match kind {
        DigestKind::Products => fragment.counters.get(),
        DigestKind::Hardware => below(fragment.counters.get() as usize) as u32,
    };
    let of_rows = DigestKey::new(secret).digest(&id.to_le_bytes()).0;
    let settings = Settings { id, counters, rows: fragment.rows.get(), seed: kind.seed(of_rows) };
    let path = Path::random(ids, updates, seed(secret, kind))?;
    Ok(programs::fragment(settings, &path, position, &DigestKey::of_kind(kind, secret))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use equality::programs::Subject;

    use super::*;

    const KINDS: [DigestKind; 2] = [DigestKind::Products, DigestKind::Hardware];

    fn config(fragment: &str) -> Config {
        let text = format!("network: {{memory_bytes: 1000000000, fragment: {{id: 20, interface: eth0{fragment}}}}}\n");
        Config::parse(&text).expect("a configuration")
    }

    fn made(fragment: &str, path: &[u32], updates: Option<usize>, kind: DigestKind) -> Result<Constants, String> {
        let path = FragmentPath { fragments: path.to_vec(), updates };
        fragment_constants(&config(fragment), &path, 7, kind).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fragment_alone_counts_all_flows_and_one_of_a_path_those_that_choose_it() {
        for kind in KINDS {
            let alone = made(", rows: 2", &[], None, kind).expect("possible");
            let values = |of: &Constants| ["COUNTERS", "UPDATED", "OTHERS", "BEFORE"].map(|name| of.value(name));
            assert_eq!((alone.folder(), alone.kind()), ("fragment", kind));
            assert_eq!(values(&alone), [16_384, 1, 0, 0].map(Some));

            let second = made(", rows: 2, counters: 5000", &[10, 20, 30], Some(2), kind).expect("possible");
            let counters = if kind == DigestKind::Products { 5_000 } else { 4_096 };
            assert_eq!(values(&second), [counters, 2, 2, 1].map(Some));
            // What was written for the program is read again.
            assert_eq!(Constants::written("fragment", &second.text("")), Ok(second));
        }
    }

    #[test]
    fn fragments_of_a_path_choose_alike_and_have_rows_of_their_own() {
        let of = |id: u32| {
            let text = format!("network: {{fragment: {{id: {id}, interface: eth0, rows: 2}}}}\n");
            let path = FragmentPath { fragments: vec![10, 20], updates: Some(1) };
            let config = Config::parse(&text).expect("a configuration");
            fragment_constants(&config, &path, 7, DigestKind::Products).expect("possible")
        };
        let (first, second) = (of(10), of(20));

        assert_eq!(first.value("CHOICE"), second.value("OTHER_0"));
        assert_eq!(first.value("OTHER_0"), second.value("CHOICE"));
        assert_ne!(first.value("ROW_0"), second.value("ROW_0"));
        assert_eq!(first.value("SECRET_0"), second.value("SECRET_0"));
        assert_ne!(first.checksum(), second.checksum());
    }

    #[test]
    fn constants_are_those_of_the_programs_file_in_its_order() {
        let names = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("const"));
            lines.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect()
        };

        for program in ["fragment", "fragment-hardware"] {
            let subject = Subject::of_name(program).expect("a program");
            let kept = fs::read_to_string(subject.constants_file()).expect("constants of each program");
            let made = made(", rows: 2", &[10, 20, 30], Some(2), subject.kind).expect("possible");
            assert_eq!(names(&made.text("")), names(&kept), "{program}");
        }
    }

    #[test]
    fn what_the_program_does_not_count_or_has_no_room_for_is_refused_with_the_limit() {
        let refused = |fragment: &str, path: &[u32], updates| {
            made(fragment, path, updates, DigestKind::Products).expect_err("refused")
        };

        assert_eq!(refused("", &[], None), "rows: 1, the program has 2");
        let wide = "counters of two epochs: 131074 entries, at most 131072 are possible in a switch";
        assert_eq!(refused(", rows: 2, counters: 65537", &[], None), wide);
        let filtered = refused(", rows: 2, filter: tcp", &[], None);
        assert_eq!(filtered, "network.fragment has a filter, and programs for switches count all packets");
        assert!(refused(", rows: 2, inner: true", &[], None).contains("inside tunnels"));
        let elsewhere = refused(", rows: 2", &[1, 2], None);
        assert_eq!(elsewhere, "network.fragment.id is 20, the path has the fragments [1, 2]");
        let long = refused(", rows: 2", &[20, 1, 2, 3, 4], None);
        assert_eq!(long, "other fragments of the path: 4, the program has 3 at most");
        let more = refused(", rows: 2", &[20, 1], Some(3));
        assert_eq!(more, "3 fragments are to count each flow, the path has 2");
        assert_eq!(refused(", rows: 2", &[20, 1], Some(0)), "flows update 0 fragments, at least 1 is possible");
        assert_eq!(refused(", rows: 2", &[20, 1, 1], None), "fragment 1 is on the path twice");
        let none = fragment_constants(&Config::default(), &FragmentPath::default(), 7, DigestKind::Products);
        assert_eq!(none.expect_err("no fragment").to_string(), "the configuration has no network.fragment");
    }
}
