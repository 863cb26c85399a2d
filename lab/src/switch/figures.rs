//! What the NIC agent's log says of the intervals of both streams.

use serde::Serialize;
use serde_json::Value;

use super::setting::{Measure, STREAMS};

/// Flags of intervals of which all packets are known: an error of every clock that nobody synchronises, which changes
/// nothing on one machine; and that there were no packets, as before and after those that are sent alone.
const KNOWN: [&str; 2] = ["unsynchronised", "empty"];

/// The figures of one stream, of several intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Intervals that the figures are of.
    pub intervals: usize,
    /// All intervals of that time.
    pub of_intervals: usize,
    /// Requests, packets, or segments that were checked for their order.
    pub counted: u64,
    /// Median of the intervals' medians, or mean of all, in milliseconds.
    pub delay_ms: Option<f64>,
    /// Share of repeated requests, of lost packets, or of segments out of order.
    pub share: Option<f64>,
}

/// The intervals of both streams in the log of the agent, in order.
pub fn intervals(log: &str, measure: Measure) -> [Vec<Value>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let stream = match measure {
            Measure::Handshake if line["message"] == "an interval was measured" => {
                line["service"].as_str().and_then(|service| service.strip_prefix("network."))
            }
            Measure::OneWay if line["message"] == "an interval was compared" => line["stream"].as_str(),
            Measure::Reordering if line["message"] == "the order of an interval's packets" => {
                line["service"].as_str().and_then(|service| service.strip_prefix("network."))
            }
            _ => None,
        };
        if let Some(place) = STREAMS.iter().position(|name| Some(*name) == stream) {
            found[place].push(line);
        }
    }
    found
}

/// The largest error of a switch's time by what its agent says, when it asked last, in milliseconds; 0 if it asks for
/// none.
pub fn clock_error_ms(log: &str) -> f64 {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let begun = lines.filter(|line| line["message"] == "reading the registers of a switch");
    let error_ns = begun.filter_map(|line| line["uncertainty_ns"].as_u64()).next_back();
    error_ns.map_or(0.0, |error_ns| error_ns as f64 / 1e6)
}

/// Whether nothing happened in an interval, as far as that is known.
pub fn is_quiet(measure: Measure, interval: &Value) -> bool {
    let field = match measure {
        Measure::Handshake | Measure::Reordering => "packets",
        Measure::OneWay => "sent",
    };
    is_usable(measure, interval) && interval[field].as_u64() == Some(0)
}

/// The figures of some intervals.
pub fn figures(measure: Measure, intervals: &[Value]) -> Figures {
    let used: Vec<_> = intervals.iter().filter(|interval| is_usable(measure, interval)).collect();
    let (counted, delay_ms, share) = match measure {
        Measure::Handshake => {
            let medians = used.iter().filter_map(|interval| interval["p50_s"].as_f64());
            (sum(&used, "requests"), median(medians).map(|delay_s| delay_s * 1e3), mean(&used, "repeated", "requests"))
        }
        Measure::OneWay => {
            let delay_ns = mean(&used, "mean_ns", "packets");
            (sum(&used, "sent"), delay_ns.map(|delay_ns| delay_ns / 1e6), mean(&used, "loss", "sent"))
        }
        Measure::Reordering => {
            let (checked, out_of_order) = (sum(&used, "checked"), sum(&used, "out_of_order"));
            (checked, None, (checked > 0).then(|| out_of_order as f64 / checked as f64))
        }
    };
    Figures { intervals: used.len(), of_intervals: intervals.len(), counted, delay_ms, share }
}

/// What both have to count exactly in some intervals; `None` if one of them is not known.
pub fn counted_alone(measure: Measure, intervals: &[Value]) -> Option<u64> {
    let field = match measure {
        Measure::Handshake => "requests",
        Measure::OneWay => "sent",
        Measure::Reordering => "out_of_order",
    };
    let all: Vec<_> = intervals.iter().collect();
    all.iter().all(|interval| is_usable(measure, interval)).then(|| sum(&all, field))
}

/// Whether the agent has all packets of an interval.
fn is_usable(measure: Measure, interval: &Value) -> bool {
    match measure {
        Measure::Handshake => true,
        Measure::OneWay => {
            let flags = interval["flags"].as_str().unwrap_or_default();
            flags.split_whitespace().all(|flag| KNOWN.contains(&flag))
        }
        Measure::Reordering => interval["checked"].is_u64(),
    }
}

fn sum(intervals: &[&Value], field: &str) -> u64 {
    intervals.iter().filter_map(|interval| interval[field].as_u64()).sum()
}

