//! The state of an LMAP, as workers state it and as the operators' API names it.

use crate::proto::{control, operators};

/// State of an LMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Too few rows were seen to fit a model.
    Learning,
    /// It has a model and judges every row.
    Armed,
    /// In alarm for so long that normal has probably changed: check, or fit again.
    Drifted,
    /// The heartbeat or the data of a replica stopped; the verdict names the replica.
    Silent,
}

impl State {
    const ALL: [Self; 4] = [Self::Learning, Self::Armed, Self::Drifted, Self::Silent];

    /// Its name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Armed => "armed",
            Self::Drifted => "drifted",
            Self::Silent => "silent",
        }
    }

    /// The state with a name in output; `None` for what the host agent says of an LMAP without one, such as "waiting".
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether an LMAP in this state judges rows. One that has drifted still does. A silent one has none to judge.
    #[must_use]
    pub const fn judges(self) -> bool {
        matches!(self, Self::Armed | Self::Drifted)
    }
}

impl operators::LmapStatus {
    /// Whether the LMAP judges rows, by its state.
    #[must_use]
    pub fn judges(&self) -> bool {
        State::named(&self.state).is_some_and(State::judges)
    }
}

impl operators::HookEvent {
    /// Whether the event's LMAP judges rows, by its state.
    #[must_use]
    pub fn judges(&self) -> bool {
        State::named(&self.state).is_some_and(State::judges)
    }
}

impl From<State> for control::State {
    fn from(state: State) -> Self {
        match state {
            State::Learning => Self::Learning,
            State::Armed => Self::Armed,
            State::Drifted => Self::Drifted,
            State::Silent => Self::Silent,
        }
    }
}

impl From<control::State> for State {
    /// What is not known counts as learning: it raises no alarm.
    fn from(state: control::State) -> Self {
        match state {
            control::State::Unspecified | control::State::Learning => Self::Learning,
            control::State::Armed => Self::Armed,
            control::State::Drifted => Self::Drifted,
            control::State::Silent => Self::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_by_its_name_and_other_words_name_none() {
        for state in State::ALL {
            assert_eq!(State::named(state.name()), Some(state));
        }
        for word in ["", "waiting", "starting", "deleted", "followed", "Armed"] {
            assert_eq!(State::named(word), None, "{word}");
        }
    }

    #[test]
    fn rows_are_judged_by_an_lmap_that_is_armed_or_has_drifted() {
        let judging: Vec<_> = State::ALL.into_iter().filter(|state| state.judges()).collect();

        assert_eq!(judging, [State::Armed, State::Drifted]);
    }

    #[test]
    fn a_status_and_an_event_judge_as_their_state_does() {
        for (name, judges) in [("armed", true), ("drifted", true), ("silent", false), ("waiting", false)] {
            let state = name.to_owned();
            let status = operators::LmapStatus { state: state.clone(), ..Default::default() };

            assert_eq!(status.judges(), judges, "{name}");
            assert_eq!(operators::HookEvent { state, ..Default::default() }.judges(), judges, "{name}");
        }
    }
}
