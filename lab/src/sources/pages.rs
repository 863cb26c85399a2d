//! Runs the lines of pages of the book, as they are written, each in a folder of its own, until what they show has
//! come. A page's lines are its blocks of `sh`. Blocks of `console`, which have prompts, are examples that are not run;
//! a test of the command line looks whether `uview` takes their words.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use support::workspace;

use super::programs::{FOLDERS, program};

/// A page whose lines are run.
struct Page {
    /// Its path in `docs`, without the extension.
    name: &'static str,
    /// What it takes beside uview: programs, and what is built of the clone.
    needs: &'static [&'static str],
    company: Company,
}

/// What may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Other such pages: it names the folder of its agents, and detects nothing.
    Pages,
    /// No other page.
    NoPage,
    /// Nothing: what its service does takes so little time that whatever takes processors shows in its usual scores,
    /// and its fault does not stand out any more.
    Nothing,
}

impl Page {
    /// What is built by this name, if the page takes it.
    fn built(&self, name: &str, uview: &Path) -> Option<PathBuf> {
        built(name, uview).filter(|_| self.needs.contains(&name))
    }
}

const fn alone(name: &'static str, needs: &'static [&'static str]) -> Page {
    Page { name, needs, company: Company::NoPage }
}

const fn beside(name: &'static str, needs: &'static [&'static str]) -> Page {
    Page { name, needs, company: Company::Pages }
}

const fn quiet(name: &'static str, needs: &'static [&'static str]) -> Page {
    Page { name, needs, company: Company::Nothing }
}

/// The library of `uview watch --preload`.
const PRELOADED: &str = "libuview_preload.so";
/// The client for C, which the page installs by its Makefile.
const C_CLIENT: &str = "libuview_c.so";
/// The client for Python in an environment of its own, as the page makes it: by CI's step of that name.
const PYTHON_CLIENT: &str = "python/environment";
/// Where a clone has what is built of it: by a build of a release, by that of tests, by CI.
const BUILDS: [&str; 3] = ["target/release", "target/debug/deps", "target"];
/// Folders of the clone that pages name.
const OF_THE_CLONE: [&str; 3] = ["bindings", "deploy", "examples"];
/// All pages whose lines are run.
const PAGES: [Page; 30] = [
    alone("start/redis", &["redis-server", "redis-benchmark", "redis-cli"]),
    alone("start/nginx", &["nginx", "wrk", "curl"]),
    alone("start/postgres", &["postgres", "pgbench", "setpriv"]),
    alone("start/python", &["python3", "curl"]),
    alone("start/node", &["node", "curl"]),
    alone("start/container", &["sh"]),
    alone("start/opentelemetry", &["python3"]),
    quiet("start/own-service", &[PYTHON_CLIENT]),
    alone("traces", &["python3", "curl"]),
    alone("logs", &["python3", "curl"]),
    alone("tune-alarms", &["redis-server", "redis-benchmark", "redis-cli"]),
    alone("incidents", &["python3", "curl"]),
    alone("sources-preload", &["redis-server", "redis-benchmark", "redis-cli", PRELOADED]),
    alone("measure-a-path", &["ip", "python3", "curl", "dumpcap"]),
    alone("training", &[]),
    alone("aggregation", &[]),
    alone("rdma-setup", &[]),
    beside("clients", &["make", "cc", "pkg-config", C_CLIENT]),
    beside("runbook", &["prometheus", "promtool"]),
    beside("systemd", &["systemd-analyze"]),
    beside("receipt", &["curl"]),
    beside("upgrade", &[]),
    beside("measure-in-a-switch", &[]),
    beside("sources-prometheus", &["python3"]),
    beside("sources-otlp", &["curl"]),
    beside("remote-write", &["prometheus", "curl"]),
    beside("hooks", &[]),
    beside("head-sampling", &["curl"]),
    beside("page", &["curl"]),
    beside("remove", &[]),
];
/// How the lines of a page are run: in a network of their own, if that is possible, so that they find no other agents
/// on the machine, and their ports are free.
const APART: &[&str] = &["unshare", "--net", "bash", "-e", "-c", "ip link set lo up; . ./lines.sh"];
const TOGETHER: &[&str] = &["bash", "-e", "lines.sh"];
/// Limit for a page, in seconds.
const LIMIT: &str = "180";

/// Which pages are run.
#[derive(Clone, Copy)]
pub enum Which<'a> {
    /// Each of them.
    All,
    /// All that may run while the machine does something else; the others are said.
    OnBusyMachine,
    /// The one of this name.
    One(&'a str),
}

impl Which<'_> {
    fn has(self, page: &Page) -> bool {
        match self {
            Self::All => true,
            Self::OnBusyMachine => {
                let is_quiet = page.company == Company::Nothing;
                if is_quiet {
                    println!("left out on a busy machine: `cargo lab sources --pages --page {}`", page.name);
                }
                !is_quiet
            }
            Self::One(name) => page.name == name,
        }
    }
}

/// Runs those pages whose programs are installed.
///
/// # Errors
///
/// There is no such page, the lines of a page fail, or what it waits for does not come.
pub fn run(uview: &Path, which: Which<'_>) -> Result<()> {
    let wanted: Vec<_> = PAGES.iter().filter(|page| which.has(page)).collect();
    let names = || PAGES.map(|page| page.name).join(", ");
    ensure!(!wanted.is_empty(), "no page of this name has lines that are run; there are {}", names());
    let (together, one_by_one): (Vec<_>, Vec<_>) =
        wanted.into_iter().filter(|page| is_possible(page, uview)).partition(|page| page.company == Company::Pages);
    let mut failed: Vec<_> = one_by_one.into_iter().filter(|page| !came_to_its_end(page, uview)).collect();
    thread::scope(|scope| {
        let running: Vec<_> =
            together.into_iter().map(|page| (page, scope.spawn(|| came_to_its_end(page, uview)))).collect();
        failed
            .extend(running.into_iter().filter_map(|(page, ends)| (!ends.join().unwrap_or_default()).then_some(page)));
    });
    let failed: Vec<_> = failed.iter().map(|page| page.name).collect();
    ensure!(failed.is_empty(), "pages whose lines do not come to their end: {}", failed.join(", "));
    Ok(())
}

/// Whether all is there that the page takes; if not, says what is missing.
fn is_possible(page: &Page, uview: &Path) -> bool {
    let is_there = |name: &str| program(name).or_else(|| built(name, uview)).is_some();
    let missing: Vec<_> = page.needs.iter().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        println!("NOT RUN: docs/{}.md: not there: {missing:?}", page.name);
    }
    missing.is_empty()
}

/// Runs a page, and prints what its lines print and what came of them.
fn came_to_its_end(page: &Page, uview: &Path) -> bool {
    let outcome = tempfile::tempdir().map_err(Into::into).and_then(|folder| {
        let ended = run_page(page, uview, folder.path());
        let printed = fs::read(folder.path().join("lines.out")).unwrap_or_default();
        // At once: others print, too.
        print!("{}", String::from_utf8_lossy(&printed));
        ended
    });
    println!("docs/{}.md: {}", page.name, outcome.as_ref().map_or_else(|error| format!("{error:#}"), Clone::clone));
    outcome.is_ok()
}

/// What a build has left by this name: beside uview, or in this clone.
fn built(name: &str, uview: &Path) -> Option<PathBuf> {
    let in_clone = BUILDS.map(|folder| workspace().join(folder).join(name));
    std::iter::once(uview.with_file_name(name)).chain(in_clone).find(|path| path.exists())
}

/// All blocks of shell lines of a page, in their order.
fn lines(page: &str) -> String {
    page.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block).collect()
}

