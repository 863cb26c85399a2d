//! How a metric region looks in memory.
//!
//! A region is a file of whole pages that the service owns. Its first cache line is the header, the rest are 8-byte
//! slots, one atomic word each: a u64, an i64, or the bits of an f64. No value is wider than a word, so none can be
//! read torn.
//!
//! ```text
//! byte   0   magic "uVIEWmr1"        8   layout version (u64)
//!       16   generation (u64)       24   heartbeat (u64, counts up while the service lives,
//!                                                or the time of the last sample)
//!       32   reserved, zero         64   slot 0, slot 1, …
//! ```
//!
//! All words are in the byte order of the machine; the magic reveals a foreign one. The header is diagnostic only,
//! since an untrusted service writes it. The meaning of slots is defined by control messages, never by the region
//! itself.

use crate::id::Generation;
use crate::time::Nanos;

/// Bytes of a page; a region is a whole number of them.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of the header: the first cache line.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8;
/// The largest region that an agent accepts. A service with more metrics registers a second one.
pub const MAX_REGION_BYTES: usize = 16 << 20;
/// Value of the first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uVIEWmr1");
/// Version of the layout that this code writes. Earlier ones stay readable for a year.
pub const VERSION: u64 = 1;

/// Words of the header, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum HeaderWord {
    /// Always [`MAGIC`], which also shows the byte order.
    Magic = 0,
    /// Version of the layout: [`VERSION`].
    Version = 1,
    /// Raised by the service before and after it changes the meaning of slots.
    Generation = 2,
    /// Counts up while the service lives. Where control messages say so, it is a [time](sample_word) instead.
    Heartbeat = 3,
}

/// The heartbeat word of a region whose sampler tells [when it wrote](sample_word), and has not written yet.
pub const UNSAMPLED: u64 = 0;

/// The heartbeat word of values that were sampled at `time` of the sampler's clock: microseconds. It follows the word
/// `before`, from which it differs, whatever the clock says: a reader sees that there are new values.
#[must_use]
pub const fn sample_word(time: Nanos, before: u64) -> u64 {
    let micros = time.0 / 1_000;
    if micros > before { micros } else { before.wrapping_add(1) }
}

/// The time at which the values of a region with this heartbeat word were sampled, by [`sample_word`]; saturates.
#[must_use]
pub const fn sampled_at(word: u64) -> Nanos {
    Nanos::from_micros(word)
}

/// Index of a slot: slot 0 is the first word after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// Byte offset from the region's start.
    #[must_use]
    pub const fn offset(self) -> usize {
        HEADER_BYTES + self.0 as usize * SLOT_BYTES
    }

    /// Word offset from the region's start.
    #[must_use]
    pub const fn word(self) -> usize {
        self.offset() / SLOT_BYTES
    }
}

/// The size of a region: whole pages, at least one and at most [`MAX_REGION_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionSize(u32);

/// An invalid size of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a region of {0} bytes: it must be whole pages of {PAGE_BYTES} bytes, from one page to {MAX_REGION_BYTES} bytes"
)]
pub struct RegionSizeError(pub u64);

impl RegionSize {
    /// One page: 504 slots.
    pub const ONE_PAGE: Self = Self(PAGE_BYTES as u32);

    /// A region of `bytes`.
    ///
    /// # Errors
    ///
    /// [`RegionSizeError`] unless it is a whole number of pages, at least one and at most [`MAX_REGION_BYTES`].
    pub fn new(bytes: u64) -> Result<Self, RegionSizeError> {
        let whole = bytes.is_multiple_of(PAGE_BYTES as u64);
        if !(whole && 0 < bytes && bytes <= MAX_REGION_BYTES as u64) {
            return Err(RegionSizeError(bytes));
        }
        Ok(Self(bytes as u32))
    }

    /// The smallest region that has `slots`.
    ///
    /// # Errors
    ///
    /// [`RegionSizeError`] if that is more than [`MAX_REGION_BYTES`].
    pub fn for_slots(slots: u32) -> Result<Self, RegionSizeError> {
        let bytes = HEADER_BYTES as u64 + u64::from(slots) * SLOT_BYTES as u64;
        Self::new(bytes.next_multiple_of(PAGE_BYTES as u64))
    }

