//! Frames on a stream socket: a length as four bytes, little endian, then that many bytes. Pure: bytes in, frames out.

/// The largest frame: 1 MiB, about 8,000 series.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
const LENGTH_BYTES: usize = 4;

/// An announced frame is too long. The next frame cannot be found: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is announced, at most {MAX_FRAME_BYTES} are allowed")]
pub struct FrameError(pub usize);

/// Appends `message` as one frame to `out`.
///
/// # Errors
///
/// [`FrameError`] if it is longer than [`MAX_FRAME_BYTES`]; `out` is left as it was.
pub fn encode(message: &impl prost::Message, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = message.encoded_len();
    if length > MAX_FRAME_BYTES {
        return Err(FrameError(length));
    }
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&message.encode_to_vec());
    Ok(())
}

/// Splits a stream into frames. Holds at most one frame and the bytes pushed last.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

impl Frames {
    /// Appends bytes from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame without its length; `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if a longer one is announced than is allowed, before it is stored.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.taken + LENGTH_BYTES;
        self.taken = start + length;
        Ok(Some(&self.bytes[start..self.taken]))
    }

    /// Bytes of an incomplete frame.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::registration::SlotRun;

    fn run(slots: u32) -> SlotRun {
        SlotRun { region: 1, first_slot: 2, slots }
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_however_the_stream_is_cut(lengths in prop::collection::vec(0_u32..1000, 0..20), cut in 1_usize..50) {
            let mut stream = Vec::new();
            for &length in &lengths {
                encode(&run(length), &mut stream).unwrap();
            }

            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for part in stream.chunks(cut) {
                frames.push(part);
                while let Some(frame) = frames.next_frame().unwrap() {
                    let message: SlotRun = prost::Message::decode(frame).unwrap();
                    seen.push(message.slots);
                }
            }

            prop_assert_eq!(seen, lengths);
            prop_assert_eq!(frames.pending(), 0);
        }

        #[test]
        fn any_bytes_are_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut frames = Frames::default();
            frames.push(&bytes);

            while let Ok(Some(_)) = frames.next_frame() {}

            prop_assert!(frames.pending() <= bytes.len());
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_by_its_length_alone() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());

        assert_eq!(frames.next_frame(), Err(FrameError(u32::MAX as usize)));
    }
}
