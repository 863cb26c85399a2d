//! Constants of the program that joins three, from the streams of one switch.

use packets::switch::{Constants, programs};
use synopses::digest::{DigestKey, DigestKind};

use super::{SwitchError, buckets, fridge, seed, staggered, stream, window_ns};
use crate::config::{Config, OneWayConfig, PairName, StreamConfig, SynopsisName};

/// The constants of `p4/together`, which measures delays of handshakes, the sending end of FineComb, and distinct
/// flows. Of these streams, and of all others of their switch, one has `pair: handshake`, one `one_way` with a peer,
/// and one `synopses.cardinality`. Those that have a switch have the same one. Sizes are those of
/// [`switch_constants`](super::switch_constants).
///
/// # Errors
///
/// [`SwitchError`] if there is no such stream, they are of several switches, another number of them than one measures
/// one of the three, or something does not fit.
pub fn together_constants(
    config: &Config,
    names: &[String],
    secret: u128,
    kind: DigestKind,
) -> Result<Constants, SwitchError> {
    let streams = streams(config, names)?;
    let (key, seed) = (DigestKey::of_kind(kind, secret), seed(secret, kind));
    let is_handshake = |stream: &StreamConfig| stream.pair == Some(PairName::Handshake);
    let handshakes = only(&streams, "`pair: handshake`", |stream| is_handshake(stream).then_some(stream))?;
    let what = "`one_way` with finecomb and a peer";
    let (sender, one_way) = only(&streams, what, |stream| Some((stream, sender(stream)?)))?;
    let window_ns = only(&streams, "`synopses.cardinality`", window_ns)?;
    let buckets = buckets(sender, one_way, seed)?;
    Ok(programs::together(fridge(handshakes, seed), &buckets, staggered(window_ns, seed), &key)?)
}

/// The named streams, and the others of the same switch.
fn streams<'a>(config: &'a Config, names: &[String]) -> Result<Vec<&'a StreamConfig>, SwitchError> {
    let named = names.iter().map(|name| stream(config, name)).collect::<Result<Vec<_>, _>>()?;
    let mut controls: Vec<&str> = named.iter().filter_map(|stream| control(stream)).collect();
    controls.sort_unstable();
    controls.dedup();
    if controls.len() > 1 {
        return Err(SwitchError::Switches(controls.into_iter().map(str::to_owned).collect()));
    }
    let is_of_them = |stream: &&StreamConfig| {
        let is_named = named.iter().any(|named| named.name == stream.name);
        is_named || control(stream).is_some_and(|control| controls.contains(&control))
    };
    Ok(config.network.streams.iter().filter(is_of_them).collect())
}

/// Where its switch is asked, if it has one.
fn control(stream: &StreamConfig) -> Option<&str> {
    stream.switch.as_ref().map(|switch| &*switch.control)
}

/// What a stream sends of FineComb, if it does.
fn sender(stream: &StreamConfig) -> Option<&OneWayConfig> {
    stream.one_way.as_ref().filter(|one_way| one_way.synopsis == SynopsisName::Finecomb && one_way.peer.is_some())
}

