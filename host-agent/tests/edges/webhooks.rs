//! Alarms reach webhook receivers. A receiver that hangs, dies and comes back delays no other and misses nothing.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use support::http::HttpMessage;
use wire::proto::control::Episode;

use crate::agent::{Agent, WAIT};
use crate::service::Service;
use crate::worker::Worker;

pub type ReceivedAlarms = Arc<Mutex<Vec<Value>>>;

/// A receiver that accepts everything until it is dropped.
pub fn receiver(listener: TcpListener) -> ReceivedAlarms {
    let alarms = ReceivedAlarms::default();
    let into = Arc::clone(&alarms);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut reader, into) = (BufReader::new(stream.unwrap()), Arc::clone(&into));
            std::thread::spawn(move || {
                while let Some(HttpMessage { body, .. }) = HttpMessage::read(&mut reader) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).push(serde_json::from_slice(&body).unwrap());
                    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    alarms
}

fn messages(alarms: &ReceivedAlarms) -> Vec<(String, String)> {
    let alarms = alarms.lock().unwrap_or_else(PoisonError::into_inner);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    alarms.iter().map(|message| (text(&message["groupLabels"]["service"]), text(&message["status"]))).collect()
}

/// Whether these are the messages about `service`, each by its status.
pub fn is(alarms: &ReceivedAlarms, service: &str, statuses: &[&str]) -> bool {
    let all = messages(alarms);
    all.iter().filter(|(name, _)| name == service).map(|(_, status)| status.as_str()).eq(statuses.iter().copied())
}

fn agent(receivers: &[(&str, SocketAddr)]) -> Agent {
    agent_with(receivers, "")
}

/// With `more` in its configuration.
fn agent_with(receivers: &[(&str, SocketAddr)], more: &str) -> Agent {
    let receivers: Vec<String> = receivers
        .iter()
        .map(|(name, at)| {
            format!("- {{name: {name}, url: 'http://{at}/hook', timeout_ms: 60000, group_wait_ms: 0, group_interval_ms: 1}}\n")
        })
        .collect();
    Agent::with(&format!("{more}process_metrics: {{enabled: false}}\nwebhooks:\n{}", receivers.concat()))
}

#[test]
fn a_receiver_that_hangs_and_dies_delays_no_other_and_gets_the_alarm_later() {
    // The bad receiver comes back to its port, so all others use another address.
    let (good, bad) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.7:0").unwrap());
    let (good_at, bad_at) = (good.local_addr().unwrap(), bad.local_addr().unwrap());
    let alarms = receiver(good);
    let agent = agent(&[("good", good_at), ("bad", bad_at)]);
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    let say = |episode: Episode, at: u64| worker.verdict_in(episode, &lmap, epoch, 1_700_000_000_000_000_000 + at);

    // The bad receiver reads its message and never replies.
    say(Episode::Began, 1);
    let (hanging, _) = bad.accept().unwrap();
    assert!(HttpMessage::read(&mut BufReader::new(&hanging)).is_some());
    WAIT.until("the beginning", || is(&alarms, "payment", &["firing"]).then_some(()));
    say(Episode::Ended, 2);
    WAIT.until("the end, while the other one hangs", || is(&alarms, "payment", &["firing", "resolved"]).then_some(()));

    // It is killed meanwhile, and the alarm comes back while it is away.
    drop((hanging, bad));
    WAIT.until("a failure", || (agent.counter("failed_webhooks") > 0).then_some(()));
    say(Episode::Began, 3);
    WAIT.until("the next", || is(&alarms, "payment", &["firing", "resolved", "firing"]).then_some(()));
    let again = receiver(TcpListener::bind(bad_at).unwrap());

    WAIT.until("how things stand", || is(&again, "payment", &["firing"]).then_some(()));
    say(Episode::Ended, 4);
    WAIT.until("the end", || is(&again, "payment", &["firing", "resolved"]).then_some(()));
    let message = alarms.lock().unwrap_or_else(PoisonError::into_inner)[0].clone();
    assert_eq!((&message["version"], &message["receiver"]), (&Value::from("4"), &Value::from("good")));
    assert_eq!(message["alerts"][0]["startsAt"], "2023-11-14T22:13:20.000Z");
    assert!(message["alerts"][0]["annotations"]["description"].as_str().unwrap().contains("score 20.0, threshold 4.0"));
    let incident = message["alerts"][0]["annotations"]["incident"].as_str().unwrap();
    assert!(incident.ends_with("/20231114-221320-000"), "{incident}");
    // The worker was not delayed.
    assert_eq!((agent.counter("lost_verdicts"), agent.counter("refused_webhooks")), (0, 0));
}

#[test]
fn an_alarm_of_a_service_that_goes_away_is_resolved() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent = agent(&[("good", listener.local_addr().unwrap())]);
    let alarms = receiver(listener);
    let mut worker = Worker::connect(&agent, 0);
    let (service, region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    worker.verdict_in(Episode::Began, &lmap, epoch, 1);
    WAIT.until("the beginning", || is(&alarms, "payment", &["firing"]).then_some(()));

    drop((service, region));

    WAIT.until("the end", || is(&alarms, "payment", &["firing", "resolved"]).then_some(()));
}

#[test]
fn an_alarm_links_to_its_incident_at_the_url_of_the_configuration() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let more = "kubernetes: {node: rack-7.n3}\n\
                page: {incident_link: 'https://ops.example/{node}/#/incident/{incident}'}\n";
    let agent = agent_with(&[("good", listener.local_addr().unwrap())], more);
    let alarms = receiver(listener);
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let (epoch, lmap) = worker.set();
    worker.verdict_in(Episode::Began, &lmap, epoch, 1_700_000_000_000_000_000);
    WAIT.until("the beginning", || is(&alarms, "payment", &["firing"]).then_some(()));

    let alert = alarms.lock().unwrap_or_else(PoisonError::into_inner)[0]["alerts"][0].clone();

    assert_eq!(alert["generatorURL"], "https://ops.example/rack-7.n3/#/incident/20231114-221320-000");
    assert_eq!(alert["annotations"]["incident"], "rack-7.n3/20231114-221320-000");
}
