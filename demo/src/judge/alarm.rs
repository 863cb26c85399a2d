//! Derives alarms from verdicts: their start, end, strength and top metrics.

use hooks::suspects::{Cause, EXPLAINED_BY, Explanation};
use wire::time::Nanos;

use crate::graph::Target;
use crate::reason::Reason;
use crate::record::{Episode, Event};

/// An alarm: one episode of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The service, or the link.
    pub service: Target,
    /// Arrival of its first verdict.
    pub began: Nanos,
    /// Arrival of its last verdict; `None` if it lasts until the end of the run.
    pub ended: Option<Nanos>,
    /// Whether it is an alarm because the heartbeat stopped, whatever the score.
    pub silent: bool,
    /// The highest score as a multiple of γ.
    pub peak: f64,
    /// The metrics that made most of the squared score in the first second, at most [`hooks::suspects::TOP`], the
    /// largest first.
    pub top: Vec<Reason>,
    /// The service whose calls these are about ([`Explanation::peer`]).
    pub peer: Option<Target>,
}

impl Alarm {
    /// Whether it was active at `at`.
    #[must_use]
    pub fn covers(&self, at: Nanos) -> bool {
        self.began <= at && self.ended.is_none_or(|ended| at < ended)
    }
}

/// All alarms of `events`, ordered by their starts. `events` are in the order of their arrival.
///
/// Silence is an alarm of its own, separate from one of the score; it ends with the first verdict that is not silent. A
/// lost first verdict does not hide an alarm: a later one starts it. One that begins while one is active ends that.
#[must_use]
pub fn alarms(events: &[Event]) -> Vec<Alarm> {
    let mut alarms: Vec<Alarm> = Vec::new();
    for event in events {
        if !event.silent
            && let Some(silence) = open(&mut alarms, event.service, true)
        {
            silence.ended = Some(event.at);
        }
        if event.episode == Episode::Began
            && let Some(before) = open(&mut alarms, event.service, event.silent)
        {
            before.ended = Some(event.at);
        }
        match (event.episode, open(&mut alarms, event.service, event.silent)) {
            (Episode::Began | Episode::On, None) => alarms.push(Alarm {
                service: event.service,
                began: event.at,
                ended: None,
                silent: event.silent,
                peak: event.ratio(),
                top: Vec::new(),
                peer: None,
            }),
            (Episode::Began | Episode::On, Some(alarm)) => alarm.peak = alarm.peak.max(event.ratio()),
            (Episode::Ended, Some(alarm)) => alarm.ended = Some(event.at),
            (Episode::Ended, None) | (Episode::Quiet, _) => {}
        }
    }
    for alarm in &mut alarms {
        (alarm.top, alarm.peer) = explanation(events, alarm.service, alarm.began);
    }
    alarms
}

/// The active alarm of `service` of that kind.
fn open(alarms: &mut [Alarm], service: Target, silent: bool) -> Option<&mut Alarm> {
    alarms.iter_mut().rfind(|alarm| alarm.ended.is_none() && alarm.service == service && alarm.silent == silent)
}

