//! `uview p4`: what programs for switches (`p4/`) have to know.

use std::path::PathBuf;

use clap::ValueEnum;
use nic_agent::config::Config;
use nic_agent::{FragmentPath, SwitchProgram, fragment_constants, switch_constants, together_constants};
use packets::switch::Constants;
use synopses::digest::DigestKind;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::synopsis::fridge::rand_seed;

/// The long help of `uview p4 constants`.
const CONSTANTS_ABOUT: &str = "\
Prints the constants with which a program for a switch measures a stream of a NIC agent: put them
into the program's constants.p4, and compile it. Two programs are not of one stream:

  together  measures one stream with `pair: handshake`, one with `one_way` (finecomb, with a peer),
            and one with `synopses.cardinality`: those named, and all others of the same `switch`
  fragment  counts for network.fragment, whose `rows` have to be 2: all flows, or with --path and
            --updates those that choose this fragment

Sizes are those of the agent, powers of two where a switch needs them. A size that does not fit is
refused with the limit. With its keys and the last constant the program makes a checksum of all
constants and of its name, and has it in its register `constants` from the first frame on: another
program, other constants or other keys are found out.

The output holds the secret: whoever has it can craft packets that collide.";

/// Arguments of `uview p4`.
#[derive(Clone, Debug, clap::Args)]
pub struct P4Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Print the constants of a program, from the configuration of a NIC agent
    #[command(long_about = CONSTANTS_ABOUT)]
    Constants(ConstantsArgs),
}

/// Arguments of `uview p4 constants`.
#[derive(Clone, Debug, clap::Args)]
pub struct ConstantsArgs {
    /// The program that is to measure
    program: Program,
    /// Configuration file of the NIC agent
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The stream to measure; for `together` once or several times, for `fragment` not at all
    #[arg(long, value_name = "NAME")]
    stream: Vec<String>,
    /// For `fragment`: numbers of all fragments of its path, in their order, such as 10,20,30 [default: its own]
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    path: Vec<u32>,
    /// For `fragment`: how many fragments of the path count each flow [default: all]
    #[arg(long, value_name = "COUNT")]
    updates: Option<usize>,
    /// What names packets; a program for hardware has its constants in constants-hardware.p4 [default: products]
    #[arg(long)]
    digest: Option<DigestName>,
    /// Secret key of 32 hexadecimal digits, the same at both ends of a one-way measurement, and for all fragments of a
    /// path; a new one without it
    #[arg(long, value_name = "HEX", value_parser = secret)]
    secret: Option<u128>,
}

/// Kinds of digests, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DigestName {
    /// XXH3-64, by products of 64 bits, as hosts have it
    Products,
    /// CRC-32 and additions of 32 bits, which a pipeline of hardware computes
    Hardware,
}

impl From<DigestName> for DigestKind {
    fn from(name: DigestName) -> Self {
        match name {
            DigestName::Products => Self::Products,
            DigestName::Hardware => Self::Hardware,
        }
    }
}

/// The programs, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Delays of TCP handshakes, for `pair: handshake`
    Fridge,
    /// The same by two fridges, for delays of a wide range
    Fridges,
    /// One-way delay and loss, for `one_way`: FineComb's sender or receiver, or LDA
    OneWay,
    /// Distinct flows, for `synopses.cardinality`
    StHll,
    /// Distinct flows, with the times of their bits
    TsPcsa,
    /// Prefixes with packets out of order, for `synopses.reordering`: samples only
    ReorderingSamples,
    /// Prefixes with packets out of order, heavy flows apart
    Reordering,
    /// Flows with most packets, for `synopses.heavy_hitters`
    Precision,
    /// Three of them at once, for the streams of one switch
    Together,
    /// Packets of each flow, in one fragment of a path
    Fragment,
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Stream(SwitchProgram),
    Streams,
    Fragment,
}

impl From<Program> for Measured {
    fn from(program: Program) -> Self {
        match program {
            Program::Fridge => Self::Stream(SwitchProgram::Fridge),
            Program::Fridges => Self::Stream(SwitchProgram::Fridges),
            Program::OneWay => Self::Stream(SwitchProgram::OneWay),
            Program::StHll => Self::Stream(SwitchProgram::StHll),
            Program::TsPcsa => Self::Stream(SwitchProgram::TsPcsa),
            Program::ReorderingSamples => Self::Stream(SwitchProgram::ReorderingSamples),
            Program::Reordering => Self::Stream(SwitchProgram::Reordering),
            Program::Precision => Self::Stream(SwitchProgram::Precision),
            Program::Together => Self::Streams,
            Program::Fragment => Self::Fragment,
        }
    }
}

