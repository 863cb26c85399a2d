//! Programs in C, built as their users build them: installed by the Makefile, compiled with cc, linked both ways.

use std::path::{Path, PathBuf};
use std::process::Command;

use support::harness::not_run;
use tempfile::TempDir;

/// The library, installed.
struct Installation {
    folder: TempDir,
}

/// Whether there is what builds programs in C. If not, it is said.
fn tools() -> bool {
    let missing: Vec<_> =
        ["cc", "make"].into_iter().filter(|name| Command::new(name).arg("--version").output().is_err()).collect();
    if !missing.is_empty() {
        not_run(&format!("programs in C: there is no {missing:?}"));
    }
    missing.is_empty()
}

/// The folder of the compiled test, where cargo has put the library, too.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    test.parent().expect("a program lies in a folder").to_path_buf()
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut make = Command::new("make");
        make.args(["--silent", "-C", env!("CARGO_MANIFEST_DIR"), "install"]);
        make.arg(format!("PREFIX={}", folder.path().display())).arg(format!("BUILT={}", built().display()));
        run(&mut make);
        Self { folder }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("lib")
    }

    /// Compiles a file of the crate with `flags`.
    fn compile(&self, file: &str, flags: &[&str]) -> PathBuf {
        let program = self.folder.path().join(file.replace('/', "-"));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"]);
        cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).arg("-o").arg(&program);
        cc.arg("-I").arg(self.folder.path().join("include")).args(flags);
        run(&mut cc);
        program
    }

    /// The flags of pkg-config, and where the library is found at run time.
    fn shared(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.library().join("pkgconfig/uview.pc")).expect("it is installed");
        let libs = text.lines().find_map(|line| line.strip_prefix("Libs: ")).expect("it says how to link");
        let libs = libs.replace("${libdir}", &self.library().display().to_string());
        let mut flags: Vec<_> = libs.split(' ').map(str::to_owned).collect();
        flags.push(format!("-Wl,-rpath,{}", self.library().display()));
        flags
    }

    /// The archive, and what it takes of the system.
    fn archive(&self) -> Vec<String> {
        let archive = self.library().join("libuview.a").display().to_string();
        std::iter::once(archive).chain(["-lgcc_s", "-lpthread", "-lm", "-ldl"].map(str::to_owned)).collect()
    }

    /// Flags that link either library.
    fn both(&self) -> [Vec<String>; 2] {
        [self.shared(), self.archive()]
    }

    /// Passes the list of cases with the driver, linked and compiled so.
    fn passes(&self, linked: &[String], flags: &[&str]) {
        let driver = self.compile("tests/driver.c", &joined(linked, flags));
        let report = conformance::run(conformance::CASES, || Command::new(&driver));
        let report = report.expect("each case holds");
        assert!(report.held.len() > 20, "{report:?}");
        // C has no truth values.
        assert_eq!(report.unsupported, ["an attribute of an event may be a truth value"]);
    }

    /// The example counts, linked and compiled so.
    fn example_counts(&self, linked: &[String], flags: &[&str]) {
        let mut example = Command::new(self.compile("examples/payment.c", &joined(linked, flags)));
        let text = run(example.env("UVIEW_SOCKET", "/nonexistent/services.sock"));

        assert!(text.starts_with("1000 requests\npayment ("), "{text}");
        assert!(text.contains("3 series in 1 regions"), "{text}");
    }

    /// Each misuse is told by a program that is linked and compiled so.
    fn tells_misuse(&self, linked: &[String], flags: &[&str]) {
        let text = run(&mut Command::new(self.compile("tests/misuse.c", &joined(linked, flags))));

        assert_eq!(text, "every misuse is told\n");
    }
}

fn joined<'a>(linked: &'a [String], flags: &[&'a str]) -> Vec<&'a str> {
    linked.iter().map(String::as_str).chain(flags.iter().copied()).collect()
}

#[test]
fn the_c_client_does_what_the_list_says() {
    if tools() {
        let installation = Installation::new();
        installation.passes(&installation.shared(), &["-lpthread"]);
    }
}

/// The library itself is not instrumented: what is found is memory that its callers lose, read after its end or beyond
/// it, and what the library does with theirs through functions of libc.
#[test]
#[ignore = "a step of CI: a compiler with sanitizers"]
fn whatever_is_built_in_c_runs_under_sanitizers_linked_with_either_library() {
    let flags = ["-lpthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let installation = Installation::new();
    for linked in installation.both() {
        installation.passes(&linked, &flags);
        installation.example_counts(&linked, &flags);
        installation.tells_misuse(&linked, &flags);
    }
}

#[test]
fn the_example_counts_linked_with_either_library() {
    if tools() {
        let installation = Installation::new();
        installation.both().iter().for_each(|linked| installation.example_counts(linked, &[]));
    }
}

#[test]
fn misuse_is_a_code_and_a_text_and_harms_nothing() {
    if tools() {
        let installation = Installation::new();
        installation.tells_misuse(&installation.shared(), &[]);
    }
}

#[test]
fn the_header_is_cpp_too() {
    if Command::new("c++").arg("--version").output().is_err() {
        return not_run("the header in C++: there is no c++");
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/uview.h");

    run(Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .args(["-x", "c++"])
        .arg(header));
}