/// What is found in one of the streams, and in no other one.
fn only<'a, T>(
    streams: &[&'a StreamConfig],
    what: &'static str,
    find: impl Fn(&'a StreamConfig) -> Option<T>,
) -> Result<T, SwitchError> {
    let mut found: Vec<T> = streams.iter().filter_map(|stream| find(stream)).collect();
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (last, others) => {
            let found = others + usize::from(last.is_some());
            let streams = streams.iter().map(|stream| stream.name.clone()).collect();
            Err(SwitchError::Several { what, found, streams })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use equality::programs::Subject;

    use super::super::{SwitchProgram, switch_constants};
    use super::*;

    const HANDSHAKES: &str = "pair: handshake, memory_bytes: 65536";
    const SENDER: &str = "one_way: {synopsis: finecomb, peer: 'b:1'}, memory_bytes: 100000";
    const FLOWS: &str = "synopses: {cardinality: {window_ms: 500}}";

    fn config(streams: &[(&str, String, &str)]) -> Config {
        let stream =
            |(name, source, measured): &(&str, String, &str)| format!("{{name: {name}, {source}, {measured}}}");
        let streams: Vec<_> = streams.iter().map(stream).collect();
        let peers = "peers: {peers_insecure: true}, memory_bytes: 1000000000";
        Config::parse(&format!("network: {{{peers}, streams: [{}]}}\n", streams.join(", "))).expect("a configuration")
    }

    fn switch(control: &str, constants: &Path) -> String {
        format!("switch: {{control: '{control}', constants: {}}}", constants.display())
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn made(config: &Config, names: &[String], kind: DigestKind) -> Result<Constants, String> {
        together_constants(config, names, 7, kind).map_err(|error| error.to_string())
    }

    #[test]
    fn streams_of_one_switch_are_measured_by_the_constants_that_are_made_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("constants.p4");
        let (one, other) = (switch("a:9090", &file), switch("b:9090", &file));
        let streams = [
            ("shop", one.clone(), HANDSHAKES),
            ("elsewhere", other, HANDSHAKES),
            ("rack", one.clone(), SENDER),
            ("flows", one, FLOWS),
        ];
        let config = config(&streams);

        for kind in [DigestKind::Products, DigestKind::Hardware] {
            let constants = made(&config, &names(&["rack"]), kind).expect("one stream of each kind");
            assert_eq!((constants.folder(), constants.kind()), ("together", kind));
            let text = constants.text("A note.");
            // Each program alone would have these constants.
            for (stream, program) in
                [("shop", SwitchProgram::Fridge), ("rack", SwitchProgram::OneWay), ("flows", SwitchProgram::StHll)]
            {
                let alone = switch_constants(&config, stream, program, 7, kind).expect("a stream for it").text("");
                let values = alone.lines().filter(|line| line.starts_with(['c', '#']) && !line.contains("CHECKSUM"));
                for line in values {
                    assert!(text.contains(line), "{stream}: {line}");
                }
            }
            // What the agent reads of that file.
            fs::write(&file, text).expect("it can be written");
            for name in ["shop", "rack", "flows"] {
                let stream = stream(&config, name).expect("it is there");
                assert_eq!(stream.switch_program().expect("its program"), constants.program());
            }
        }
    }

    #[test]
    fn constants_are_those_of_the_programs_file_in_its_order() {
        let interface = || "interface: eth0".to_owned();
        let config = config(&[("a", interface(), HANDSHAKES), ("b", interface(), SENDER), ("c", interface(), FLOWS)]);
        // A name, and what the constant is.
        let declared = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("const") || line.starts_with('#'));
            let without_value = |line: &str| match line.split_once(" = ") {
                Some((front, _)) => front.to_owned(),
                None => line.split(' ').take(2).collect::<Vec<_>>().join(" "),
            };
            lines.map(without_value).collect()
        };

        for program in ["together", "together-hardware"] {
            let subject = Subject::of_name(program).expect("a program");
            let kept = fs::read_to_string(subject.constants_file()).expect("constants of each program");
            let made = made(&config, &names(&["a", "b", "c"]), subject.kind).expect("one stream of each kind");
            assert_eq!(declared(&made.text("")), declared(&kept), "{program}");
        }
    }

    #[test]
    fn another_number_of_streams_than_one_of_each_kind_is_refused_with_what_is_needed() {
        let file = Path::new("/nowhere/constants.p4");
        let one = || switch("a:9090", file);
        let streams = [("a", one(), HANDSHAKES), ("b", one(), FLOWS), ("c", switch("b:9090", file), SENDER)];
        let config = config(&streams);
        let refused = |names: &[String]| made(&config, names, DigestKind::Products).expect_err("refused");

        let missing = refused(&names(&["a"]));
        let expected = "p4/together measures one stream with `one_way` with finecomb and a peer, and 0 of a, b have it: \
                        name each of them, or give them one switch";
        assert_eq!(missing, expected);
        let several = refused(&names(&["c", "a"]));
        let expected =
            "p4/together is the program of one switch, and the streams have a:9090, b:9090: name streams of one";
        assert_eq!(several, expected);
        assert_eq!(refused(&names(&["a", "x"])), "there is no stream \"x\"; the configuration has a, b, c");
        assert!(refused(&[]).contains("and 0 of none have it"));

        let twice = config_with_two_handshakes();
        let error = made(&twice, &names(&["a"]), DigestKind::Products).expect_err("two of them");
        assert!(error.starts_with("p4/together measures one stream with `pair: handshake`, and 2 of a, b"), "{error}");
    }

    fn config_with_two_handshakes() -> Config {
        let one = || switch("a:9090", Path::new("/nowhere/constants.p4"));
        config(&[("a", one(), HANDSHAKES), ("b", one(), HANDSHAKES), ("c", one(), FLOWS), ("d", one(), SENDER)])
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_limit() {
        let interface = || "interface: eth0".to_owned();
        let wide = "pair: handshake, memory_bytes: 8000000";
        let config = config(&[("a", interface(), wide), ("b", interface(), SENDER), ("c", interface(), FLOWS)]);

        let refused = made(&config, &names(&["a", "b", "c"]), DigestKind::Products).expect_err("too many slots");
        assert_eq!(refused, "slots of a fridge: 262144 entries, at most 131072 are possible in a switch");
    }
}
