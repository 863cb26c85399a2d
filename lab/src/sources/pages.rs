//! Runs the lines of pages of the book, as they are written, each in a folder of its own: those of docs/start until the
//! alarm for which their last lines wait, and others until what they show has come.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use support::workspace;

use super::programs::{FOLDERS, program};

/// The pages, and what they take beside uview.
const PAGES: [(&str, &[&str]); 8] = [
    ("start/redis", &["redis-server", "redis-benchmark"]),
    ("start/nginx", &["nginx", "wrk"]),
    ("start/postgres", &["postgres", "pgbench", "setpriv"]),
    ("start/python", &["python3", "curl"]),
    ("start/node", &["node", "curl"]),
    ("start/container", &["sh"]),
    ("traces", &["python3", "curl"]),
    ("tune-alarms", &["redis-server", "redis-benchmark"]),
];
/// Limit for a page, in seconds.
const LIMIT: &str = "180";

/// Runs all pages whose programs are installed.
///
/// # Errors
///
/// The lines of a page fail, or what it waits for does not come.
pub fn run(uview: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for (page, needs) in PAGES {
        let missing: Vec<_> = needs.iter().filter(|name| program(name).is_none()).collect();
        if !missing.is_empty() {
            println!("NOT RUN: docs/{page}.md: not installed: {missing:?}");
            continue;
        }
        let outcome = run_page(&workspace().join(format!("docs/{page}.md")), uview);
        println!("docs/{page}.md: {}", outcome.as_ref().map_or_else(|error| format!("{error:#}"), Clone::clone));
        if outcome.is_err() {
            failed.push(page);
        }
    }
    ensure!(failed.is_empty(), "pages whose lines do not come to their end: {}", failed.join(", "));
    Ok(())
}

/// The first block of shell lines of a page.
fn lines(page: &str) -> Option<&str> {
    Some(page.split_once("```sh\n")?.1.split_once("```")?.0)
}

/// Runs a page, whose lines wait for what they show.
fn run_page(path: &Path, uview: &Path) -> Result<String> {
    let page = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = lines(&page).context("it has no block of lines")?;
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    fs::create_dir(&bin)?;
    std::os::unix::fs::symlink(uview, bin.join("uview"))?;
    // From a file: on a command line, the lines would be found by the words that they look for.
    let text = format!("PATH={}:$PATH:{}\n{lines}", bin.display(), FOLDERS.join(":"));
    fs::write(folder.path().join("lines.sh"), text)?;
    let mut command = Command::new("setsid");
    command.args(["--wait", "timeout", LIMIT, "bash", "-e", "lines.sh"]);
    let mut child = command.current_dir(folder.path()).stdin(Stdio::null()).spawn()?;
    let status = child.wait();
    end_all_in(folder.path());
    let status = status?;
    ensure!(status.success(), "its lines ended with {status}");
    Ok("came to its end".to_owned())
}

/// Kills what the page has left: all processes whose folder is the page's.
fn end_all_in(folder: &Path) {
    let all = procfs::process::all_processes().into_iter().flatten().filter_map(Result::ok);
    for process in all.filter(|process| process.cwd().is_ok_and(|cwd| cwd.starts_with(folder))) {
        _ = Pid::from_raw(process.pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_its_first_block_of_lines_and_all_pages_have_one() {
        assert_eq!(lines("Text\n```sh\none\ntwo\n```\n```sh\nthree\n```\n"), Some("one\ntwo\n"));
        for (page, _) in PAGES {
            let text = fs::read_to_string(workspace().join(format!("docs/{page}.md"))).unwrap();
            assert!(lines(&text).is_some_and(|lines| lines.contains("uview ")), "{page}");
        }
    }
}
