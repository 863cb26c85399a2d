//! Everything that CI runs, in the order in which it fails fastest. What cannot run here is said, never skipped in
//! silence: it is the last thing printed.

mod bindings;
mod commands;
mod fuzzing;
mod steps;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use support::programs::Programs;
use support::{MISSING, captures, workspace};

use crate::{arm64, book, demo, deny, kubernetes, licences, monitoring, p4, proto, release};
use commands::{cargo, cargo_with, cargo_works, succeed};
use steps::{Steps, TimeLimit};

/// What the live page is looked at with.
const BROWSER: &str = "it needs a browser (Debian: apt-get install chromium chromium-driver)";

/// Where Debian has PostgreSQL, which is in nobody's PATH.
const POSTGRES: &str = "/usr/lib/postgresql";
/// Where hierarchies of cgroups of version 2 are mounted.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What judges times, or is too slow without optimisation: the agents of guests, of the cluster and of the demo,
/// whoever they are compared with, and claims about synopses. Everything else is run as the tests have built it.
const RELEASE: [(&str, &str); 3] =
    [("uview-cli", "--bin=uview"), ("lab", "--bin=lab"), ("synopses", "--example=reproduce")];

/// Seeds of the simulation in the tests (`.ci/run` says as many); by themselves they have half of them.
const SEEDS: &str = "1000";

/// The most that a run may take where its `elapsed` time is known: CI ends it five minutes later.
const MOST: Duration = Duration::from_mins(85);

/// Runs all checks and prints how long each took. `tests_took`: the tests were run already, in so many seconds.
/// `elapsed`: the run began so many seconds ago; what would end too late is not begun, and said at the end.
///
/// # Errors
///
/// The first check that fails.
pub fn run(tests_took: Option<u64>, elapsed: Option<u64>) -> Result<()> {
    let limit = elapsed.map(|elapsed| TimeLimit::new(MOST, Duration::from_secs(elapsed)));
    let mut steps = Steps::within(limit);
    match tests_took {
        Some(seconds) => steps.took("tests", Duration::from_secs(seconds)),
        None => steps.run("tests", || cargo_with("UVIEW_SEEDS", SEEDS, &["test", "--quiet", "--workspace"]))?,
    }
    steps.run("format", || cargo(&["fmt", "--all", "--check"]))?;
    steps.run("generated code", || proto::generate(true))?;
    steps.run("dashboards and alerts", || monitoring::generate(true))?;
    dependencies(&mut steps)?;
    steps.run("clippy", clippy)?;
    steps.run("documentation", documentation)?;
    let release = steps.run("release programs", || Programs::release(&RELEASE))?;
    let programs = Programs::of_tests()?.beside(release);
    // Guests mostly wait. Steps that need processors only, and measure no time, run meanwhile.
    steps.beside(
        |steps| in_guests(steps, &programs),
        vec![Box::new(|steps: &mut Steps| of_processors(steps, &programs))],
    )?;
    // Their compilation may still go on.
    if fuzzing::missing().is_none() {
        steps.run("fuzz targets", fuzzing::build)?;
    }
    // Alone: they are about times.
    steps.run("demo", || demo::check(&programs))?;
    let uview = programs.path("uview")?.display().to_string();
    demo_in_browser(&mut steps, &programs, &uview)?;
    let arguments = ["clients", "--uview", &uview];
    of_lab(&mut steps, &programs, "clients of Python, Node and Rust", "clients", &arguments)?;
    // Like guests, a cluster mostly waits.
    steps.beside(
        |steps| {
            remote_write(steps)?;
            on_kubernetes(steps, &programs)
        },
        vec![Box::new(|steps: &mut Steps| pages_and_bindings(steps, &programs)), Box::new(interpreters_and_fuzzing)],
    )?;
    // Alone, and with the client for Python that was built beside.
    steps.in_time("lines of a page that judges times", Duration::from_mins(3), || {
        let page = ["sources", "--pages", "--page", "start/own-service", "--uview", &uview];
        succeed(programs.command("lab", ".")?.args(page))
    })?;
    inside_tests(&mut steps)?;
    println!("== done\n{}", steps.report());
    Ok(())
}

