//! Captures that others have published: what comes with the crate that reads captures, and with Debian's packages.

use std::path::PathBuf;
use std::process::Command;

use cargo_metadata::MetadataCommand;
use support::captures::OF_DEBIAN;
use support::harness::not_run;

/// Of the crate pcap-parser: 28 minutes of a network of some machines (5,898 frames), and NTP.
const OF_CRATE: [&str; 2] = ["wireshark_samples-test.pcapng", "ntp.pcap"];

/// All that are here, the longest one first. Those of the crate always are: what is compiled comes with them.
pub fn captures() -> Vec<PathBuf> {
    let folder = crate_folder("pcap-parser").join("assets");
    let of_crate = OF_CRATE.map(|name| folder.join(name));
    assert!(of_crate.iter().all(|capture| capture.is_file()), "the crate has other captures: {}", folder.display());
    let of_debian = OF_DEBIAN.map(PathBuf::from).into_iter().filter(|capture| {
        let is_here = capture.is_file();
        if !is_here {
            not_run(&format!("{} is not installed", capture.display()));
        }
        is_here
    });
    of_crate.into_iter().chain(of_debian).collect()
}

/// The folder of a dependency's sources, for this machine: others need not be there.
fn crate_folder(name: &str) -> PathBuf {
    let about = Command::new("rustc").arg("-vV").output().expect("there is a compiler");
    let about = String::from_utf8(about.stdout).expect("it prints text");
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says its host");
    let mut metadata = MetadataCommand::new();
    metadata.current_dir(env!("CARGO_MANIFEST_DIR"));
    metadata.other_options(["--locked".to_owned(), "--filter-platform".to_owned(), host.to_owned()]);
    let metadata = metadata.exec().expect("cargo knows what it compiles");
    let package = metadata.packages.iter().find(|package| package.name == name).expect("a dependency");
    let folder = package.manifest_path.parent().expect("a manifest is in a folder");
    folder.as_std_path().to_path_buf()
}
