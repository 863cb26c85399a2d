//! Settings of an LMAP that are declared as a whole, by an object of Kubernetes: what they do not say is as the
//! configuration says.

use wire::control::DetectorSpec;
use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::Nanos;

use super::interval_choice::IntervalChange;
use super::lmap_options::MemberChoices;
use super::operator_error::OperatorError;
use super::selection::Choice;
use super::state::ControlPlane;

/// All that is declared of one LMAP.
#[derive(Clone, Debug, Default)]
pub struct DeclaredSettings {
    /// Its interval, and how it is fetched while something seems wrong.
    pub interval: IntervalChange,
    /// Settings of its detector. Others than before begin to learn anew.
    pub detector: DetectorSpec,
    /// The only metrics that are watched; all without any.
    pub choices: Vec<Choice>,
    /// The services of an LMAP over several; empty: it is a service's own.
    pub members: Vec<MemberChoices>,
}

impl ControlPlane {
    /// The LMAP by the name of a service, or by its own.
    #[must_use]
    pub fn lmap_of(&self, name: &ServiceName) -> Option<LmapId> {
        self.services.get(name)?.lmap
    }

    /// Sets all that can be declared of an LMAP. Unlike what an operator sets, it does not keep the LMAP of a service
    /// beyond its last replica.
    ///
    /// # Errors
    ///
    /// Those of [`Self::set_interval`], and of [`Self::config_lmap`] or [`Self::config_members`]. Then it is as before.
    pub fn set_declared(&mut self, now: Nanos, id: LmapId, declared: DeclaredSettings) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let (interval, usual, by) = (lmap.interval, lmap.usual_interval, lmap.interval_by.clone());
        let (fastest, pinned) = (lmap.fastest, lmap.pinned);
        self.set_interval(now, id, &declared.interval)?;
        let chosen = if declared.members.is_empty() {
            self.config_lmap(now, id, declared.choices)
        } else {
            self.config_members(now, id, declared.members)
        };
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.pinned = pinned;
            match &chosen {
                Ok(()) => lmap.detector = declared.detector,
                Err(_) => {
                    (lmap.interval, lmap.usual_interval, lmap.interval_by, lmap.fastest) =
                        (interval, usual, by, fastest);
                }
            }
        }
        self.changed(id, now);
        chosen
    }
}