/// Compiles what later steps need while tests run: they mostly wait.
///
/// # Errors
///
/// Something does not compile. The step that needs it will say so, too.
pub fn ahead() -> Result<()> {
    let release = Programs::release(&RELEASE).map(drop);
    let fuzz_targets = fuzzing::missing().map_or_else(fuzzing::build, |_| Ok(()));
    [release, fuzz_targets, clippy(), documentation()].into_iter().collect()
}

fn clippy() -> Result<()> {
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
}

fn documentation() -> Result<()> {
    cargo_with("RUSTDOCFLAGS", "-D warnings", &["doc", "--quiet", "--workspace", "--no-deps"])
}

/// Pages, the book, and what other languages need: they wait in part.
fn pages_and_bindings(steps: &mut Steps, programs: &Programs) -> Result<()> {
    // First: a page takes the client for Python that it installs.
    bindings::run(steps)?;
    let uview = programs.path("uview")?.display().to_string();
    steps.in_time("lines of pages", Duration::from_mins(10), || {
        succeed(programs.command("lab", ".")?.args(["sources", "--pages", "--busy", "--uview", &uview]))
    })?;
    match book::missing() {
        None => steps.in_time("book", Duration::from_mins(1), || book::make(false)),
        Some(why) => {
            steps.cannot("book", why);
            Ok(())
        }
    }
}

/// What needs processors only, and measures no time.
fn interpreters_and_fuzzing(steps: &mut Steps) -> Result<()> {
    match p4::missing() {
        None => steps.in_time("P4 programs in the reference switch", Duration::from_mins(12), || {
            p4::run(&p4::Plan::default())
        })?,
        Some(why) => steps.cannot("P4 programs in the reference switch", &why),
    }
    unsafe_code(steps)?;
    match fuzzing::missing() {
        None => steps.in_time("fuzzing", Duration::from_mins(8), fuzzing::run),
        Some(why) => {
            steps.cannot("fuzzing", &why);
            Ok(())
        }
    }
}

/// Licences, sources, bans and advisories of dependencies.
fn dependencies(steps: &mut Steps) -> Result<()> {
    steps.run("licences and sources", licences::check)?;
    if let Some(why) = deny::missing() {
        steps.cannot("bans", &why);
        steps.cannot("advisories", &why);
        return Ok(());
    }
    steps.run("bans", deny::rules)?;
    match deny::Advisories::fetch()? {
        deny::Fetched::Database(advisories) => steps.run("advisories", || advisories.check()),
        deny::Fetched::Unreachable(why) => {
            steps.cannot("advisories", &why);
            Ok(())
        }
    }
}

/// Each view of the live page while a demo runs. The test passes without running where there is no browser, and says
/// so.
fn demo_in_browser(steps: &mut Steps, programs: &Programs, uview: &str) -> Result<()> {
    const TEST: &str = "each_view_shows_what_a_run_gives_and_the_function_that_burns_a_processor_is_the_widest";
    if !program("chromedriver") {
        steps.cannot("demo in a browser", BROWSER);
        return Ok(());
    }
    steps.in_time("demo in a browser", Duration::from_mins(5), || {
        let mut test = programs.command("demo_page", "cli")?;
        succeed(test.args(["--ignored", "--exact", TEST]).env("UVIEW_PROGRAM", uview))
    })
}

