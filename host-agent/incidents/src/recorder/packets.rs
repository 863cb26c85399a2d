//! Streams of packets while incidents go on.

use wire::proto::operators::Incident;

use super::Recorder;
use crate::streams::{self, StreamLook};

impl Recorder {
    /// The streams of packets among `names` that are worth a look: none while no incident is followed.
    #[must_use]
    pub fn wanted_streams<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let open: Vec<&Incident> =
            self.open.values().filter(|open| open.over.is_none()).map(|open| &open.record).collect();
        if open.is_empty() { Vec::new() } else { streams::wanted(names, &open) }
    }

    /// Adds what streams of packets say to each incident that goes on.
    pub fn streams(&mut self, looks: &[StreamLook<'_>]) {
        for open in self.open.values_mut().filter(|open| open.over.is_none()) {
            for look in looks {
                open.has_changed |= streams::add(&mut open.record, look);
            }
        }
    }
}