fn secret(text: &str) -> Result<u128, String> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let secret = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    secret.ok_or_else(|| format!("{} characters, 32 hexadecimal digits are needed", text.chars().count()))
}

/// Runs the subcommand.
///
/// # Errors
///
/// [`Failure`] if the configuration cannot be read, or the stream cannot be measured in a switch.
pub fn run(args: &P4Args) -> Result<Exit, Failure> {
    let Command::Constants(args) = &args.command;
    output::print(&constants(args)?)?;
    Ok(Exit::Fine)
}

/// What constants are for, in words.
fn subject(args: &ConstantsArgs) -> String {
    match (Measured::from(args.program), &*args.stream) {
        (Measured::Fragment, _) => "the fragment".to_owned(),
        (_, [stream]) => format!("stream {stream:?}"),
        (_, streams) => format!("streams {}", streams.join(", ")),
    }
}

/// The text of `constants.p4`.
fn constants(args: &ConstantsArgs) -> Result<String, Failure> {
    let failure = || Failure::to(format!("make constants for {}", subject(args)));
    let constants = made(args, failure)?;
    let (folder, subject) = (constants.folder(), subject(args));
    let note =
        format!("Constants of p4/{folder}, for {subject}. Written by `uview p4 constants`. They hold the secret.");
    Ok(constants.text(&note))
}

