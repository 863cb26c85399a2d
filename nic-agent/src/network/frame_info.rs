//! What is known of a frame besides its bytes.

/// Properties of a frame besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameInfo {
    /// A card or the kernel has merged it from several frames (TSO, GSO, GRO).
    pub(super) merged: bool,
}
