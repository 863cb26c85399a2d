//! `uview p4`: what programs for switches (`p4/`) have to know.

use std::path::PathBuf;

use clap::ValueEnum;
use nic_agent::config::Config;
use nic_agent::{SwitchProgram, switch_constants};
use synopses::digest::DigestKind;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::synopsis::fridge::rand_seed;

/// The long help of `uview p4 constants`.
const CONSTANTS_ABOUT: &str = "\
Prints the constants with which a program for a switch measures a stream of a NIC agent: put them into the program's
constants.p4, and compile it.

Sizes are those of the agent, powers of two where a switch needs them. A size that does not fit is refused with the
limit. With its keys and the last constant the program makes a checksum of all constants and of its name, and has it in
its register `constants` from the first frame on: another program, other constants or other keys are found out.

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
    /// The stream to measure
    #[arg(long, value_name = "NAME")]
    stream: String,
    /// What names packets; a program for hardware has its constants in constants-hardware.p4 [default: products]
    #[arg(long)]
    digest: Option<DigestName>,
    /// Secret key of 32 hexadecimal digits, the same at both ends of a one-way measurement; a new one without it
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
}

impl From<Program> for SwitchProgram {
    fn from(program: Program) -> Self {
        match program {
            Program::Fridge => Self::Fridge,
            Program::Fridges => Self::Fridges,
            Program::OneWay => Self::OneWay,
            Program::StHll => Self::StHll,
            Program::TsPcsa => Self::TsPcsa,
            Program::ReorderingSamples => Self::ReorderingSamples,
            Program::Reordering => Self::Reordering,
            Program::Precision => Self::Precision,
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

/// The text of `constants.p4`.
fn constants(args: &ConstantsArgs) -> Result<String, Failure> {
    let failure = || Failure::to(format!("make constants for stream {:?}", args.stream));
    let config = Config::load(&args.config).map_err(|error| failure().caused_by(&error))?;
    let secret = args.secret.unwrap_or_else(|| (u128::from(rand_seed()) << 64) | u128::from(rand_seed()));
    let kind = args.digest.map_or(DigestKind::Products, DigestKind::from);
    let constants = switch_constants(&config, &args.stream, args.program.into(), secret, kind)
        .map_err(|error| failure().caused_by(&error))?;
    let note = format!(
        "Constants of p4/{}, for stream {:?}. Written by `uview p4 constants`. They hold the secret.",
        constants.folder(),
        args.stream
    );
    Ok(constants.text(&note))
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
        let args = ConstantsArgs { program, config: file, stream: "shop".to_owned(), digest, secret };
        constants(&args).map_err(|failure| failure.to_string())
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
