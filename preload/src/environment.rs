//! The only module that reads the environment: once, before the program begins. Some clear it then (nginx).

use std::path::PathBuf;
use std::sync::OnceLock;

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Environment {
    /// `UVIEW_PRELOAD=off`: do nothing.
    pub(crate) off: bool,
    /// `UVIEW_PRELOAD=traffic`: somebody else measures the processes.
    pub(crate) traffic_only: bool,
    /// `UVIEW_SERVICE`, or `OTEL_SERVICE_NAME`.
    service: Option<String>,
    /// `UVIEW_SOCKET`: the agent's socket.
    pub(crate) socket: Option<PathBuf>,
}

static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

/// The environment as it was when the program began.
#[expect(clippy::disallowed_methods, reason = "the program is not ours: only the environment reaches this library")]
pub(crate) fn get() -> &'static Environment {
    ENVIRONMENT.get_or_init(|| {
        let switch = std::env::var_os("UVIEW_PRELOAD");
        let text = |key| std::env::var(key).ok().filter(|value| !value.is_empty());
        Environment {
            off: switch.as_ref().is_some_and(|value| value == "off"),
            traffic_only: switch.as_ref().is_some_and(|value| value == "traffic"),
            socket: std::env::var_os("UVIEW_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from),
            service: text("UVIEW_SERVICE").or_else(|| text("OTEL_SERVICE_NAME")),
        }
    })
}

impl Environment {
    /// The service's name: as the environment says, else the program's.
    pub(crate) fn service(&self) -> String {
        let program = || std::fs::read_to_string("/proc/self/comm").unwrap_or_else(|_| "unknown".to_owned());
        let name = self.service.clone().unwrap_or_else(program);
        let letter = |c: char| if c.is_ascii_alphanumeric() || "_.-/:".contains(c) { c } else { '-' };
        name.trim().chars().map(letter).take(100).collect()
    }
}