/// Tests inside of `cargo test` that pass without running where something is missing, which cargo does not show.
fn inside_tests(steps: &mut Steps) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let image = release::image_missing();
    for (name, there, why) in [
        ("tests in network namespaces", root && program("ip"), "they need root and `ip` (Debian: iproute2)"),
        ("sockets of another user", root, "they need root"),
        ("programs in C", program("cc") && program("make"), "they need cc and make (Debian: apt-get install gcc make)"),
        ("models and receipts on a full disk", mounts(), "no namespace of mounts can be made here (unshare)"),
        ("profiles of processes", profiles()?, "the kernel refuses to sample stacks (perf_event_open)"),
        ("uview.h in C++", program("c++"), "it needs c++ (Debian: apt-get install g++)"),
        ("packets beside tshark", program("tshark"), "it needs tshark (Debian: apt-get install tshark)"),
        (
            "counts of captures that Debian has",
            captures::OF_DEBIAN.iter().all(|capture| Path::new(capture).is_file()),
            "they need captures (Debian: apt-get install python3-dpkt golang-github-google-gopacket-dev)",
        ),
        (
            "units as systemd reads and rates them",
            program("systemd-analyze"),
            "it needs systemd-analyze (Debian: apt-get install systemd)",
        ),
        ("the live page in a browser", program("chromedriver"), BROWSER),
        ("the files of an image", image.is_none(), image.as_deref().unwrap_or_default()),
        (
            "pkg-config on an unpacked release",
            program("pkg-config"),
            "it needs pkg-config (Debian: apt-get install pkg-config)",
        ),
        (
            "Redis, nginx and PostgreSQL with a preloaded library",
            ["redis-server", "redis-benchmark", "/usr/sbin/nginx", "openssl", "curl"].iter().all(|name| program(name))
                && Path::new(POSTGRES).exists(),
            "they need these (Debian: apt-get install redis nginx openssl curl postgresql)",
        ),
        ("cgroups that tests make", may_make_cgroups(), "this user may create none of version 2"),
        (
            "dashboards and alerts in Prometheus",
            program("prometheus") && program("promtool"),
            "they need prometheus and promtool (Debian: apt-get install prometheus)",
        ),
        (
            "lines of the pages on nginx and PostgreSQL",
            program("wrk") && Path::new(POSTGRES).exists(),
            "they need wrk and PostgreSQL (Debian: apt-get install wrk postgresql)",
        ),
        ("RDA's claims about times", false, "they are of a release on an idle machine: `cargo lab reproduce rda`"),
        (
            "an alarm that names who sends, between namespaces",
            false,
            "it judges times: `--test network_flows -- --ignored`",
        ),
        ("bars on labelled data", labelled_data(), "UVIEW_DATA names no folder of labelled data"),
    ] {
        if !there {
            steps.cannot(name, why);
        }
    }
    Ok(())
}

