//! OCI images without a container engine: one layer, the same bytes from the same files. The image format is the
//! OCI image specification 1.1: <https://github.com/opencontainers/image-spec>

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::archive::{self, Entry};
use crate::command::output_of_tool;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Says which libraries a program needs.
pub const READELF: &str = "readelf";
/// What helps if the compiler or readelf cannot be run.
const TOOLS: &str = "an image is made with tools of gcc (Debian: apt-get install gcc)";

/// What an image is called, and what runs in it.
#[derive(Debug)]
pub struct Image<'a> {
    /// Name with tag, such as `registry.example/uview:0.1.0`.
    pub name: &'a str,
    /// Architecture in Go's words: `amd64` or `arm64`.
    pub architecture: &'a str,
    /// Absolute path of the program that a container runs, with the arguments that it is given.
    pub entrypoint: &'a str,
    /// Time of all files, in seconds since 1970.
    pub seconds: u64,
    /// The same, such as 2026-11-24T01:45:00Z.
    pub created: &'a str,
}

impl Image<'_> {
    /// An archive with an image of `entries` (paths from the root), which `ctr images import`, `podman load`
    /// and `skopeo copy oci-archive:` read.
    ///
    /// # Errors
    ///
    /// A path that is too long for the format.
    pub fn pack(&self, entries: Vec<Entry>) -> Result<Vec<u8>> {
        let layer = archive::plain("", entries, self.seconds)?;
        let config = json!({
            "created": self.created,
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Entrypoint": [self.entrypoint], "Env": ["PATH=/bin"], "User": "0:0"},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created": self.created, "created_by": "cargo xtask release"}],
        });
        let config = serde_json::to_vec(&config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = serde_json::to_vec(&manifest)?;
        let mut listed = descriptor(MANIFEST, &manifest);
        listed["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag),
        });
        listed["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]});
        let mut files = vec![
            Entry::text("oci-layout", serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?),
            Entry::text("index.json", serde_json::to_vec(&index)?),
        ];
        for blob in [layer, config, manifest] {
            files.push(Entry::text(&format!("blobs/sha256/{:x}", Sha256::digest(&blob)), blob));
        }
        archive::plain("", files, self.seconds)
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

/// Go's word for the processors of `target`.
///
/// # Errors
///
/// A target for which there are no images.
pub fn architecture(target: &str) -> Result<&'static str> {
    let known = [("x86_64-", "amd64"), ("aarch64-", "arm64")];
    let found = known.iter().find(|(prefix, _)| target.starts_with(prefix));
    found
        .map(|(_, name)| *name)
        .with_context(|| format!("there are no images for {target}, only for x86_64 and aarch64"))
}

/// A shared library of this machine, as a file of an image.
#[derive(Debug)]
pub struct Library {
    /// Where it lies here.
    pub source: PathBuf,
    /// The file of the image.
    pub entry: Entry,
}

/// The loader and the shared libraries that `program` needs, from the compiler's own C library, each with its path in
/// an image.
///
/// # Errors
///
/// A library that the compiler does not find, or a machine without readelf(1).
pub fn libraries(program: &Path, compiler: &str) -> Result<Vec<Library>> {
    let (mut libraries, mut seen) = (Vec::new(), BTreeSet::new());
    let loader = loader(program)?;
    let mut files = vec![(program.to_owned(), None)];
    while let Some((file, place)) = files.pop() {
        for name in needed(&file)? {
            if !seen.insert(name.clone()) {
                continue;
            }
            let found = output_of_tool(Command::new(compiler).arg(format!("-print-file-name={name}")), TOOLS)?;
            let path = PathBuf::from(found.trim());
            ensure!(path.is_absolute(), "{compiler} does not find {name}, which {} needs", file.display());
            // The kernel starts the loader by its path; the loader looks for the others in /lib.
            let place = if loader.ends_with(&name) { loader.clone() } else { format!("/lib/{name}") };
            files.push((path, Some(place)));
        }
        if let Some(place) = place {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            libraries.push(Library { source: file, entry: Entry::program(place.trim_start_matches('/'), bytes) });
        }
    }
    Ok(libraries)
}

/// The libraries that an ELF file names.
fn needed(file: &Path) -> Result<Vec<String>> {
    let text = output_of_tool(Command::new(READELF).args(["--wide", "--dynamic"]).arg(file), TOOLS)?;
    Ok(between(&text, "(NEEDED)", "[", "]"))
}

/// The path of the loader that an ELF program names.
fn loader(program: &Path) -> Result<String> {
    let text = output_of_tool(Command::new(READELF).args(["--wide", "--program-headers"]).arg(program), TOOLS)?;
    let found = between(&text, "program interpreter", ": ", "]").into_iter().next();
    found.with_context(|| format!("{} names no loader: it is not a dynamically linked program", program.display()))
}

/// In each line with `word`, what stands between `from` and `to`.
fn between(text: &str, word: &str, from: &str, to: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains(word));
    lines.filter_map(|line| Some(line.split_once(from)?.1.split_once(to)?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    const IMAGE: Image<'_> = Image {
        name: "registry.example/uview:0.1.0",
        architecture: "amd64",
        entrypoint: "/bin/uview",
        seconds: 1_700_000_000,
        created: "2023-11-14T22:13:20Z",
    };

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for file in tar::Archive::new(archive).entries().unwrap() {
            let mut file = file.unwrap();
            let (path, mut bytes) = (file.path().unwrap().display().to_string(), Vec::new());
            file.read_to_end(&mut bytes).unwrap();
            files.insert(path, bytes);
        }
        files
    }

    #[test]
    fn each_blob_is_found_by_its_digest_from_the_index_down_to_the_program() {
        let program = Entry { path: "bin/uview".to_owned(), bytes: b"ELF".to_vec(), executable: true };

        let files = files(&IMAGE.pack(vec![program]).unwrap());

        let read = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let blob = &files[&format!("blobs/{digest}")];
            assert_eq!(descriptor["size"], json!(blob.len()));
            blob.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest: Value = serde_json::from_slice(&read(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&read(&manifest["config"])).unwrap();
        let layer = read(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], json!(digest(&layer)));
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], json!(IMAGE.name));
        assert_eq!(super::tests::files(&layer), BTreeMap::from([("bin/uview".to_owned(), b"ELF".to_vec())]));
    }

    #[test]
    fn a_program_comes_with_its_loader_and_every_library_that_one_of_them_names() {
        let program = std::env::current_exe().unwrap();

        let libraries = libraries(&program, "cc").unwrap();

        let places: BTreeSet<_> = libraries.iter().map(|library| format!("/{}", library.entry.path)).collect();
        assert!(places.contains(&loader(&program).unwrap()), "{places:?}");
        assert!(places.contains("/lib/libc.so.6"), "{places:?}");
        for name in needed(&program).unwrap() {
            assert!(places.iter().any(|place| place.ends_with(&name)), "{name} is not in {places:?}");
        }
    }

    #[test]
    fn only_two_kinds_of_machines_have_images() {
        assert_eq!(architecture("aarch64-unknown-linux-gnu").unwrap(), "arm64");
        assert!(architecture("riscv64gc-unknown-linux-gnu").is_err());
    }
}
