//! The protocol's response (`jaeger.api_v2.SamplingStrategyResponse`, jaeger-idl, `proto/api_v2/sampling.proto`), as
//! JSON and as Protocol Buffers. JSON keys are the names of the proto file; the strategy type is text: clients that
//! expect a number read the other fields.

use prost::Message;
use serde::Serialize;

/// The message `ProbabilisticSamplingStrategy`: one probability.
#[derive(Clone, Copy, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProbabilisticStrategy {
    #[prost(double, tag = "1")]
    sampling_rate: f64,
}

/// The message `OperationSamplingStrategy`: the probability of one operation.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationStrategy {
    #[prost(string, tag = "1")]
    operation: String,
    #[prost(message, optional, tag = "2")]
    probabilistic_sampling: Option<ProbabilisticStrategy>,
}

/// The message `PerOperationSamplingStrategies`: a default, and the operations that differ from it.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationSampling {
    #[prost(double, tag = "1")]
    default_sampling_probability: f64,
    #[prost(double, tag = "2")]
    default_lower_bound_traces_per_second: f64,
    #[prost(message, repeated, tag = "3")]
    per_operation_strategies: Vec<OperationStrategy>,
    /// 0, no bound: no client keeps to one, but the SDK for Rust rejects a response without it.
    #[prost(double, tag = "4")]
    default_upper_bound_traces_per_second: f64,
}

/// `SamplingStrategyParameters`: the request over gRPC.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Parameters {
    #[prost(string, tag = "1")]
    pub(crate) service_name: String,
}

/// The response to a service. It has the probability of the whole service and those of operations, since some clients
/// know only the former.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyResponse {
    /// 0, probabilistic: required by the proto file where operations have probabilities of their own.
    #[prost(int32, tag = "1")]
    #[serde(serialize_with = "word")]
    strategy_type: i32,
    #[prost(message, optional, tag = "2")]
    probabilistic_sampling: Option<ProbabilisticStrategy>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_sampling: Option<OperationSampling>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn word<S: serde::Serializer>(_probabilistic: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("PROBABILISTIC")
}

impl StrategyResponse {
    /// The response that asks a service to record everything.
    #[must_use]
    pub fn all() -> Self {
        Self { probabilistic_sampling: Some(ProbabilisticStrategy { sampling_rate: 1.0 }), ..Self::default() }
    }

    /// The probability `default_probability` for all operations, at least `lower_bound_traces_per_s` requests of each
    /// per second, and another probability for some.
    #[must_use]
    pub fn per_operation(
        default_probability: f64,
        lower_bound_traces_per_s: f64,
        probabilities: impl IntoIterator<Item = (Box<str>, f64)>,
    ) -> Self {
        let strategies = probabilities.into_iter().map(|(operation, sampling_rate)| OperationStrategy {
            operation: operation.into(),
            probabilistic_sampling: Some(ProbabilisticStrategy { sampling_rate }),
        });
        Self {
            strategy_type: 0,
            probabilistic_sampling: Some(ProbabilisticStrategy { sampling_rate: default_probability }),
            operation_sampling: Some(OperationSampling {
                default_sampling_probability: default_probability,
                default_lower_bound_traces_per_second: lower_bound_traces_per_s,
                per_operation_strategies: strategies.collect(),
                default_upper_bound_traces_per_second: 0.0,
            }),
        }
    }

    /// Operations with a probability of their own.
    pub fn operations(&self) -> impl Iterator<Item = (&str, f64)> {
        let strategies = self.operation_sampling.iter().flat_map(|of| &of.per_operation_strategies);
        strategies
            .map(|of| (of.operation.as_str(), of.probabilistic_sampling.map_or(0.0, |strategy| strategy.sampling_rate)))
    }

    /// The JSON body.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        // Only numbers and strings: serializing them does not fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Jaeger's own agent responds (jaegertracing/jaeger#2171), except for the order of fields.
    #[test]
    fn the_json_is_that_of_the_protocol() {
        let answer =
            StrategyResponse::per_operation(0.25, 0.5, [("GET /health".into(), 0.0), ("POST /pay".into(), 1.0)]);

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
        let all = StrategyResponse::all().json();
        let expected = r#"{"strategyType":"PROBABILISTIC","probabilisticSampling":{"samplingRate":1.0}}"#;
        assert_eq!(String::from_utf8(all).unwrap(), expected);
    }

    /// Tags and types as in the proto file: 2 is a message with a double at 1, 4 one with doubles at 1 and 2 and
    /// operations at 3.
    #[test]
    fn the_bytes_are_those_of_the_proto_file() {
        let answer = StrategyResponse::per_operation(0.5, 1.0, [("a".into(), 1.0)]);

        let half = 0.5_f64.to_le_bytes();
        let one = 1.0_f64.to_le_bytes();
        let double = |tag: u8, bytes: [u8; 8]| [&[tag << 3 | 1][..], &bytes].concat();
        let inner = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, bytes.len() as u8], bytes].concat();
        let operation = [inner(1, b"a"), inner(2, &double(1, one))].concat();
        let operations = [double(1, half), double(2, one), inner(3, &operation)].concat();
        assert_eq!(answer.encode_to_vec(), [inner(2, &double(1, half)), inner(4, &operations)].concat());
        assert_eq!(StrategyResponse::decode(&answer.encode_to_vec()[..]).unwrap(), answer);
    }
}
