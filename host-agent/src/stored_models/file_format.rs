//! The file of one model: a header line with version and checksum, then a protobuf message. Pure.

use prost::Message as _;
use wire::control::DetectorSpec;
use wire::id::Owner;
use wire::name::ServiceName;
use wire::proto::control::Detector;
use wire::time::{Interval, Nanos};

use crate::control_plane::KeptModel;
use crate::stored_file::{FileHeader, FileHeaderError};

const HEADER: FileHeader = FileHeader { magic: "uview model of a service", version: 1 };

/// Bytes of a file besides the model, at most: header, name and settings.
pub(super) const OVERHEAD_BYTES: usize = 1024;

#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(uint64, tag = "2")]
    interval_ns: u64,
    /// Absent, without a container: the agent itself pays for it.
    #[prost(uint32, optional, tag = "3")]
    owner_uid: Option<u32>,
    #[prost(bytes = "vec", tag = "6")]
    owner_container: Vec<u8>,
    #[prost(message, optional, tag = "4")]
    detector: Option<Detector>,
    #[prost(bytes = "vec", tag = "5")]
    model: Vec<u8>,
}

/// Why a file is not read as a model.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelFileError {
    #[error("it has more than {0} bytes, the limit of lmap.model_bytes")]
    TooLong(usize),
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    #[error("it is no message of this version: {0}")]
    Message(#[from] prost::DecodeError),
    #[error("its {0}: {1}")]
    Value(&'static str, String),
}

/// The bytes of a file.
pub(super) fn encode(service: &ServiceName, model: &KeptModel) -> Vec<u8> {
    let body = Body {
        service: service.as_str().to_owned(),
        interval_ns: model.interval.length().0,
        owner_uid: model.owner.uid(),
        owner_container: model.owner.container(),
        detector: Some(Detector::from(&model.detector)),
        model: model.bytes.to_vec(),
    };
    HEADER.seal(&body.encode_to_vec())
}

/// The model in a file of at most `limit` bytes besides [`OVERHEAD_BYTES`].
///
/// # Errors
///
/// [`ModelFileError`] if an agent of this version did not write it, or if it was damaged.
pub(super) fn decode(bytes: &[u8], limit: usize) -> Result<(ServiceName, KeptModel), ModelFileError> {
    if bytes.len() > limit.saturating_add(OVERHEAD_BYTES) {
        return Err(ModelFileError::TooLong(limit));
    }
    let body = Body::decode(HEADER.unseal(bytes)?)?;
    let value = |what| move |error: &dyn core::fmt::Display| ModelFileError::Value(what, error.to_string());
    let service = ServiceName::new(&body.service).map_err(|error| value("service")(&error))?;
    let interval = Interval::new(Nanos(body.interval_ns)).map_err(|error| value("interval")(&error))?;
    let detector = DetectorSpec::try_from(&body.detector.unwrap_or_default());
    let detector = detector.map_err(|error| value("detector")(&error))?;
    let owner = Owner::of(body.owner_uid, &body.owner_container);
    Ok((service, KeptModel { bytes: body.model.into(), lmap: None, interval, detector, owner }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> (ServiceName, KeptModel) {
        let detector = DetectorSpec { rank: Some(3), percentile: Some(99.5), ..DetectorSpec::default() };
        let interval = Interval::new(Nanos::from_millis(20)).unwrap();
        let model = KeptModel { bytes: vec![7; 100].into(), lmap: None, interval, detector, owner: Owner::User(1000) };
        (ServiceName::new("payment").unwrap(), model)
    }

    #[test]
    fn what_is_written_is_read() {
        let (service, model) = model();
        let bytes = encode(&service, &model);

        assert!(bytes.len() <= model.bytes.len() + OVERHEAD_BYTES);
        assert_eq!(decode(&bytes, 100).unwrap(), (service, model));
    }

    #[test]
    fn a_file_of_each_version_is_read_as_it_was_meant_with_a_model_that_detectors_take() {
        // A version of the file that this agent does not read any more goes, and its folder with it.
        let written = include_bytes!("../../tests/stored/1/model");

        let (service, stored) = decode(written, 1024).unwrap();

        assert_eq!((service.as_str(), stored.bytes.len()), ("payment", 522));
        // It is of the first version of models, and this agent's workers go on with it.
        let model = lmap::Model::decode(&stored.bytes).unwrap();
        assert_eq!((model.shape(), model.fingerprints().count()), ((1, 4), 3));
        assert!((model.gamma() - 3.971_993_534).abs() < 1e-9, "{}", model.gamma());
        let detector = DetectorSpec { rank: Some(3), percentile: Some(99.5), ..DetectorSpec::default() };
        let interval = Interval::new(Nanos::from_millis(100)).unwrap();
        let expected =
            KeptModel { bytes: stored.bytes.clone(), lmap: None, interval, detector, owner: Owner::User(1000) };
        assert_eq!(stored, expected);
        assert_eq!(encode(&service, &stored), written, "this agent writes what the one before reads");
    }

    #[test]
    fn no_damaged_file_is_read_and_none_of_another_version_or_length() {
        let (service, model) = model();
        let whole = encode(&service, &model);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged, 100).is_err() || damaged == whole, "the byte at {at}");
            assert!(decode(&whole[..at], 100).is_err(), "the first {at} bytes");
        }
        let next = [b"uview model of a service 2".as_slice(), &whole[26..]].concat();
        let error = decode(&next, 100).unwrap_err().to_string();
        assert_eq!(error, "it has version 2, this agent reads 1");
        let long = vec![0; 100 + OVERHEAD_BYTES + 1];
        assert!(matches!(decode(&long, 100), Err(ModelFileError::TooLong(100))));
    }
}
