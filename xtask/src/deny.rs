//! `cargo xtask deny`: what the dependencies may be (`deny.toml`), by cargo-deny where it is installed. Where it is
//! not, licences and sources are checked without it, and the rest is said to be not run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use support::workspace;

use crate::licences;

/// The variable that names a clone of the advisory database, for machines that do not reach it.
const DATABASE: &str = "UVIEW_ADVISORY_DB";
/// Where cargo-deny fetches the database from, unless that clone stands for it.
const ADDRESS: &str = "https://github.com/RustSec/advisory-db";
/// Seconds for fetching the database.
const FETCH_WITHIN: &str = "120";

/// Why there is no cargo-deny, and what to do.
pub fn missing() -> Option<String> {
    let output = Command::new("cargo").args(["deny", "--version"]).current_dir(workspace()).output();
    let there = output.is_ok_and(|output| output.status.success());
    (!there).then(|| "it needs `cargo install --locked cargo-deny`".to_owned())
}

/// `cargo xtask deny`: everything that can be checked here. What cannot is printed.
///
/// # Errors
///
/// A dependency that `deny.toml` does not allow, or an advisory about one.
pub fn run() -> Result<()> {
    licences::check()?;
    if let Some(why) = missing() {
        println!("NOT RUN: bans, advisories: {why}");
        return Ok(());
    }
    rules()?;
    match Advisories::fetch()? {
        Fetched::Database(advisories) => advisories.check(),
        Fetched::Unreachable(why) => {
            println!("NOT RUN: advisories: {why}");
            Ok(())
        }
    }
}

/// Licences, bans and sources, by cargo-deny.
///
/// # Errors
///
/// A dependency that `deny.toml` does not allow: cargo-deny has printed it.
pub fn rules() -> Result<()> {
    let arguments = ["deny", "check", "licenses", "bans", "sources"];
    let status = Command::new("cargo").args(arguments).current_dir(workspace()).status()?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// What came of fetching the advisory database.
pub enum Fetched {
    /// It is here.
    Database(Advisories),
    /// Its address cannot be reached, for this reason: advisories are not checked.
    Unreachable(String),
}

/// The advisory database, as cargo-deny keeps it.
pub struct Advisories {
    config: PathBuf,
    clone: Option<String>,
}

impl Advisories {
    /// Fetches the database from the clone that [`DATABASE`] names, else from its address. A clone that was named
    /// and cannot be read is an error, an address that cannot be reached is none.
    ///
    /// # Errors
    ///
    /// A named clone that cannot be read, or files that cannot be written.
    pub fn fetch() -> Result<Fetched> {
        let folder = workspace().join("target/advisories");
        let advisories = Self { config: folder.join("deny.toml"), clone: named_clone() };
        if let Some(clone) = &advisories.clone {
            // Another database than the one of the last run, which may have been fetched from elsewhere.
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            ensure!(Path::new(clone).is_dir(), "{DATABASE} is {clone}, which is no folder: name a clone of {ADDRESS}");
        }
        fs::create_dir_all(&folder)?;
        let rules = fs::read_to_string(workspace().join("deny.toml")).context("deny.toml")?;
        fs::write(&advisories.config, with_database(&rules, &folder)?)?;
        let mut command = Command::new("timeout");
        command.args([FETCH_WITHIN, "cargo"]).args(advisories.arguments(&["fetch", "db"]));
        let output = advisories.environment(&mut command).output()?;
        if output.status.success() {
            return Ok(Fetched::Database(advisories));
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if let Some(clone) = &advisories.clone {
            bail!("{DATABASE} is {clone}, which cannot be cloned:\n{text}");
        }
        let why = format!("the advisory database cannot be fetched: name a clone of {ADDRESS} by {DATABASE}");
        Ok(Fetched::Unreachable(why))
    }

    /// Compares the lock file with the advisories.
    ///
    /// # Errors
    ///
    /// An advisory about a dependency: cargo-deny has printed it.
    pub fn check(&self) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(self.arguments(&["check", "advisories"]));
        let status = self.environment(&mut command).status()?;
        ensure!(
            status.success(),
            "there are advisories about dependencies: update them, or give a reason in deny.toml"
        );
        Ok(())
    }

    fn arguments(&self, task: &[&str]) -> Vec<String> {
        let config = self.config.display().to_string();
        ["deny", "--config", &config].iter().chain(task).map(|word| (*word).to_owned()).collect()
    }

    /// cargo-deny clones by git, which takes the named clone for the address.
    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(workspace());
        if let Some(clone) = &self.clone {
            command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", format!("url.file://{clone}.insteadOf"));
            command.env("GIT_CONFIG_VALUE_0", ADDRESS);
        }
        command
    }
}

#[expect(clippy::disallowed_methods, reason = "only the environment says where the database is")]
fn named_clone() -> Option<String> {
    std::env::var(DATABASE).ok().filter(|path| !path.is_empty())
}

/// `rules` with the folder of the database, which is that of a user otherwise.
fn with_database(rules: &str, folder: &Path) -> Result<String> {
    const TABLE: &str = "[advisories]\n";
    let (before, after) = rules.split_once(TABLE).context("deny.toml has no table [advisories]")?;
    Ok(format!("{before}{TABLE}db-path = {:?}\n{after}", folder.join("databases").display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> String {
        fs::read_to_string(workspace().join("deny.toml")).unwrap()
    }

    #[test]
    fn the_folder_of_the_database_is_the_only_change() {
        let ours = with_database(&rules(), Path::new("/a b")).unwrap();

        assert!(ours.contains("[advisories]\ndb-path = \"/a b/databases\"\n"));
        assert_eq!(ours.replace("db-path = \"/a b/databases\"\n", ""), rules());
        assert!(with_database("[bans]\n", Path::new("/a")).is_err());
    }

    #[test]
    fn allowed_licences_are_the_same_with_and_without_cargo_deny() {
        let rules = rules();
        let (_, list) = rules.split_once("\nallow = [\n").expect("deny.toml allows licences");
        let (list, _) = list.split_once(']').expect("a list has an end");
        let lines = list.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let allowed: Vec<_> = lines.map(|line| line.trim_matches([',', '"'])).collect();

        assert_eq!(allowed, licences::PERMISSIVE);
        assert!(rules.contains(licences::REGISTRY), "deny.toml allows another registry");
    }
}
