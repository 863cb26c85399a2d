//! One copy of the settings that many detectors have.
//!
//! A row reads some 400 bytes of its detector's settings. On a node of many LMAPs most of them are equal: as one copy
//! they stay in the first cache, as one for each LMAP they come from the third one in every round.

use std::sync::Arc;

use lmap::Settings;

/// Most settings that are remembered.
const MAX_KNOWN: usize = 16;

/// The latest settings of detectors that differ.
#[derive(Debug, Default)]
pub(super) struct SharedSettings {
    /// The oldest first.
    known: Vec<Arc<Settings>>,
}

impl SharedSettings {
    /// `settings`: the copy that there is already, if one of the latest is equal. Allocates otherwise.
    pub(super) fn share(&mut self, settings: Settings) -> Arc<Settings> {
        if let Some(known) = self.known.iter().find(|known| ***known == settings) {
            return Arc::clone(known);
        }
        if self.known.len() == MAX_KNOWN {
            self.known.remove(0);
        }
        let settings = Arc::new(settings);
        self.known.push(Arc::clone(&settings));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_stride(stride: u32) -> Settings {
        Settings { stride, ..Settings::live(1.0) }
    }

    #[test]
    fn equal_settings_are_one_and_others_are_not() {
        let mut shared = SharedSettings::default();

        let (first, other, again) =
            (shared.share(of_stride(1)), shared.share(of_stride(2)), shared.share(of_stride(1)));

        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        assert_eq!((&*first, &*other), (&of_stride(1), &of_stride(2)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut shared = SharedSettings::default();
        let first = shared.share(of_stride(1));

        let latest: Vec<_> = (2..=1 + MAX_KNOWN as u32).map(|stride| shared.share(of_stride(stride))).collect();

        assert!(Arc::ptr_eq(&latest[0], &shared.share(of_stride(2))), "it is the oldest that is known");
        assert!(!Arc::ptr_eq(&first, &shared.share(of_stride(1))));
    }
}