fn made(args: &ConstantsArgs, failure: impl Fn() -> Failure) -> Result<Constants, Failure> {
    let measured = Measured::from(args.program);
    if measured != Measured::Fragment && !(args.path.is_empty() && args.updates.is_none()) {
        return Err(failure().because("--path and --updates are for the program fragment"));
    }
    let config = Config::load(&args.config).map_err(|error| failure().caused_by(&error))?;
    let secret = args.secret.unwrap_or_else(|| (u128::from(rand_seed()) << 64) | u128::from(rand_seed()));
    let kind = args.digest.map_or(DigestKind::Products, DigestKind::from);
    let constants = match (measured, &*args.stream) {
        (Measured::Stream(program), [stream]) => switch_constants(&config, stream, program, secret, kind),
        (Measured::Streams, [_, ..]) => together_constants(&config, &args.stream, secret, kind),
        (Measured::Fragment, []) => {
            let path = FragmentPath { fragments: args.path.clone(), updates: args.updates };
            fragment_constants(&config, &path, secret, kind)
        }
        (Measured::Stream(_), streams) => {
            let why = format!("--stream names {} of them, the program measures one", streams.len());
            return Err(failure().because(why));
        }
        (Measured::Streams, []) => return Err(failure().because("--stream names none of the switch")),
        (Measured::Fragment, [..]) => return Err(failure().because("--stream is for the other programs")),
    };
    constants.map_err(|error| failure().caused_by(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(config: &str, program: Program, secret: Option<u128>) -> Result<String, String> {
        made_for(None, config, program, secret)
    }

    fn made_for(
        digest: Option<DigestName>,
        config: &str,
        program: Program,
        secret: Option<u128>,
    ) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nic.yaml");
        std::fs::write(&file, config).unwrap();
        let stream = vec!["shop".to_owned()];
        let args = ConstantsArgs { program, config: file, stream, path: Vec::new(), updates: None, digest, secret };
        constants(&args).map_err(|failure| failure.to_string())
    }

    /// What the command prints, with a secret of its own.
    fn printed(config: &str, arguments: &[&str]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nic.yaml");
        std::fs::write(&file, config).unwrap();
        let secret = "000102030405060708090a0b0c0d0e0f";
        let more = ["--config", file.to_str().unwrap(), "--secret", secret];
        let all = ["uview", "p4", "constants"].iter().chain(arguments).chain(&more);
        let parsed = <crate::Arguments as clap::Parser>::try_parse_from(all).map_err(|error| error.to_string())?;
        let crate::Command::P4(P4Args { command: Command::Constants(args) }) = parsed.command else {
            panic!("another subcommand")
        };
        constants(&args).map_err(|failure| failure.to_string())
    }

    #[test]
    fn constants_of_several_programs_in_one_come_from_the_streams_of_their_switch() {
        let switch = "switch: {control: 'a:9090', constants: /nowhere/together/constants.p4}";
        let stream = |name: &str, measured: &str| format!("{{name: {name}, {switch}, {measured}}}");
        let streams = [
            stream("shop", "pair: handshake"),
            stream("rack", "one_way: {synopsis: finecomb, peer: 'b:1'}"),
            stream("flows", "synopses: {cardinality: {}}"),
        ];
        let network = format!("peers: {{peers_insecure: true}}, streams: [{}]", streams.join(", "));
        let config = &format!("network: {{{network}}}\n");

        let one = printed(config, &["together", "--stream", "flows"]).unwrap();
        assert!(one.starts_with("// Constants of p4/together, for stream \"flows\"."), "{one}");
        assert!(one.contains("const bit<32> SLOTS = 0x1000;") && one.contains("#define REGISTER_BITS "), "{one}");
        let all = printed(config, &["together", "--stream", "shop", "--stream", "rack", "--stream", "flows"]).unwrap();
        assert!(all.starts_with("// Constants of p4/together, for streams shop, rack, flows."), "{all}");
        let body = |text: &str| text.split_once("\n\n").map(|(_, body)| body.to_owned());
        assert_eq!(body(&one), body(&all));

        let none = printed(config, &["together"]).unwrap_err();
        assert!(none.contains("--stream names none of the switch"), "{none}");
        let two = printed(config, &["fridge", "--stream", "shop", "--stream", "rack"]).unwrap_err();
        assert!(two.contains("--stream names 2 of them, the program measures one"), "{two}");
        let path = printed(config, &["fridge", "--stream", "shop", "--path", "1,2"]).unwrap_err();
        assert!(path.contains("--path and --updates are for the program fragment"), "{path}");
    }

    #[test]
    fn constants_of_a_fragment_come_from_its_settings_and_the_path_that_is_named() {
        let config = "network: {fragment: {id: 20, interface: eth0, rows: 2}}\n";

        let alone = printed(config, &["fragment"]).unwrap();
        assert!(alone.starts_with("// Constants of p4/fragment, for the fragment."), "{alone}");
        assert!(alone.contains("const bit<32> COUNTERS = 0x4000;\nconst bit<32> UPDATED = 0x1;"), "{alone}");
        let path = printed(config, &["fragment", "--path", "10,20,30", "--updates", "2"]).unwrap();
        assert!(path.contains("const bit<32> UPDATED = 0x2;\nconst bit<32> OTHERS = 0x2;"), "{path}");
        let hardware = printed(config, &["fragment", "--digest", "hardware"]).unwrap();
        assert!(hardware.contains("#define HARDWARE_DIGEST 1\n"), "{hardware}");

        let refused = printed(config, &["fragment", "--path", "10,30"]).unwrap_err();
        assert!(refused.contains("network.fragment.id is 20, the path has the fragments [10, 30]"), "{refused}");
        let refused = printed(&config.replace("rows: 2", "rows: 1"), &["fragment"]).unwrap_err();
        assert!(refused.contains("rows: 1, the program has 2"), "{refused}");
        let refused = printed(config, &["fragment", "--stream", "shop"]).unwrap_err();
        assert!(refused.contains("--stream is for the other programs"), "{refused}");
    }

    #[test]
    fn constants_come_from_the_configuration_and_a_secret() {
        let config = "network: {streams: [{name: shop, interface: eth0, pair: handshake}]}\n";

        let (one, again) = (made(config, Program::Fridge, Some(7)).unwrap(), made(config, Program::Fridge, Some(7)));
        assert_eq!(Ok(&one), again.as_ref());
        assert!(one.starts_with("// Constants of p4/fridge, for stream \"shop\"."), "{one}");
        assert!(one.contains("const bit<32> SLOTS = 0x1000;") && one.contains("const bit<32> CHECKSUM = 0x"), "{one}");
        assert_ne!(made(config, Program::Fridge, None).unwrap(), one, "a new secret");
        assert_eq!(made_for(Some(DigestName::Products), config, Program::Fridge, Some(7)), Ok(one));
        let hardware = made_for(Some(DigestName::Hardware), config, Program::Fridge, Some(7)).unwrap();
        assert!(hardware.starts_with("// Constants of p4/fridge, for stream \"shop\"."), "{hardware}");
        assert!(hardware.contains("#define HARDWARE_DIGEST 1\n") && hardware.contains("KEY_13"), "{hardware}");
    }

    #[test]
    fn a_stream_that_cannot_be_measured_is_refused_with_the_reason() {
        let config = "network: {streams: [{name: shop, interface: eth0, pair: dns}]}\n";

        let refused = made(config, Program::Fridge, None).unwrap_err();
        assert!(refused.contains("stream \"shop\" has no `pair: handshake`"), "{refused}");
        assert!(made("network: 7", Program::Fridge, None).is_err());
    }

    #[test]
    fn a_secret_has_32_digits() {
        assert_eq!(secret("000102030405060708090a0b0c0d0e0f"), Ok(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
        assert_eq!(secret("12"), Err("2 characters, 32 hexadecimal digits are needed".to_owned()));
        assert!(secret("+0102030405060708090a0b0c0d0e0f0").is_err());
    }
}
