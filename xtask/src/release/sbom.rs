//! The bill of materials of a release: CycloneDX 1.5, as JSON.
//!
//! Source: the JSON schema of CycloneDX 1.5 (ECMA-424 describes the next version).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, Package, PackageId};
use serde_json::{Value, json};

use super::packages::MEMBER;

/// A bill that lists `packages` of the builds `builds`, with checksums from the lock files in `locks`, of the time
/// `time` (RFC 3339). The program is the member [`MEMBER`].
///
/// # Errors
///
/// A package of a registry without checksum, or metadata without a resolved graph.
pub fn bill(builds: &[&Metadata], packages: &[&Package], locks: &str, time: &str) -> Result<Vec<u8>> {
    let checksums = checksums(locks);
    let (mut program, mut components) = (None, Vec::new());
    for package in packages {
        let mut component = component(package, &checksums)?;
        if package.name == MEMBER {
            component["type"] = "application".into();
            program = Some(component);
        } else {
            components.push(component);
        }
    }
    let bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "tools": { "components": [{ "type": "application", "name": "cargo xtask release" }] },
            "component": program.context("the program is not among its packages")?,
        },
        "components": components,
        "dependencies": dependencies(builds, packages)?,
    });
    Ok(format!("{bill:#}\n").into_bytes())
}

/// The same bill with more `components`, on which the program depends and which depend on nothing that is known.
///
/// # Errors
///
/// A bill that is none of [`bill`].
pub fn with(bill: &[u8], components: Vec<Value>) -> Result<Vec<u8>> {
    let mut bill: Value = serde_json::from_slice(bill)?;
    let program = bill["metadata"]["component"]["bom-ref"].clone();
    let added: Vec<Value> = components.iter().map(|component| component["bom-ref"].clone()).collect();
    let edges = bill["dependencies"].as_array_mut().context("a bill says who depends on whom")?;
    let own = edges.iter_mut().find(|edge| edge["ref"] == program).context("the program is in its bill")?;
    own["dependsOn"].as_array_mut().context("the program depends on something")?.extend(added.iter().cloned());
    edges.extend(added.into_iter().map(|component| json!({ "ref": component, "dependsOn": [] })));
    bill["components"].as_array_mut().context("a bill has components")?.extend(components);
    Ok(format!("{bill:#}\n").into_bytes())
}

/// Name and version → SHA-256 of the package's archive, as the lock file has it.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &'_ str, key: &str| -> Option<(usize, usize)> {
        let at = package.find(&format!("\n{key} = \""))? + key.len() + 5;
        Some((at, at + package[at..].find('"')?))
    };
    packages
        .filter_map(|package| {
            let text = |key| value(package, key).map(|(from, to)| &package[from..to]);
            Some(((text("name")?, text("version")?), text("checksum")?))
        })
        .collect()
}

/// How the bill refers to a package: a package URL, but for members, which no registry has.
fn reference(package: &Package) -> String {
    match package.source {
        Some(_) => format!("pkg:cargo/{}@{}", package.name, package.version),
        None => format!("{}@{}", package.name, package.version),
    }
}

