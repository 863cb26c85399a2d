//! Addresses of incidents by numbers, so that each exemplar needs four bytes for its own.
//!
//! *Memory*: the newest [`MOST`] addresses of at most [`LONGEST`] bytes; an exemplar whose incident is older names
//! none.

use core::num::NonZeroU32;
use std::collections::VecDeque;

/// Addresses that are kept.
const MOST: usize = 64;
/// Bytes of an address; longer ones get no number.
const LONGEST: usize = 300;

/// The newest addresses.
#[derive(Debug, Default)]
pub(crate) struct NumberedIncidents {
    /// The number of the first one is one more than that of those which were dropped.
    dropped: u32,
    addresses: VecDeque<Box<str>>,
}

impl NumberedIncidents {
    /// The number of the incident at `address`; `None` if that is empty, or too long.
    pub(crate) fn number(&mut self, address: &str) -> Option<NonZeroU32> {
        if address.is_empty() || address.len() > LONGEST {
            return None;
        }
        // The newest is asked for most.
        let known = self.addresses.iter().rposition(|known| **known == *address);
        let place = known.unwrap_or_else(|| {
            if self.addresses.len() >= MOST {
                self.addresses.pop_front();
                self.dropped = self.dropped.saturating_add(1);
            }
            self.addresses.push_back(address.into());
            self.addresses.len() - 1
        });
        NonZeroU32::new(self.dropped.checked_add(1)?.checked_add(place as u32)?)
    }

    /// The address of the incident with this number, if it is still kept.
    pub(crate) fn address(&self, number: NonZeroU32) -> Option<&str> {
        let place = number.get().checked_sub(1)?.checked_sub(self.dropped)?;
        self.addresses.get(place as usize).map(|address| &**address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_keeps_its_number_until_newer_ones_have_taken_its_place() {
        let mut incidents = NumberedIncidents::default();
        let first = incidents.number("node-1/20261127-064215-123").unwrap();
        let second = incidents.number("node-1/20261127-064215-124").unwrap();
        assert_eq!(incidents.number("node-1/20261127-064215-123"), Some(first));
        assert_eq!(incidents.address(second), Some("node-1/20261127-064215-124"));

        let newest = (0..MOST).fold(second, |_, number| incidents.number(&number.to_string()).unwrap());

        assert_eq!((incidents.address(first), incidents.address(second)), (None, None));
        assert_eq!(incidents.address(newest), Some("63"));
        assert_eq!((incidents.number(""), incidents.number(&"x".repeat(301))), (None, None));
    }
}
