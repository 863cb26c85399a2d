//! The digests by which a program knows packets, flows and handshakes: of the first frames of a vector, by the library
//! and by the program.

use packets::flows::segment;
use packets::{Packet, Pair, identity};
use serde::{Deserialize, Serialize};
use synopses::digest::DigestKey;
use synopses::reordering::Control;
use thiserror::Error;

use crate::frames::{AGENT_PORT, Captured, Frames};
use crate::interpreter::Machine;
use crate::model::key;
use crate::programs::{Subject, Unequal};

/// Frames whose digests are kept, for each thing that has one.
const MAX_DIGESTS: usize = 8;

/// What has a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestSubject {
    /// A request of a handshake, which has the digest of its response.
    Handshake,
    /// A packet of a path.
    Packet,
    /// The flow of a packet.
    Flow,
}

/// A digest in hexadecimal, of the frame with this number. The first one has 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameDigest(pub usize, pub DigestSubject, pub String);

/// Why digests of a program are not known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NamesError {
    /// The program cannot be loaded or run.
    #[error(transparent)]
    Unequal(#[from] Unequal),
    /// It has no variable with the digest, or has it under another name.
    #[error("{0} has no variable with the digest of a {1:?}: p4/equality/src/names.rs knows its name")]
    Variable(&'static str, DigestSubject),
}

impl DigestSubject {
    /// What a program names, by the folder of its sources.
    fn all(source: &str) -> &'static [Self] {
        match source {
            "fridge" | "fridges" => &[Self::Handshake],
            "finecomb-sender" | "finecomb-receiver" | "lda" => &[Self::Packet],
            "together" => &[Self::Handshake, Self::Packet, Self::Flow],
            _ => &[Self::Flow],
        }
    }

    /// The variables that have the digest, in one program or the other.
    const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Handshake => &["Fridge_identity"],
            Self::Packet => &["Interval_identity", "identity"],
            Self::Flow => &["flow", "StHll_flow", "TsPcsa_flow", "metadata_t._segment_flow"],
        }
    }

    /// The library's digest.
    fn of_library(self, source: &str, packet: &Packet<'_>, key: &DigestKey) -> Option<u64> {
        let digest = match self {
            Self::Handshake => {
                let roles = Pair::Handshake.roles(packet, key);
                roles.request.or(roles.response)?
            }
            Self::Packet => identity::digest(packet, key),
            Self::Flow if source.starts_with("reordering") => {
                // Of others, these programs need none.
                let segment = segment(packet, key).filter(|of| of.control != Control::Reset)?;
                let is_named = segment.control == Control::Syn || segment.payload > 0;
                is_named.then_some(segment.flow)?
            }
            Self::Flow => identity::flow(packet, key),
        };
        Some(digest.0)
    }

    /// The program's digest of the latest frame; 0 if it had none.
    fn of_program(self, machine: &Machine) -> Option<u64> {
        self.variables().iter().find_map(|name| machine.variable(name))
    }
}

/// Digests of the first frames.
#[derive(Debug, Default)]
struct FirstDigests(Vec<FrameDigest>);

impl FirstDigests {
    /// Takes the digest of a frame, if there is one.
    fn take(&mut self, frame: usize, subject: DigestSubject, digest: Option<u64>) {
        let Some(digest) = digest.filter(|digest| *digest != 0) else { return };
        let there = self.0.iter().filter(|of| of.1 == subject).count();
        if there < MAX_DIGESTS {
            self.0.push(FrameDigest(frame, subject, format!("{digest:#018x}")));
        }
    }
}

/// The digests of the first of these frames, by the library.
///
/// # Errors
///
/// [`Unequal`] if the library refuses the settings.
pub fn of_library(subject: &Subject, frames: &[Captured]) -> Result<Vec<FrameDigest>, Unequal> {
    let mut counts = Frames::new(&(subject.constants)(subject.kind)?);
    let (key, mut found) = (key(subject.kind), FirstDigests::default());
    for (number, captured) in frames.iter().enumerate() {
        let Some(packet) = counts.count(captured) else { continue };
        for of in DigestSubject::all(subject.source) {
            found.take(number, *of, of.of_library(subject.source, &packet, &key));
        }
    }
    Ok(found.0)
}

/// The same, by the program in the interpreter. It gets only as many frames as have as many digests.
///
/// # Errors
///
/// [`NamesError`] if the program cannot be run, or has no such digests.
pub fn of_program(subject: &Subject, frames: &[Captured]) -> Result<Vec<FrameDigest>, NamesError> {
    let mut machine = Machine::new(subject.load()?.into());
    let (all, mut found) = (DigestSubject::all(subject.source), FirstDigests::default());
    for (number, captured) in frames.iter().enumerate() {
        if found.0.len() == all.len() * MAX_DIGESTS {
            break;
        }
        machine.process(AGENT_PORT, 0, &captured.replayed()).map_err(|fault| Unequal::Fault(number, fault))?;
        for of in all {
            let digest = of.of_program(&machine).ok_or(NamesError::Variable(subject.name, *of))?;
            found.take(number, *of, Some(digest));
        }
    }
    Ok(found.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digests_of_each_thing_are_taken() {
        let mut found = FirstDigests::default();
        found.take(0, DigestSubject::Flow, Some(0));
        found.take(1, DigestSubject::Packet, None);
        (2..20).for_each(|frame| found.take(frame, DigestSubject::Flow, Some(frame as u64)));
        found.take(20, DigestSubject::Packet, Some(7));

        assert_eq!(found.0.len(), MAX_DIGESTS + 1);
        assert_eq!(found.0[0], FrameDigest(2, DigestSubject::Flow, "0x0000000000000002".to_owned()));
        assert_eq!(found.0.last(), Some(&FrameDigest(20, DigestSubject::Packet, "0x0000000000000007".to_owned())));
    }

    #[test]
    fn a_program_has_variables_for_what_it_names_and_for_nothing_else() {
        let program = Subject::of_name("st-hll").expect("a program").load().expect("a compiled program");
        let machine = Machine::new(program.into());

        assert_eq!(DigestSubject::Flow.of_program(&machine), Some(0), "no frame came");
        assert_eq!(DigestSubject::Packet.of_program(&machine), None);
    }
}