fn component(package: &Package, checksums: &BTreeMap<(&str, &str), &str>) -> Result<Value> {
    let version = package.version.to_string();
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name.as_str(),
        "version": version,
        "scope": "required",
    });
    // Old manifests separate alternatives by a slash.
    if let Some(licence) = &package.license {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if package.source.is_some() {
        component["purl"] = reference(package).into();
        let checksum = checksums.get(&(package.name.as_str(), version.as_str()));
        let checksum = checksum.with_context(|| format!("the lock file has no checksum of {}", package.name))?;
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    Ok(component)
}

/// Who depends on whom, among `packages`, in any of the builds.
fn dependencies(builds: &[&Metadata], packages: &[&Package]) -> Result<Vec<Value>> {
    let references: BTreeMap<&PackageId, String> =
        packages.iter().map(|package| (&package.id, reference(package))).collect();
    let mut needed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for metadata in builds {
        let resolve = metadata.resolve.as_ref().context("cargo's metadata has no graph")?;
        for node in &resolve.nodes {
            let Some(name) = references.get(&node.id) else { continue };
            let needs = node.deps.iter().filter(|edge| {
                edge.dep_kinds.iter().any(|kind| kind.kind != cargo_metadata::DependencyKind::Development)
            });
            needed.entry(name).or_default().extend(needs.filter_map(|edge| references.get(&edge.pkg)));
        }
    }
    Ok(needed.into_iter().map(|(name, needs)| json!({ "ref": name, "dependsOn": needs })).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cargo_metadata::MetadataCommand;
    use support::workspace;

    use super::*;

    fn bill_of(names: &[&str]) -> (String, Value) {
        let metadata = MetadataCommand::new().current_dir(workspace()).exec().unwrap();
        let all = metadata.packages.iter();
        let packages: Vec<_> = all.filter(|package| names.contains(&package.name.as_str())).collect();
        let lock = fs::read_to_string(workspace().join("Cargo.lock")).unwrap();
        let text = String::from_utf8(bill(&[&metadata], &packages, &lock, "2026-01-01T00:00:00Z").unwrap()).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    #[test]
    fn a_package_has_its_url_its_licence_and_the_checksum_of_the_lock_file() {
        let (_, bill) = bill_of(&["uview-cli", "anyhow", "wire"]);

        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
        assert_eq!(bill["metadata"]["component"]["type"], "application");
        let components = bill["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|component| component["name"] == name).unwrap();
        let anyhow = named("anyhow");
        assert!(anyhow["purl"].as_str().unwrap().starts_with("pkg:cargo/anyhow@1."));
        assert_eq!(anyhow["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let digest = anyhow["hashes"][0]["content"].as_str().unwrap();
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        assert_eq!(
            (named("wire").get("purl"), &named("wire")["licenses"][0]["expression"]),
            (None, &"Apache-2.0".into())
        );
    }

    #[test]
    fn dependencies_are_among_the_components_and_two_bills_are_the_same() {
        let (text, bill) = bill_of(&["uview-cli", "anyhow", "wire", "nic-agent"]);

        let edges = bill["dependencies"].as_array().unwrap();
        let of = |name: &str| edges.iter().find(|edge| edge["ref"].as_str().unwrap().starts_with(name)).unwrap();
        let needs = of("uview-cli@")["dependsOn"].to_string();
        assert!(needs.contains("wire@") && needs.contains("nic-agent@") && !needs.contains("clap"), "{needs}");
        assert_eq!(of("pkg:cargo/anyhow@")["dependsOn"], json!([]));
        assert_eq!(text, bill_of(&["uview-cli", "anyhow", "wire", "nic-agent"]).0);
    }

    #[test]
    fn more_components_are_what_the_program_depends_on() {
        let (text, before) = bill_of(&["uview-cli", "anyhow", "wire"]);
        let library = json!({"type": "library", "bom-ref": "pkg:deb/debian/libc6@2.36?arch=amd64", "name": "libc6"});

        let bill: Value = serde_json::from_slice(&with(text.as_bytes(), vec![library.clone()]).unwrap()).unwrap();

        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), before["components"].as_array().unwrap().len() + 1);
        assert!(components.contains(&library));
        let edges = bill["dependencies"].as_array().unwrap();
        let of = |name: &str| edges.iter().find(|edge| edge["ref"].as_str().unwrap().starts_with(name)).unwrap();
        assert!(of("uview-cli@")["dependsOn"].as_array().unwrap().contains(&library["bom-ref"]));
        assert_eq!(of("pkg:deb/debian/libc6@")["dependsOn"], json!([]));
        assert!(with(b"{}", Vec::new()).is_err(), "no bill");
    }

    #[test]
    fn checksums_are_those_of_packages_that_have_one() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"00ff\"\n\
            \n[[package]]\nname = \"member\"\nversion = \"0.1.0\"\n";

        assert_eq!(checksums(lock), BTreeMap::from([(("a", "1.0.0"), "00ff")]));
    }
}