/// Whether tests can mount a disk of their own.
fn mounts() -> bool {
    let output = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Whether tests can make a cgroup of version 2.
fn may_make_cgroups() -> bool {
    CGROUPS.iter().any(|root| {
        let folder = Path::new(root).join(format!("uview-ci-{}", std::process::id()));
        let is_made = fs::create_dir(&folder).is_ok();
        // A folder of another file system has no such file.
        let is_cgroup = folder.join("cgroup.procs").is_file();
        if is_made {
            // Nothing is in it.
            _ = fs::remove_dir(&folder);
        }
        is_cgroup
    })
}

/// Whether the kernel lets us sample stacks: the tests say so, and pass.
fn profiles() -> Result<bool> {
    let output = Programs::of_tests()?.command("of_processes", "host-agent/profile")?.arg("--nocapture").output()?;
    Ok(!String::from_utf8_lossy(&output.stderr).contains("no profile here"))
}

#[expect(clippy::disallowed_methods, reason = "only the environment says where the data is")]
fn labelled_data() -> bool {
    std::env::var_os("UVIEW_DATA").is_some_and(|folder| !folder.is_empty())
}

/// Whether a program is installed.
fn program(name: &str) -> bool {
    let output = Command::new(name).arg("--version").output();
    // `ip` knows -V only, and ends with an error otherwise: it is there all the same.
    output.is_ok()
}

/// The chart, and the chart on a cluster.
fn on_kubernetes(steps: &mut Steps, programs: &Programs) -> Result<()> {
    let uview = programs.path("uview")?;
    match kubernetes::chart_missing() {
        None => steps.run("chart", || kubernetes::check_chart(uview))?,
        Some(why) => steps.cannot("chart", why),
    }
    match kubernetes::cluster_missing() {
        None => steps
            .in_time("chart on a one-node cluster", Duration::from_mins(18), || kubernetes::check_cluster(uview))?,
        Some(why) => steps.cannot("chart on a one-node cluster", &why),
    }
    for (what, why) in kubernetes::beyond_cluster(false) {
        steps.cannot(&format!("Kubernetes: {what}"), why);
    }
    Ok(())
}

fn remote_write(steps: &mut Steps) -> Result<()> {
    const NAME: &str = "remote write to Prometheus";
    if !program("prometheus") {
        steps.cannot(NAME, "it needs Prometheus (Debian: apt-get install prometheus)");
        return Ok(());
    }
    steps.run(NAME, || {
        let programs = Programs::of_tests()?;
        succeed(programs.command("prometheus", "hooks/remote-write")?.args(["--quiet", "--ignored"]))
    })
}

/// Code that shares memory, in an interpreter that finds undefined behaviour and data races. Tests that need the
/// system's own memory or sockets are left out: the interpreter has neither.
fn unsafe_code(steps: &mut Steps) -> Result<()> {
    // Builds the standard library for it, once.
    if !cargo_works(&["+nightly", "miri", "setup"]) {
        steps.cannot("Miri", "it needs nightly Rust and `rustup component add --toolchain nightly miri rust-src`");
        return Ok(());
    }
    let members = ["-p", "region", "-p", "transport", "-p", "uview", "--lib"];
    // Counting to 100,000 takes more than a minute, and problems are shared by no two threads.
    let skipped = ["--", "--skip", "problem::"];
    let arguments = [&["+nightly", "miri", "test", "--quiet"], &members[..], &skipped].concat();
    // The clock and the environment are the system's.
    steps.in_time("Miri", Duration::from_mins(8), || cargo_with("MIRIFLAGS", "-Zmiri-disable-isolation", &arguments))
}

fn in_guests(steps: &mut Steps, programs: &Programs) -> Result<()> {
    let uview = programs.path("uview")?.display().to_string();
    of_lab(steps, programs, "RDMA in virtual machines", "rdma", &["rdma", "--uview", &uview])
}

/// Runs `cargo lab` with `arguments`, unless it says that `subject` cannot be run on this machine.
fn of_lab(steps: &mut Steps, programs: &Programs, name: &str, subject: &str, arguments: &[&str]) -> Result<()> {
    let output = programs.command("lab", ".")?.args(["missing", subject]).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "`cargo lab missing {subject}` ended with {}", output.status);
    // What it builds meanwhile stands before that line.
    let text = String::from_utf8(output.stdout)?;
    match text.lines().find_map(|line| line.strip_prefix(MISSING)) {
        None => steps.run(name, || succeed(programs.command("lab", ".")?.args(arguments))),
        Some(why) => {
            steps.cannot(name, why);
            Ok(())
        }
    }
}

fn of_processors(steps: &mut Steps, programs: &Programs) -> Result<()> {
    steps.run("coherence of three nodes, full size", || {
        succeed(programs.command("coherence", "hooks")?.args(["--quiet", "--ignored"]))
    })?;
    steps.run("reproduction of synopses, reduced", || synopses(programs))?;
    steps.run("reproduction of hooks, reduced", || {
        succeed(programs.command("lab", ".")?.args(["reproduce", "hooks", "--reduced"]))
    })?;
    let uview = programs.path("uview")?.display().to_string();
    steps.run("memory of both agents against their budgets", || {
        let size = ["--seconds", "60", "--services", "40", "--metrics", "500", "--restart-every-ms", "500"];
        succeed(programs.command("lab", ".")?.args(["memory", "--uview", &uview]).args(size))
    })?;
    match arm64::missing() {
        None => steps.run("arm64", || arm64::run(&arm64::Plan::Build))?,
        Some(why) => steps.cannot("arm64", &why),
    }
    Ok(())
}

/// The reduced form of all synopses: some two minutes. Fails with the claims whose verdict is not confirmed.
fn synopses(programs: &Programs) -> Result<()> {
    let names = ["fridges", "finecomb", "rda", "rap", "reordering", "cardinality", "disaggregated"];
    names.into_iter().try_for_each(|name| {
        let mut command = programs.command("reproduce", ".")?;
        succeed(command.arg(name).arg(workspace().join("docs/reproduction")).arg("--reduced"))
    })
}
