//! The protocol's answer (`jaeger.api_v2.SamplingStrategyResponse`, jaeger-idl, `proto/api_v2/sampling.proto`), as JSON and as Protocol Buffers. The
//! names in JSON are those of the proto file, the strategy's type is a word: clients that expect a number read the other fields.

use prost::Message;
use serde::Serialize;

/// `ProbabilisticSamplingStrategy`.
#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Probabilistic {
    #[prost(double, tag = "1")]
    sampling_rate: f64,
}

/// `OperationSamplingStrategy`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    #[prost(string, tag = "1")]
    operation: String,
    #[prost(message, optional, tag = "2")]
    probabilistic_sampling: Option<Probabilistic>,
}

/// `PerOperationSamplingStrategies`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shares {
    #[prost(double, tag = "1")]
    default_sampling_probability: f64,
    #[prost(double, tag = "2")]
    default_lower_bound_traces_per_second: f64,
    #[prost(message, repeated, tag = "3")]
    per_operation_strategies: Vec<Operation>,
    /// 0, no bound: nobody keeps to one, and the SDK for Rust reads nothing of an answer without it.
    #[prost(double, tag = "4")]
    default_upper_bound_traces_per_second: f64,
}

/// `SamplingStrategyParameters`: the request over gRPC.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Parameters {
    #[prost(string, tag = "1")]
    pub(crate) service_name: String,
}

/// What a service is told. Both the share of all and those of operations are said, since some clients know only the former.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// 0, probabilistic: the proto file asks for it where operations have shares of their own.
    #[prost(int32, tag = "1")]
    #[serde(serialize_with = "word")]
    strategy_type: i32,
    #[prost(message, optional, tag = "2")]
    probabilistic_sampling: Option<Probabilistic>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_sampling: Option<Shares>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn word<S: serde::Serializer>(_probabilistic: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("PROBABILISTIC")
}

impl Answer {
    /// Everything is to be recorded.
    #[must_use]
    pub fn all() -> Self {
        Self { probabilistic_sampling: Some(Probabilistic { sampling_rate: 1.0 }), ..Self::default() }
    }

    /// The share `usual` of all operations, at least `floor_per_s` requests of each in a second, and of some another share.
    #[must_use]
    pub fn per_operation(usual: f64, floor_per_s: f64, shares: impl IntoIterator<Item = (Box<str>, f64)>) -> Self {
        let strategies = shares.into_iter().map(|(operation, sampling_rate)| Operation {
            operation: operation.into(),
            probabilistic_sampling: Some(Probabilistic { sampling_rate }),
        });
        Self {
            strategy_type: 0,
            probabilistic_sampling: Some(Probabilistic { sampling_rate: usual }),
            operation_sampling: Some(Shares {
                default_sampling_probability: usual,
                default_lower_bound_traces_per_second: floor_per_s,
                per_operation_strategies: strategies.collect(),
                default_upper_bound_traces_per_second: 0.0,
            }),
        }
    }

    /// Operations that have a share of their own.
    pub fn operations(&self) -> impl Iterator<Item = (&str, f64)> {
        let strategies = self.operation_sampling.iter().flat_map(|of| &of.per_operation_strategies);
        strategies.map(|of| (of.operation.as_str(), of.probabilistic_sampling.map_or(0.0, |share| share.sampling_rate)))
    }

    /// As it goes over HTTP.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        // Numbers and strings: nothing in it can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Jaeger's own agent answers (jaegertracing/jaeger#2171), but for its order of fields.
    #[test]
    fn the_json_is_that_of_the_protocol() {
        let answer = Answer::per_operation(0.25, 0.5, [("GET /health".into(), 0.0), ("POST /pay".into(), 1.0)]);

        assert_eq!(
            String::from_utf8(answer.json()).unwrap(),
            concat!(
                r#"{"strategyType":"PROBABILISTIC","probabilisticSampling":{"samplingRate":0.25},"#,
                r#""operationSampling":{"defaultSamplingProbability":0.25,"defaultLowerBoundTracesPerSecond":0.5,"#,
                r#""perOperationStrategies":[{"operation":"GET /health","probabilisticSampling":{"samplingRate":0.0}},"#,
                r#"{"operation":"POST /pay","probabilisticSampling":{"samplingRate":1.0}}],"#,
                r#""defaultUpperBoundTracesPerSecond":0.0}}"#,
            )
        );
        let all = Answer::all().json();
        let expected = r#"{"strategyType":"PROBABILISTIC","probabilisticSampling":{"samplingRate":1.0}}"#;
        assert_eq!(String::from_utf8(all).unwrap(), expected);
    }

    /// Tags and types as in the proto file: 2 is a message with a double at 1, 4 one with doubles at 1 and 2 and operations at 3.
    #[test]
    fn the_bytes_are_those_of_the_proto_file() {
        let answer = Answer::per_operation(0.5, 1.0, [("a".into(), 1.0)]);

        let half = 0.5_f64.to_le_bytes();
        let one = 1.0_f64.to_le_bytes();
        let double = |tag: u8, bytes: [u8; 8]| [&[tag << 3 | 1][..], &bytes].concat();
        let inner = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, bytes.len() as u8], bytes].concat();
        let operation = [inner(1, b"a"), inner(2, &double(1, one))].concat();
        let operations = [double(1, half), double(2, one), inner(3, &operation)].concat();
        assert_eq!(answer.encode_to_vec(), [inner(2, &double(1, half)), inner(4, &operations)].concat());
        assert_eq!(Answer::decode(&answer.encode_to_vec()[..]).unwrap(), answer);
    }
}
