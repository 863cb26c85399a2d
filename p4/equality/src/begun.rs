//! Which interval it is: `shared/begun.p4`.

use crate::frames::Captured;
use crate::registers::Registers;

/// Ethernet's kind of a frame that begins an interval (`shared/headers.p4`).
pub const SYNC: [u8; 2] = [0x88, 0xb6];

/// The number in a frame that begins an interval.
#[must_use]
pub fn begins(captured: &Captured) -> Option<u32> {
    let behind = captured.bytes.get(12..)?.strip_prefix(&SYNC)?;
    behind.first_chunk::<4>().map(|number| u32::from_be_bytes(*number))
}

/// The intervals that began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begun {
    interval: u32,
    count: usize,
}

impl Begun {
    /// Looks at a frame. Returns whether it begins an interval.
    pub fn take(&mut self, captured: &Captured) -> bool {
        let Some(number) = begins(captured) else { return false };
        let later = number.wrapping_sub(self.interval);
        let begins = later != 0 && later < 1 << 31;
        if begins {
            self.interval = number;
            self.count += 1;
        }
        begins
    }

    /// Intervals that began.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Which set of registers the interval has.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.count % 2
    }

    /// Adds the registers `interval` and `begun`.
    pub fn put(&self, registers: &mut Registers) {
        registers.insert("interval".to_owned(), vec![self.interval.into()]);
        registers.insert("begun".to_owned(), vec![self.count as u64]);
    }
}
