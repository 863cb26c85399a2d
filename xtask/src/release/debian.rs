//! Packages of Debian, or of a system that is made of it: whose a file of this machine is, and how a bill lists it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::command::output_of_tool;

use super::archive::Entry;

/// What dpkg-query(1) is to print of a package.
const FORMAT: &str = "--showformat=${Package} ${Version} ${Architecture}";
/// Says which package a file is of, and what is installed.
pub const DPKG_QUERY: &str = "dpkg-query";
/// What helps if it cannot be run.
const TOOL: &str = "an image is made on Debian, or on a system that is made of it (apt-get install dpkg)";
/// Says which system this is.
const SYSTEM: &str = "/etc/os-release";

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebianPackage {
    name: String,
    version: String,
    architecture: String,
}

impl DebianPackage {
    /// The package that has installed `file`.
    ///
    /// # Errors
    ///
    /// A file that is of none, or a system without dpkg-query(1).
    pub fn owning(file: &Path) -> Result<Self> {
        let file = file.canonicalize().with_context(|| file.display().to_string())?;
        // Where /lib is a link to /usr/lib, packages may have their files in the former.
        let before = file.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
        let search = |place: &Path| output_of_tool(Command::new(DPKG_QUERY).arg("--search").arg(place), TOOL);
        let found = match (search(&file), before) {
            (Err(_), Some(before)) => search(&before),
            (found, _) => found,
        };
        let found = found.with_context(|| format!("dpkg-query names no package that has {}", file.display()))?;
        Self::named(owner(&found).with_context(|| format!("dpkg-query names no package, but {found:?}"))?)
    }

    /// The package that is called `name`.
    ///
    /// # Errors
    ///
    /// It is not installed, or this is no such system.
    pub fn named(name: &str) -> Result<Self> {
        let text = output_of_tool(Command::new(DPKG_QUERY).args(["--show", FORMAT, name]), TOOL)?;
        match text.split(' ').collect::<Vec<_>>()[..] {
            [name, version, architecture] => {
                Ok(Self { name: name.to_owned(), version: version.to_owned(), architecture: architecture.to_owned() })
            }
            _ => bail!("the package {name} is not installed: dpkg-query says {text:?}"),
        }
    }

    /// Its licence, as a file of an image that has a part of it.
    ///
    /// # Errors
    ///
    /// A machine that has left it out.
    pub fn licence(&self) -> Result<Entry> {
        let path = self.licence_path();
        let bytes = fs::read(Path::new("/").join(&path));
        let bytes = bytes.with_context(|| format!("the licence of {} is part of the image: /{path}", self.name))?;
        Ok(Entry::text(&path, bytes))
    }

    /// Where its licence lies, here and in an image.
    fn licence_path(&self) -> String {
        format!("usr/share/doc/{}/copyright", self.name)
    }

    /// How a bill (CycloneDX 1.5) lists it: with those of its `files` that are in the image. Its licence is a file,
    /// too: many of these have no name.
    pub fn component(&self, files: &[Entry]) -> Value {
        let file = |file: &Entry| {
            json!({
                "type": "file",
                "name": format!("/{}", file.path),
                "hashes": [{ "alg": "SHA-256", "content": format!("{:x}", Sha256::digest(&file.bytes)) }],
            })
        };
        let reference = self.reference(&system());
        json!({
            "type": "library",
            "bom-ref": reference,
            "name": self.name,
            "version": self.version,
            "scope": "required",
            "licenses": [{ "license": { "name": format!("/{}", self.licence_path()) } }],
            "purl": reference,
            "components": files.iter().map(file).collect::<Vec<_>>(),
        })
    }

    /// Its package URL, on a system that calls itself `system`.
    fn reference(&self, system: &str) -> String {
        // Of what names and versions have, this is to be encoded.
        let encoded = |text: &str| text.replace('+', "%2B");
        let (name, version) = (encoded(&self.name), encoded(&self.version));
        format!("pkg:deb/{system}/{name}@{version}?arch={}", self.architecture)
    }
}

/// What this system calls itself.
fn system() -> String {
    let text = fs::read_to_string(SYSTEM).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("ID="));
    name.unwrap_or("debian").trim_matches('"').to_owned()
}

/// The first of the packages that `dpkg-query --search` names: `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(found: &str) -> Option<&str> {
    let line = found.lines().find(|line| !line.starts_with("diversion by "))?;
    line.split_once(": ")?.0.split(", ").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_file_is_read_from_what_dpkg_says() {
        let one = "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6";
        let several = "diversion by dash from: /bin/sh\ndash, bash: /bin/sh\n";

        assert_eq!((owner(one), owner(several), owner("nothing")), (Some("libc6:amd64"), Some("dash"), None));
    }

    #[test]
    fn a_bill_has_the_package_by_its_url_and_each_file_by_its_digest() {
        let package = DebianPackage {
            name: "libstdc++6".to_owned(),
            version: "1:12.2.0-14+deb12u1".to_owned(),
            architecture: "amd64".to_owned(),
        };

        let component = package.component(&[Entry::program("lib/libstdc++.so.6", b"ELF".to_vec())]);

        let url = "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1?arch=amd64";
        assert_eq!(package.reference("debian"), url);
        assert_eq!((&component["purl"], &component["version"]), (&component["bom-ref"], &json!(package.version)));
        assert_eq!(component["licenses"][0]["license"]["name"], "/usr/share/doc/libstdc++6/copyright");
        let file = &component["components"][0];
        assert_eq!((&file["type"], &file["name"]), (&json!("file"), &json!("/lib/libstdc++.so.6")));
        assert_eq!(file["hashes"][0]["content"].as_str().map(str::len), Some(64));
    }
}