/// Puts uview into `bin`, and what the page names of a clone and of its builds into its folder.
fn prepare(page: &Page, uview: &Path, folder: &Path, bin: &Path) -> Result<()> {
    fs::create_dir(bin)?;
    match page.built(PRELOADED, uview) {
        // It is looked for beside the file that runs, not beside a link to it.
        Some(library) => {
            fs::copy(uview, bin.join("uview"))?;
            symlink(library, bin.join(PRELOADED))?;
        }
        None => symlink(uview, bin.join("uview"))?,
    }
    for name in OF_THE_CLONE {
        symlink(workspace().join(name), folder.join(name))?;
    }
    if let Some(environment) = page.built(PYTHON_CLIENT, uview) {
        symlink(environment, folder.join("venv"))?;
    }
    Ok(())
}

/// Runs a page, whose lines wait for what they show, in `folder`.
fn run_page(page: &Page, uview: &Path, folder: &Path) -> Result<String> {
    let path = workspace().join(format!("docs/{}.md", page.name));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let bin = folder.join("bin");
    prepare(page, uview, folder, &bin)?;
    // From a file: on a command line, the lines would be found by the words that they look for.
    let apart = rustix::process::geteuid().is_root() && ["unshare", "ip"].iter().all(|name| program(name).is_some());
    let text = format!("PATH={}:$PATH:{}\n{}", bin.display(), FOLDERS.join(":"), lines(&text));
    fs::write(folder.join("lines.sh"), text)?;
    let out = File::create(folder.join("lines.out"))?;
    let mut command = Command::new("setsid");
    command.args(["--wait", "timeout", LIMIT]).args(if apart { APART } else { TOGETHER });
    command.current_dir(folder).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    // Where the Makefile of the client finds what cargo has built.
    command.envs(page.built(C_CLIENT, uview).map(|library| ("BUILT", library.with_file_name(""))));
    let status = command.status();
    end_all_in(folder);
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
    use std::collections::BTreeMap;

    use super::*;

    /// Pages of *Start* and *Do* without lines that are run here, and why.
    const NOT_RUN: [(&str, &str); 6] = [
        ("start/README", "has no lines"),
        ("start/demo", "takes minutes of a machine: `cargo demo` is a step of CI"),
        ("start/kubernetes", "takes a cluster: `cargo xtask kubernetes` runs its lines"),
        ("sources", "has no lines: those of start/container are about the same"),
        ("kubernetes", "takes a cluster: `cargo xtask kubernetes`"),
        ("bluefield", "takes a card"),
    ];

    fn text(name: &str) -> String {
        fs::read_to_string(workspace().join(format!("docs/{name}.md"))).unwrap()
    }

    #[test]
    fn a_page_is_its_blocks_of_lines_and_all_pages_have_some() {
        let page = "Text\n```sh\none\ntwo\n```\n```console\n$ not run\n```\n```sh\nthree\n```\n";
        assert_eq!(lines(page), "one\ntwo\nthree\n");
        for page in PAGES {
            assert!(lines(&text(page.name)).contains("uview "), "{}", page.name);
        }
    }

    #[test]
    fn each_page_to_start_and_to_do_something_is_run_or_it_is_said_why_not() {
        let summary = text("SUMMARY");
        let (_, rest) = summary.split_once("\n# Start\n").unwrap();
        let (chapters, _) = rest.split_once("\n# Look up\n").unwrap();
        let chapters = chapters.split("](").skip(1).filter_map(|link| link.split_once(".md)")).map(|(name, _)| name);
        let run = PAGES.iter().map(|page| (page.name, ""));

        let said: BTreeMap<_, _> = run.chain(NOT_RUN).collect();

        assert_eq!(said.len(), PAGES.len() + NOT_RUN.len(), "a page is named twice");
        assert_eq!(chapters.collect::<std::collections::BTreeSet<_>>(), said.keys().copied().collect());
        for (name, why) in NOT_RUN {
            let are_run_elsewhere = why.ends_with("runs its lines");
            assert!(are_run_elsewhere || lines(&text(name)).is_empty(), "lines of {name} are no `console`");
        }
    }

    #[test]
    fn pages_that_run_at_the_same_time_name_their_agents_folder() {
        for page in PAGES.iter().filter(|page| page.company == Company::Pages) {
            let lines = lines(&text(page.name));
            assert!(
                lines.contains("UVIEW_RUNTIME_DIR=$PWD/run") && lines.contains("listen: '127.0.0.1:0'"),
                "{}",
                page.name
            );
        }
    }
}
