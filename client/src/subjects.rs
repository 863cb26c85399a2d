//! What values of metrics are about, and what of that the agent does not know yet.

use std::collections::BTreeMap;

use wire::name::MetricName;
use wire::registration::{MAX_SUBJECTS, ServiceMessage, Subject};

/// The latest subject of each metric.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    latest: BTreeMap<MetricName, KnownSubject>,
    /// The agent understands subjects.
    taken: bool,
}

#[derive(Debug)]
struct KnownSubject {
    subject: Subject,
    sent: bool,
}

impl Subjects {
    /// Takes a subject. Returns whether the agent has to be told. Metrics beyond the limit have none.
    pub(crate) fn set(&mut self, subject: Subject) -> bool {
        if let Some(known) = self.latest.get_mut(&subject.metric) {
            if known.subject == subject {
                return false;
            }
            *known = KnownSubject { subject, sent: false };
        } else if self.latest.len() < MAX_SUBJECTS {
            self.latest.insert(subject.metric.clone(), KnownSubject { subject, sent: false });
        } else {
            return false;
        }
        self.taken
    }

    /// The latest subject of a metric.
    pub(crate) fn get(&self, metric: &str) -> Option<String> {
        let mut known = self.latest.values().map(|known| &known.subject);
        let subject = known.find(|subject| subject.metric.as_str() == metric)?;
        (!subject.text().is_empty()).then(|| subject.text().to_owned())
    }

    /// The agent has welcomed this service.
    pub(crate) fn welcomed(&mut self, taken: bool) {
        self.taken = taken;
        self.latest.values_mut().for_each(|known| known.sent = false);
    }

    /// The connection is lost, or a new one begins.
    pub(crate) const fn closed(&mut self) {
        self.taken = false;
    }

    /// All subjects that the agent does not know.
    pub(crate) fn next_message(&mut self) -> Option<ServiceMessage> {
        let unsent = self.latest.values_mut().filter(|known| self.taken && !known.sent).map(|known| {
            known.sent = true;
            known.subject.clone()
        });
        let subjects: Vec<_> = unsent.collect();
        (!subjects.is_empty()).then_some(ServiceMessage::Subjects(subjects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(metric: &str, text: &str) -> Subject {
        Subject::new(MetricName::new(metric).unwrap(), text)
    }

    #[test]
    fn only_what_has_changed_is_sent_and_everything_to_a_new_agent() {
        let mut subjects = Subjects::default();
        assert!(!subjects.set(subject("a", "10.0.0.1")) && subjects.next_message().is_none(), "nobody listens");

        subjects.welcomed(true);
        assert_eq!(subjects.next_message(), Some(ServiceMessage::Subjects(vec![subject("a", "10.0.0.1")])));
        assert!(!subjects.set(subject("a", "10.0.0.1")) && subjects.next_message().is_none());
        assert!(subjects.set(subject("b", "x")) && subjects.set(subject("a", "10.0.0.2")));
        let both = vec![subject("a", "10.0.0.2"), subject("b", "x")];
        assert_eq!(subjects.next_message(), Some(ServiceMessage::Subjects(both.clone())));

        subjects.closed();
        assert!(subjects.next_message().is_none());
        subjects.welcomed(true);
        assert_eq!(subjects.next_message(), Some(ServiceMessage::Subjects(both)));
        subjects.welcomed(false);
        assert!(!subjects.set(subject("a", "c")) && subjects.next_message().is_none(), "an agent of before");
    }

    #[test]
    fn so_many_metrics_have_a_subject_and_no_more() {
        let mut subjects = Subjects::default();
        subjects.welcomed(true);
        for number in 0..20 {
            subjects.set(subject(&format!("m{number}"), "x"));
        }

        let Some(ServiceMessage::Subjects(sent)) = subjects.next_message() else { panic!("some are sent") };
        assert_eq!(sent.len(), MAX_SUBJECTS);
    }
}
