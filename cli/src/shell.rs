//! What a shell and `man` know of the command: completions and manual pages, from the definition of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Arguments, output};

/// How to install completions, after the help of `uview completions`.
pub const COMPLETIONS_HELP: &str = "\
Install them, and start a new shell:
  bash  uview completions bash > ~/.local/share/bash-completion/completions/uview
  zsh   uview completions zsh > DIR/_uview, where DIR is in $fpath
  fish  uview completions fish > ~/.config/fish/completions/uview.fish";

/// Arguments of `uview completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell that is to complete
    shell: Shell,
}

/// Arguments of `uview man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder to write the pages to, such as /usr/local/share/man/man1; it is made if it is not there
    #[arg(value_name = "DIR", required_unless_present = "markdown")]
    into: Option<PathBuf>,
    /// Print one page of Markdown instead
    #[arg(long, conflicts_with = "into")]
    markdown: bool,
}

/// The script for `shell`, without the subcommands that only the demo calls: some generators show hidden ones, too.
fn script(shell: Shell) -> String {
    let all = Arguments::command();
    let name = "uview";
    let shown = all.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Command::new(name).subcommands(shown), name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints the completions for a shell.
///
/// # Errors
///
/// [`Failure`] if they cannot be printed.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    output::print(&script(args.shell))?;
    Ok(Exit::Fine)
}

/// Writes `uview.1` and a page for each subcommand, and prints where they are; or prints one page of Markdown.
///
/// # Errors
///
/// [`Failure`] if the folder or a page cannot be written.
pub fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let Some(into) = &args.into else {
        output::print(&markdown())?;
        return Ok(Exit::Fine);
    };
    let failed =
        |path: &Path, error: &std::io::Error| Failure::to(format!("write {}", path.display())).caused_by(error);
    fs::create_dir_all(into).map_err(|error| failed(into, &error))?;
    clap_mangen::generate_to(Arguments::command(), into).map_err(|error| failed(into, &error))?;
    output::print(&format!("{}\n", into.display()))?;
    Ok(Exit::Fine)
}

/// The help of all that people call, as a page of the book.
fn markdown() -> String {
    let mut all = Arguments::command().term_width(100);
    // What operators install does not have it.
    if all.find_subcommand("eval").is_some() {
        all = all.mut_subcommand("eval", |command| command.hide(true));
    }
    all.build();
    let mut sections = Vec::new();
    add_sections(&mut all, &mut sections);
    let section = |(name, help): &(String, String)| format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    let head = "# Command line\n\nWhat `--help` says. This page is made by `uview man --markdown`.\n".to_owned();
    head + &sections.iter().map(section).collect::<String>()
}

fn add_sections(command: &mut Command, sections: &mut Vec<(String, String)>) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    sections.push((name, lines.join("\n")));
    let shown = command.get_subcommands_mut().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    shown.for_each(|inner| add_sections(inner, sections));
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_completes_what_people_call_and_no_more() {
        for shell in Shell::value_variants() {
            let script = script(*shell);

            assert!(script.contains("receipt") && script.contains("canary"), "{shell}");
            assert!(!script.contains("Run one service of the demo"), "{shell} knows what only the demo calls");
            assert_eq!(wire::printable::lines(&script), script, "{shell}: printing would change it");
        }
    }

    #[test]
    fn the_page_of_the_command_line_is_what_help_says() {
        let page = include_str!("../../docs/look-up/command-line.md");

        let made = markdown();

        let differs = page.lines().zip(made.lines()).find(|(written, made)| written != made);
        assert!(page == made, "write it by `uview man --markdown`: {differs:?}");
        assert!(!page.contains("what only the demo calls") && page.contains("## uview replay\n"));
    }

    #[test]
    fn each_subcommand_has_a_page() {
        let folder = tempfile::tempdir().unwrap();

        man(&ManArgs { into: Some(folder.path().join("share/man1")), markdown: false }).unwrap();

        let page = |name: &str| fs::read_to_string(folder.path().join("share/man1").join(name));
        assert!(page("uview.1").unwrap().contains("uview\\-status(1)"));
        assert!(page("uview-replay.1").unwrap().contains("a step of more than 1.5 intervals is a gap"));
        assert!(page("uview-child.1").is_err(), "only the demo calls it");
    }
}