/// The top metrics of the first second of an alarm, each with its values at its largest share, and the peer of the
/// calls that they are about.
fn explanation(events: &[Event], service: Target, began: Nanos) -> (Vec<Reason>, Option<Target>) {
    let until = began.plus(EXPLAINED_BY);
    let first = events.iter().filter(|event| event.service == service && (began..until).contains(&event.at));
    let first: Vec<&Event> = first.collect();
    let mut explanation = Explanation::default();
    for event in &first {
        let causes = event.reasons.iter().map(|reason| Cause::of(&reason.column, reason.pairs(), reason.share));
        explanation.add(event.ratio(), causes);
    }
    let part = |event: &Event, reason: &Reason| reason.share * event.ratio().powi(2);
    let shown = |column: &str| {
        let reasons = first.iter().flat_map(|event| event.reasons.iter().map(|reason| (part(event, reason), reason)));
        let reasons = reasons.filter(|(_, reason)| reason.column == column);
        let largest = reasons.reduce(|largest, other| if other.0 > largest.0 { other } else { largest });
        largest.map(|(_, reason)| reason.clone())
    };
    let top = explanation.top().into_iter();
    let top = top.filter_map(|(column, share)| Some(Reason { share, ..shown(column)? })).collect();
    (top, explanation.peer().and_then(Target::named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Service;
    use crate::judge::example::{event, reason};

    #[test]
    fn an_alarm_lasts_from_its_beginning_to_its_end() {
        let events = [
            event(Service::Cart, 100, 1.2, Episode::Began),
            event(Service::Store, 150, 1.1, Episode::Began),
            event(Service::Cart, 200, 3.0, Episode::On),
            event(Service::Cart, 300, 0.4, Episode::Ended),
        ];

        let alarms = alarms(&events);

        assert_eq!(alarms.len(), 2);
        assert_eq!(alarms[0].service, Service::Cart);
        assert_eq!((alarms[0].began, alarms[0].ended), (Nanos::from_millis(100), Some(Nanos::from_millis(300))));
        assert_eq!(alarms[0].peak, 3.0);
        assert!(alarms[1].ended.is_none());
        assert!(alarms[0].covers(Nanos::from_millis(299)) && !alarms[0].covers(Nanos::from_millis(300)));
    }

    #[test]
    fn an_alarm_whose_beginning_was_lost_is_one_all_the_same() {
        let events = [event(Service::Cart, 100, 2.0, Episode::On), event(Service::Cart, 200, 2.0, Episode::On)];

        assert_eq!(alarms(&events).len(), 1);
    }

    #[test]
    fn an_alarm_that_begins_while_one_is_active_is_another() {
        let events = [
            event(Service::Cart, 100, 4.0, Episode::Began),
            event(Service::Cart, 200, 4.0, Episode::On),
            event(Service::Cart, 300, 5.0, Episode::Began),
            event(Service::Cart, 400, 0.4, Episode::Ended),
        ];

        let times: Vec<_> = alarms(&events).iter().map(|alarm| (alarm.began, alarm.ended)).collect();

        let [first, second, end] = [100, 300, 400].map(Nanos::from_millis);
        assert_eq!(times, [(first, Some(second)), (second, Some(end))]);
    }

    #[test]
    fn silence_is_an_alarm_beside_that_of_the_score() {
        let silence = Event { silent: true, ..event(Service::Payment, 200, 0.0, Episode::Began) };
        let events = [event(Service::Payment, 100, 2.0, Episode::Began), silence];

        let alarms = alarms(&events);

        assert_eq!(alarms.iter().map(|alarm| alarm.silent).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn silence_is_over_with_the_first_verdict_that_is_not_silent() {
        let silence = Event { silent: true, ..event(Service::Payment, 200, 0.0, Episode::Began) };
        let events = [
            silence,
            event(Service::Payment, 900, 30.0, Episode::Ended),
            event(Service::Payment, 1000, 20.0, Episode::Began),
        ];

        let alarms = alarms(&events);

        assert_eq!(alarms.len(), 2);
        assert_eq!(alarms[0].ended, Some(Nanos::from_millis(900)));
        assert!(!alarms[1].silent && alarms[1].ended.is_none());
    }

    #[test]
    fn the_first_second_explains_an_alarm_by_what_it_adds_up_to() {
        let mut events = vec![
            event(Service::Cart, 100, 2.0, Episode::Began),
            event(Service::Cart, 200, 4.0, Episode::On),
            event(Service::Cart, 1200, 9.0, Episode::On),
        ];
        events[0].reasons = vec![reason("a", 0.9, 1.0), reason("b", 0.1, 1.0)];
        events[1].reasons = vec![reason("b", 0.5, 7.0), reason("c", 0.3, 1.0)];
        events[2].reasons = vec![reason("later", 1.0, 1.0)];

        let top = &alarms(&events)[0].top;

        let columns: Vec<_> = top.iter().map(|reason| reason.column.as_str()).collect();
        assert_eq!(columns, ["b", "c", "a"]);
        assert_eq!(top[0].seen, 7.0, "what is shown is the moment at which it was largest");
        assert!((top[0].share - (0.4 + 8.0) / 20.0).abs() < 1e-12);
    }
}
