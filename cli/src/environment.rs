//! What the environment says: read in `main.rs`, and passed to what needs it.

use std::ffi::OsString;
use std::path::PathBuf;

/// The environment of the process, read once in `main.rs`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The value of `UVIEW_RUNTIME_DIR`, unless it is empty.
    pub runtime_dir: Option<PathBuf>,
    /// Whether `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// Whether there is a display: `WAYLAND_DISPLAY` or `DISPLAY` is set and not empty.
    pub display: Display,
    /// The path of this binary, if the system knows it.
    pub program: Option<PathBuf>,
    /// The value of `PATH`: folders of programs.
    pub path: Option<OsString>,
}

/// Whether windows can be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// There is a display.
    There,
    /// There is none.
    #[default]
    None,
}
