//! What a release is made of, packed: the same parts give the same bytes, whenever and wherever they are packed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::archive::{self, Entry};
use super::commit::Commit;
use super::image::{self, Image};

/// The program that is released.
pub const PROGRAM: &str = "uview";
/// The program in the image.
pub const ENTRYPOINT: &str = "/bin/uview";
/// What the image is called, as the chart's values have it.
const REPOSITORY: &str = "localhost/uview";

/// What goes into the archive besides the program, with its place there.
const FILES: [(&str, &str); 12] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("deploy/release/Makefile", "Makefile"),
    ("deploy/release/Containerfile", "Containerfile"),
    ("docs/clients.md", "docs/clients.md"),
    ("docs/systemd.md", "docs/systemd.md"),
    ("docs/access.md", "docs/access.md"),
    ("docs/metrics.md", "docs/metrics.md"),
    ("host-agent/src/config/default.yaml", "defaults/host-agent.yaml"),
    ("nic-agent/src/config/default.yaml", "defaults/nic-agent.yaml"),
];
/// Folders that are packed as a whole: units, users, folders and configurations to begin with; alerts; dashboards.
const FOLDERS: [&str; 3] = ["deploy/systemd", "deploy/prometheus", "deploy/grafana"];

/// The checksums of all archives and bills in a folder, as sha256sum(1) reads them.
pub const SUMS: &str = "SHA256SUMS";

/// A file of a release, with its name and its bytes.
pub type ReleaseFile = (String, Vec<u8>);

/// What a release is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The commit that is released.
    pub commit: &'a Commit,
    /// Version of the program.
    pub version: &'a str,
    /// Kind of machine.
    pub target: &'a str,
    /// The program itself.
    pub program: Vec<u8>,
    /// Documents, configurations and units.
    pub documents: Vec<Entry>,
    /// The libraries for services.
    pub libraries: Vec<Entry>,
    /// Files of the image, with a bill and licences of its own; `None`: there is none for such machines.
    pub in_image: Option<Vec<Entry>>,
    /// The bill of materials.
    pub bill: Vec<u8>,
    /// Licences of all packages.
    pub notices: Vec<u8>,
}

impl Parts<'_> {
    /// The files of the release: bill, image and archive.
    ///
    /// # Errors
    ///
    /// A path that is too long for an archive.
    pub fn pack(self) -> Result<Vec<ReleaseFile>> {
        let Self { commit, version, target, program, documents, libraries, in_image, bill, notices } = self;
        let name = format!("{PROGRAM}-{version}-{target}");
        let mut written = vec![(format!("{name}.cdx.json"), bill.clone())];
        if let Some(in_image) = in_image {
            written.push(image_file(commit, (version, image::architecture(target)?), in_image)?);
        }
        let mut entries = vec![
            Entry::program(&format!("bin/{PROGRAM}"), program),
            Entry::text("sbom.cdx.json", bill),
            Entry::text("COMMIT", format!("{}\n", commit.id).into_bytes()),
            Entry::text("THIRD-PARTY-LICENCES", notices),
        ];
        entries.extend(documents);
        entries.extend(libraries);
        written.push((format!("{name}.tar.gz"), archive::pack(&name, entries, commit.seconds)?));
        Ok(written)
    }
}

/// What the image of `version` is called.
pub fn image_name(version: &str) -> String {
    format!("{REPOSITORY}:{version}")
}

/// The file of a release that is the image of `files`.
///
/// # Errors
///
/// A path that is too long for an archive.
pub fn image_file(commit: &Commit, (version, architecture): (&str, &str), files: Vec<Entry>) -> Result<ReleaseFile> {
    let image = Image {
        name: &image_name(version),
        architecture,
        entrypoint: ENTRYPOINT,
        seconds: commit.seconds,
        created: &commit.time,
    };
    Ok((format!("{PROGRAM}-{version}-linux-{architecture}.oci.tar"), image.pack(files)?))
}

/// Documents, configurations and units of the clone in `root`.
///
/// # Errors
///
/// One cannot be read.
pub fn documents(root: &Path) -> Result<Vec<Entry>> {
    let places = places(root)?;
    let read = |(from, to): &(String, String)| {
        let bytes = fs::read(root.join(from)).with_context(|| from.clone())?;
        anyhow::Ok(Entry::text(to, bytes))
    };
    places.iter().map(read).collect()
}

/// Where each of them is, and its place in the archive.
fn places(root: &Path) -> Result<Vec<(String, String)>> {
    let mut places: Vec<_> = FILES.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    for folder in FOLDERS {
        for file in fs::read_dir(root.join(folder)).context(folder)? {
            let name = file?.file_name().into_string().ok().context("a file's name is no text")?;
            let path = format!("{folder}/{name}");
            places.push((path.clone(), path));
        }
    }
    Ok(places)
}

/// Writes a release into the folder `into`, with checksums: also of other files there, releases for other targets.
/// Returns the checksums.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write(into: &Path, files: &[ReleaseFile]) -> Result<String> {
    fs::create_dir_all(into)?;
    for (file, bytes) in files {
        fs::write(into.join(file), bytes)?;
    }
    let sums = sums(into, files)?;
    fs::write(into.join(SUMS), &sums)?;
    Ok(sums)
}

/// Checksums of `written`, and those that the folder `into` has of other files there.
fn sums(into: &Path, written: &[ReleaseFile]) -> Result<String> {
    let path = into.join(SUMS);
    let before = if path.exists() { fs::read_to_string(&path).context(SUMS)? } else { String::new() };
    let there = before.lines().filter_map(|line| line.split_once("  ")).filter(|(_, file)| into.join(file).is_file());
    let mut all: BTreeMap<_, _> = there.map(|(sum, file)| (file, sum.to_owned())).collect();
    all.extend(written.iter().map(|(file, bytes)| (file.as_str(), format!("{:x}", Sha256::digest(bytes)))));
    let lines: Vec<_> = all.iter().map(|(file, sum)| format!("{sum}  {file}\n")).collect();
    Ok(lines.concat())
}

#[cfg(test)]
mod tests;
