//! The file of the workers that operators drain: a header line with version and checksum, then a protobuf message.
//! Pure.

use prost::Message as _;
use wire::id::WorkerId;

use crate::control_plane::Drain;
use crate::stored_file::{FileHeader, FileHeaderError};

const HEADER: FileHeader = FileHeader { magic: "uview drained workers", version: 1 };

/// The file's name.
pub(super) const NAME: &str = "drained-workers";
/// Name of one that could not be read.
pub(super) const SET_ASIDE: &str = "drained-workers.set-aside";
/// Most bytes that are read.
pub(super) const MAX_BYTES: u64 = 1 << 20;

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(message, repeated, tag = "1")]
    workers: Vec<DrainedWorker>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DrainedWorker {
    #[prost(uint32, tag = "1")]
    worker: u32,
    #[prost(string, tag = "2")]
    by: String,
    #[prost(bool, tag = "3")]
    forced: bool,
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrainFileError {
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    #[error("it is no message of this version: {0}")]
    Message(#[from] prost::DecodeError),
}

/// The bytes of a file.
pub(super) fn encode(drains: &[(WorkerId, Drain)]) -> Vec<u8> {
    let worker =
        |(id, drain): &(WorkerId, Drain)| DrainedWorker { worker: id.0, by: drain.by.clone(), forced: drain.forced };
    HEADER.seal(&Body { workers: drains.iter().map(worker).collect() }.encode_to_vec())
}

/// The orders in a file.
///
/// # Errors
///
/// [`DrainFileError`] if an agent of this version did not write it, or if it was damaged.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<(WorkerId, Drain)>, DrainFileError> {
    let body = Body::decode(HEADER.unseal(bytes)?)?;
    let drain = |of: DrainedWorker| (WorkerId(of.worker), Drain { by: of.by, forced: of.forced });
    Ok(body.workers.into_iter().map(drain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_each_version_is_read_as_it_was_meant() {
        let written = include_bytes!("../../tests/stored/1/drained-workers");
        let drains = [
            (WorkerId(0), Drain { by: "user 0".into(), forced: false }),
            (WorkerId(7), Drain { by: "cn=operator".into(), forced: true }),
        ];

        assert_eq!(decode(written).unwrap(), drains);
        assert_eq!(encode(&drains), written, "this agent writes what the one before reads");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_that_was_damaged() {
        let drains = [
            (WorkerId(0), Drain { by: "user 0".into(), forced: false }),
            (WorkerId(7), Drain { by: "π".into(), forced: true }),
        ];
        let whole = encode(&drains);

        assert_eq!(decode(&whole).unwrap(), drains);
        for at in 0..whole.len() {
            assert!(decode(&whole[..at]).is_err(), "the first {at} bytes");
        }
    }
}