/// The mean of a field, by the weights in another field, of the intervals that have both.
fn mean(intervals: &[&Value], field: &str, weight: &str) -> Option<f64> {
    let known = intervals.iter().filter_map(|interval| Some((interval[field].as_f64()?, interval[weight].as_f64()?)));
    let (sum, weights) =
        known.fold((0.0, 0.0), |(sum, weights), (value, weight)| (value.mul_add(weight, sum), weights + weight));
    (weights > 0.0).then(|| sum / weights)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(lines: &[Value]) -> String {
        lines.iter().fold(String::new(), |log, line| log + &line.to_string() + "\n")
    }

    #[test]
    fn handshakes_are_counted_and_their_delay_is_the_median_of_medians() {
        let line = |service: &str, requests: u64, p50_s: Value, repeated: f64| {
            let message = "an interval was measured";
            json!({"message": message, "service": service, "packets": requests, "requests": requests, "p50_s": p50_s,
                "repeated": repeated})
        };
        let text = log(&[
            line("network.host", 10, json!(0.003), 0.1),
            line("network.host", 30, json!(0.002), 0.0),
            line("network.switch", 0, json!(null), 0.0),
            line("network.other", 7, json!(9.0), 0.0),
            json!({"message": "something else", "service": "network.host"}),
        ]) + "no JSON\n";

        let [host, switch] = intervals(&text, Measure::Handshake);
        let found = figures(Measure::Handshake, &host);
        assert_eq!((found.intervals, found.counted, found.delay_ms), (2, 40, Some(3.0)));
        assert_eq!(found.share, Some(0.025));
        assert_eq!(
            figures(Measure::Handshake, &switch),
            Figures { intervals: 1, of_intervals: 1, ..Default::default() }
        );
        assert!(!is_quiet(Measure::Handshake, &host[0]) && is_quiet(Measure::Handshake, &switch[0]));
    }

    #[test]
    fn the_error_of_a_switchs_time_is_that_of_the_latest_question() {
        let message = "reading the registers of a switch";
        let line = |uncertainty_ns: Value| json!({"message": message, "uncertainty_ns": uncertainty_ns});
        let asked = log(&[line(json!(900_000)), line(json!(52_000)), json!({"uncertainty_ns": 7})]);

        assert_eq!((clock_error_ms(&asked), clock_error_ms(&log(&[line(Value::Null)]))), (0.052, 0.0));
    }

    #[test]
    fn packets_of_intervals_with_a_flag_do_not_count() {
        let line = |flags: &str, sent: u64, mean_ns: f64| {
            let message = "an interval was compared";
            json!({"message": message, "stream": "switch", "flags": flags, "sent": sent, "packets": sent / 2,
                "mean_ns": mean_ns, "loss": 0.01})
        };
        let text = log(&[line("", 100, 1e6), line("unsynchronised", 300, 2e6), line("missed unsynchronised", 50, 9e9)]);

        let [host, switch] = intervals(&text, Measure::OneWay);
        assert!(host.is_empty());
        let found = figures(Measure::OneWay, &switch);
        assert_eq!((found.intervals, found.of_intervals, found.counted), (2, 3, 400));
        assert_eq!((found.delay_ms, found.share), (Some(1.75), Some(0.01)));
    }

    #[test]
    fn packets_alone_are_between_intervals_without_any_and_are_not_known_with_one_that_is_not() {
        let line = |flags: &str, sent: u64| json!({"stream": "switch", "flags": flags, "sent": sent});
        let silent = || [(); 4].map(|()| line("empty unsynchronised", 0));
        let packets = [line("", 70), line("unsynchronised", 30)];

        let all = [&packets[..], &silent()].concat();
        assert_eq!(counted_alone(Measure::OneWay, &all), Some(100));
        assert!(silent().iter().all(|interval| is_quiet(Measure::OneWay, interval)));
        let all = [&all[..], &[line("no_peer_data", 0)]].concat();
        assert_eq!(counted_alone(Measure::OneWay, &all), None);
        assert!(!is_quiet(Measure::OneWay, &all[all.len() - 1]), "nobody knows what came");
    }

    #[test]
    fn segments_out_of_order_are_a_share_of_those_that_were_checked() {
        let message = "the order of an interval's packets";
        let line = |packets: u64, checked: u64, out_of_order: u64| {
            json!({"message": message, "service": "network.switch", "packets": packets, "checked": checked,
                "out_of_order": out_of_order})
        };
        let text = log(&[line(200, 100, 4), line(0, 0, 0), line(640, 300, 20)]);

        let [host, switch] = intervals(&text, Measure::Reordering);
        assert!(host.is_empty());
        let found = figures(Measure::Reordering, &switch);
        assert_eq!((found.intervals, found.counted, found.delay_ms, found.share), (3, 400, None, Some(0.06)));
        assert_eq!(counted_alone(Measure::Reordering, &switch), Some(24));
        assert!(!is_quiet(Measure::Reordering, &switch[0]) && is_quiet(Measure::Reordering, &switch[1]));

        // A switch that was not read, or an overrun.
        let text = text + &log(&[json!({"message": message, "service": "network.switch", "packets": 0})]);
        let [_, switch] = intervals(&text, Measure::Reordering);
        let found = figures(Measure::Reordering, &switch);
        assert_eq!((found.intervals, found.of_intervals, found.share), (3, 4, Some(0.06)));
        assert_eq!(counted_alone(Measure::Reordering, &switch), None);
        assert!(!is_quiet(Measure::Reordering, &switch[3]));
    }
}