    /// Size in bytes, header included.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Size in words of 8 bytes, header included.
    #[must_use]
    pub const fn words(self) -> usize {
        self.bytes() / SLOT_BYTES
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(self) -> u32 {
        ((self.bytes() - HEADER_BYTES) / SLOT_BYTES) as u32
    }

    /// Whether the run of `count` slots from `first` on is inside.
    #[must_use]
    pub const fn holds(self, first: Slot, count: u32) -> bool {
        match first.0.checked_add(count) {
            Some(end) => end <= self.slots(),
            None => false,
        }
    }
}

/// Header of a region. Untrusted: only for display and comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of layout changes, counted by the service.
    pub generation: Generation,
    /// Counts up while the service lives, or is the time of the last sample.
    pub heartbeat: u64,
}

/// Why words are no header of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer words than a header has.
    #[error("{0} words are fewer than a header has")]
    Short(usize),
    /// Something else, or a machine with another byte order.
    #[error("the first word is {0:#018x}, not {MAGIC:#018x}")]
    Magic(u64),
    /// A layout of another release.
    #[error("layout version {0}, this release reads version {VERSION}")]
    Version(u64),
}

impl Header {
    /// Decodes the header from the first words of a fetched region.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the words are no header of a layout that this code knows.
    pub fn decode(words: &[u64]) -> Result<Self, HeaderError> {
        let [magic, version, generation, heartbeat, ..] = words else {
            return Err(HeaderError::Short(words.len()));
        };
        if *magic != MAGIC {
            return Err(HeaderError::Magic(*magic));
        }
        if *version != VERSION {
            return Err(HeaderError::Version(*version));
        }
        Ok(Self { generation: Generation(*generation), heartbeat: *heartbeat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_whole_pages_within_bounds() {
        assert_eq!(RegionSize::new(4096).unwrap().slots(), 504);
        for bytes in [0, 1, 4095, 4097, (16 << 20) + 4096, u64::MAX] {
            assert_eq!(RegionSize::new(bytes), Err(RegionSizeError(bytes)));
        }
        assert_eq!(RegionSize::for_slots(504).unwrap(), RegionSize::ONE_PAGE);
        assert_eq!(RegionSize::for_slots(505).unwrap().bytes(), 8192);
        assert!(RegionSize::for_slots(u32::MAX).is_err());
    }

    #[test]
    fn a_run_of_slots_must_lie_inside() {
        let size = RegionSize::ONE_PAGE;

        assert!(size.holds(Slot(0), 504));
        assert!(size.holds(Slot(503), 1));
        assert!(!size.holds(Slot(503), 2));
        assert!(!size.holds(Slot(u32::MAX), 2));
        assert_eq!(Slot(503).offset() + SLOT_BYTES, size.bytes());
    }

    #[test]
    fn the_word_of_a_sample_is_its_time_and_another_one_each_time() {
        let millis = Nanos::from_millis;

        assert_eq!(sample_word(millis(250), 0), 250_000);
        assert_eq!(sampled_at(sample_word(millis(250), 0)), millis(250));
        // Two samples within a microsecond, and a clock that stands still.
        assert_eq!((sample_word(millis(250), 250_000), sample_word(Nanos::ZERO, 0)), (250_001, 1));
        assert_eq!((sample_word(Nanos::ZERO, u64::MAX), sampled_at(u64::MAX)), (0, Nanos::NEVER));
    }

    #[test]
    fn a_header_of_something_else_is_named_by_what_was_found() {
        assert!(
            Header::decode(&[MAGIC, VERSION, 3, 9, 0]).is_ok_and(|h| h.generation == Generation(3) && h.heartbeat == 9)
        );
        assert_eq!(Header::decode(&[MAGIC]), Err(HeaderError::Short(1)));
        assert_eq!(Header::decode(&[1, VERSION, 0, 0]), Err(HeaderError::Magic(1)));
        assert_eq!(Header::decode(&[MAGIC, 99, 0, 0]), Err(HeaderError::Version(99)));
    }
}
