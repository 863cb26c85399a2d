//! The frames that begin intervals in a switch (`p4/shared/begun.p4`). They pass both ends on the packets' path, so
//! that both have the same packets in an interval, whatever their clocks show.

/// Ethernet's kind of such a frame, one for local experiments (IEEE 802).
pub const KIND: [u8; 2] = [0x88, 0xb6];
/// The shortest frame of Ethernet.
const BYTES: usize = 60;
/// Everybody: a switch without a program for it passes it on as the path's packets.
const RECEIVER: [u8; 6] = [0xff; 6];
/// An address of nobody, locally administered.
const SENDER: [u8; 6] = *b"\x02uview";
/// A number is later than the current one if it is ahead by at most this.
const AHEAD: u32 = u32::MAX / 2;

/// The frame that begins the interval of this number.
#[must_use]
pub fn frame(number: u32) -> [u8; BYTES] {
    let mut frame = [0; BYTES];
    let bytes = RECEIVER.into_iter().chain(SENDER).chain(KIND).chain(number.to_be_bytes());
    frame.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    frame
}

/// The numbers of the frames that begin an interval of the clock, to be sent in this order.
///
/// A switch ignores numbers that are not later than its own. One that has just started is at 0, from where half of all
/// numbers are earlier ones: the first frame leads it to where the second one is later, and other switches ignore it.
/// From the last number, which is too far for that, it waits for the next interval.
#[must_use]
pub const fn numbers(interval: u64) -> [u32; 2] {
    let number = interval as u32;
    [number.wrapping_sub(AHEAD), number]
}

/// The interval of the clock that has this number, nearest to another one.
#[must_use]
pub fn interval(number: u32, near: u64) -> u64 {
    let ahead = number.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a switch at `current` does with the frames of an interval.
    fn after(current: u32, interval: u64) -> u32 {
        numbers(interval).into_iter().fold(current, |current, number| {
            let later = number.wrapping_sub(current);
            if later != 0 && later >> 31 == 0 { number } else { current }
        })
    }

    #[test]
    fn a_switch_that_has_just_started_and_one_in_the_interval_before_both_follow() {
        for interval in [1, 5, 1 << 31, (1 << 31) - 1, (1 << 31) + 1, 3 << 30, (1 << 32) - 2, 1 << 32, 17_000_000_000] {
            let number = interval as u32;
            assert_eq!(after(0, interval), number, "{interval}");
            assert_eq!(after(number.wrapping_sub(1), interval), number, "{interval}");
            assert_eq!(after(number, interval), number, "{interval} again");
            assert_eq!(after(number.wrapping_add(1), interval), number.wrapping_add(1), "{interval} is late");
        }
    }

    #[test]
    fn a_frame_has_its_kind_and_its_number_behind_the_addresses() {
        let frame = frame(0x0102_0304);

        assert_eq!(frame[..20], *b"\xff\xff\xff\xff\xff\xff\x02uview\x88\xb6\x01\x02\x03\x04\x00\x00");
        assert_eq!(frame[18..], [0; 42]);
    }

    #[test]
    fn the_interval_of_a_number_is_the_nearest_one() {
        for (near, ahead) in [(17_000_000_000_u64, -2), (17_000_000_000, 0), (1 << 32, -1), ((1 << 32) - 1, 1), (5, 3)]
        {
            let truth = near.saturating_add_signed(ahead);
            assert_eq!(interval(truth as u32, near), truth);
        }
        assert_eq!(interval(u32::MAX, 0), 0, "there is none before 1970");
    }
}
