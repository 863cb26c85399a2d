//! One service's metrics analysis pipeline.
