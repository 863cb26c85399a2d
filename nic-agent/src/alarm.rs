//! The alarm of an LMAP, whatever its cause.

use wire::control::Episode;

/// Whether the LMAP is in alarm: its detector is, or one of its replicas is silent. Hooks get one sequence of `Began`,
/// `On` …, `Ended`, with another `Began` for what is new in an alarm that is on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm(bool);

impl Alarm {
    /// `another`: the detector began another episode within the one that is on.
    pub(crate) fn step(&mut self, inside: bool, another: bool) -> Episode {
        match (core::mem::replace(&mut self.0, inside), inside) {
            (false, false) => Episode::Quiet,
            (false, true) => Episode::Began,
            (true, true) if another => Episode::Began,
            (true, true) => Episode::On,
            (true, false) => Episode::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_begins_once_and_ends_once() {
        let mut alarm = Alarm::default();

        let episodes: Vec<_> = [false, true, true, true, false, false].map(|inside| alarm.step(inside, false)).into();

        assert_eq!(
            episodes,
            [Episode::Quiet, Episode::Began, Episode::On, Episode::On, Episode::Ended, Episode::Quiet]
        );
    }

    #[test]
    fn another_cause_begins_in_an_alarm_that_is_on() {
        let mut alarm = Alarm::default();

        let episodes =
            [(true, false), (true, true), (true, false)].map(|(inside, another)| alarm.step(inside, another));

        assert_eq!(episodes, [Episode::Began, Episode::Began, Episode::On]);
    }
}
