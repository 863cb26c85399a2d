//! What the LMAPs of both streams say.

use serde::Serialize;
use serde_json::Value;
use wire::control::State;

use super::setting::STREAMS;

/// Share of an alarm from which on it is about the network.
const MOSTLY: f64 = 0.5;

/// An alarm of an LMAP because of its network metrics.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamAlarm {
    /// Seconds from the begin of the condition.
    pub after_s: f64,
    /// The metric that leads it.
    pub metric: String,
}

/// The LMAPs of both streams; null if there is none yet.
pub fn lmaps(status: &Value) -> [Value; 2] {
    let all = status["lmaps"].as_array().map(Vec::as_slice).unwrap_or_default();
    STREAMS.map(|stream| {
        let service = format!("network.{stream}");
        all.iter().find(|lmap| lmap["service"] == *service).cloned().unwrap_or_default()
    })
}

/// Whether both LMAPs judge rows.
pub fn are_armed(lmaps: &[Value; 2]) -> bool {
    lmaps.iter().all(|lmap| lmap["state"].as_str().and_then(State::named).is_some_and(State::judges))
}

/// Whether neither LMAP is in alarm.
pub fn are_quiet(lmaps: &[Value; 2]) -> bool {
    lmaps.iter().all(|lmap| lmap["alarm"] == false)
}

/// Notes the alarms that are new.
pub fn note(alarms: &mut [Option<StreamAlarm>; 2], lmaps: &[Value; 2], after_s: f64) {
    for (alarm, lmap) in alarms.iter_mut().zip(lmaps) {
        let is_of_network = lmap["groups"]["network"].as_f64().is_some_and(|share| share > MOSTLY);
        if alarm.is_none() && lmap["alarm"] == true && is_of_network {
            let metric = lmap["reasons"][0]["column"].as_str().unwrap_or_default().to_owned();
            *alarm = Some(StreamAlarm { after_s, metric });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_alarm_of_each_stream_is_noted_if_it_is_about_the_network() {
        let lmap = |stream: &str, alarm: bool, share: f64, column: &str| {
            json!({"service": format!("network.{stream}"), "state": "armed", "alarm": alarm,
                "groups": {"network": share}, "reasons": [{"column": column}]})
        };
        let status = |host: bool, share: f64, column: &str| {
            let lmaps =
                [lmap("switch", false, 0.0, ""), lmap("host", host, share, column), json!({"service": "other"})];
            json!({ "lmaps": lmaps })
        };
        let mut alarms = [None, None];

        for (after_s, host, share, column) in [(1.0, false, 1.0, ""), (2.0, true, 0.1, "a"), (3.0, true, 0.9, "b")] {
            let lmaps = lmaps(&status(host, share, column));
            assert_eq!((are_armed(&lmaps), are_quiet(&lmaps)), (true, !host));
            note(&mut alarms, &lmaps, after_s);
        }
        note(&mut alarms, &lmaps(&status(true, 1.0, "c")), 4.0);

        assert_eq!(alarms, [Some(StreamAlarm { after_s: 3.0, metric: "b".to_owned() }), None]);
        assert!(!are_armed(&lmaps(&Value::Null)) && !are_quiet(&lmaps(&Value::Null)));
    }
}
