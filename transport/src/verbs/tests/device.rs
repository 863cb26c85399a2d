//! What only a real device can show.
