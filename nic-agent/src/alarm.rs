//! The alarm of an LMAP, whatever its cause.

use wire::control::Episode;

/// Whether the LMAP is in alarm: its detector is, or one of its replicas is silent. Hooks get one sequence of `Began`,
/// `On` …, `Ended`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm(bool);

impl Alarm {
    pub(crate) fn step(&mut self, inside: bool) -> Episode {
        match (core::mem::replace(&mut self.0, inside), inside) {
            (false, false) => Episode::Quiet,
            (false, true) => Episode::Began,
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

        let episodes: Vec<_> = [false, true, true, true, false, false].map(|inside| alarm.step(inside)).into();

        assert_eq!(
            episodes,
            [Episode::Quiet, Episode::Began, Episode::On, Episode::On, Episode::Ended, Episode::Quiet]
        );
    }
}
