//! `client-cases DRIVER [ARGUMENT…]` runs the list of cases with a driver, and says which case fails.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("client-cases DRIVER [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let rest: Vec<_> = arguments.collect();
    let driver = || {
        let mut command = Command::new(&program);
        command.args(&rest);
        command
    };
    match conformance::run(conformance::CASES, driver) {
        Ok(report) => {
            println!("{} cases hold", report.held.len());
            report.unsupported.iter().for_each(|name| println!("not in this language: {name}"));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
