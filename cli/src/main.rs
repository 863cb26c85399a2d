//! `uview`: reads environment and arguments, prints errors, and returns the exit code.

use std::process::ExitCode;

use clap::Parser as _;
use uview_cli::exit::Exit;
use uview_cli::{Arguments, Display, Environment, kubectl, output};

#[expect(clippy::disallowed_methods, reason = "the environment is read here and nowhere else")]
fn environment() -> Environment {
    let has_display =
        ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|of| !of.is_empty()));
    Environment {
        runtime_dir: std::env::var_os("UVIEW_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(Into::into),
        no_color: std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
        display: if has_display { Display::There } else { Display::None },
        program: std::env::current_exe().ok(),
        path: std::env::var_os("PATH"),
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse_from(kubectl::as_plugin(std::env::args_os().collect())) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print(); // help or error message; nothing can be done if printing fails
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Fine.into() };
        }
    };
    match uview_cli::run(arguments, environment()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::print_stderr(&failure.to_string());
            failure.exit().into()
        }
    }
}
