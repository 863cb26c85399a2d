//! `uview kubectl model`: a model of this machine for the agent of a node, which is the input of `uview model set` in
//! its container.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use super::{Agent, KubectlArgs, exit_of, not_run, parse_or_help};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{model, output};

/// Give the agent of a node a model for a service, from a file of this machine, or take it back
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "uview kubectl model", no_binary_name = true)]
struct NodeModelArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Give the agent of a node a model for a service, which judges from the next row on
    Set {
        /// The service, as `uview kubectl status` lists it
        service: String,
        /// The model file, on this machine
        file: PathBuf,
        /// Runtime directory of the host agent, in its container [default: that of the only agent there]
        #[arg(long, value_name = "DIR")]
        runtime_dir: Option<String>,
    },
    /// Take back the model that a service was given: it learns by itself again
    Unset {
        /// The service, as `uview kubectl status` lists it
        service: String,
        /// Runtime directory of the host agent, in its container [default: that of the only agent there]
        #[arg(long, value_name = "DIR")]
        runtime_dir: Option<String>,
    },
}

impl Command {
    /// The words of `uview` in the agent's container.
    fn words(&self) -> Vec<&str> {
        let (words, runtime_dir) = match self {
            Self::Set { service, runtime_dir, .. } => (vec!["model", "set", service, "-"], runtime_dir),
            Self::Unset { service, runtime_dir } => (vec!["model", "unset", service], runtime_dir),
        };
        let directory = runtime_dir.iter().flat_map(|dir| ["--runtime-dir", dir.as_str()]);
        words.into_iter().chain(directory).collect()
    }
}

impl KubectlArgs {
    /// Gives a model, or takes one back, as the words after `model` say.
    pub(super) fn model(&self) -> Result<Exit, Failure> {
        let words = self.command.get(1..).unwrap_or_default();
        let Some(args) = parse_or_help::<NodeModelArgs>(words, "change the model of a service of a node")? else {
            return Ok(Exit::Fine);
        };
        let what = match &args.command {
            Command::Set { service, .. } => format!("give {service} a model"),
            Command::Unset { service, .. } => format!("take the model of {service} back"),
        };
        if let Command::Set { file, .. } = &args.command {
            // What is no model is refused here, before anything is sent.
            model::read(file, &what)?;
        }
        let agents = self.choose(self.agents(&what)?).map_err(|why| Failure::to(&what).because(why))?;
        let mut result = Exit::Fine;
        for agent in &agents {
            if self.all {
                output::print(&format!("node {}\n", agent.node))?;
            }
            let exit = self.change_model(agent, &args.command, &what)?;
            if result == Exit::Fine {
                result = exit;
            }
        }
        Ok(result)
    }

    fn change_model(&self, agent: &Agent, command: &Command, what: &str) -> Result<Exit, Failure> {
        let (options, input): (&[&str], Stdio) = match command {
            Command::Set { file, .. } => {
                let refused =
                    |error: &std::io::Error| Failure::to(what).because(format!("{}: {error}", file.display()));
                (&["--stdin"], File::open(file).map_err(|error| refused(&error))?.into())
            }
            Command::Unset { .. } => (&[], Stdio::null()),
        };
        let mut exec = self.exec(agent, options);
        let status = exec.args(command.words()).stdin(input).status().map_err(|error| not_run(what, &error))?;
        Ok(exit_of(status))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Result<NodeModelArgs, Failure> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Ok(parse_or_help(&words, "change a model")?.unwrap())
    }

    #[test]
    fn the_file_stays_here_and_its_content_is_the_input_of_the_command_there() {
        NodeModelArgs::command().debug_assert();

        let words = |line: &str| parsed(line).unwrap().command.words().join(" ");
        assert_eq!(words("set shop/payment a.model"), "model set shop/payment -");
        let elsewhere = words("set shop/payment a.model --runtime-dir /run/a");
        assert_eq!(elsewhere, "model set shop/payment - --runtime-dir /run/a");
        assert_eq!(words("unset shop/payment"), "model unset shop/payment");
        for wrong in ["", "set", "set shop/payment", "show a.model", "unset a b"] {
            assert_eq!(parsed(wrong).unwrap_err().exit(), Exit::Usage, "{wrong}");
        }
    }
}
