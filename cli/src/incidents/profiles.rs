//! Profiles of an incident: the heaviest functions in words, and files for other programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::incidents::{draw, profiles, words};
use wire::proto::operators::{Incident, IncidentProfile};
use wire::time::UnixNanos;

use super::STDOUT;
use crate::failure::Failure;
use crate::output;

/// Functions that are printed.
const LISTED: usize = 5;

/// Which profile is written, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Write a profile as a flame graph (SVG) to this file; -: to standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    flame_graph: Option<PathBuf>,
    /// Write a profile for pprof to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    pprof: Option<PathBuf>,
    /// Write a profile as folded stacks to this file; -: to standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html"])]
    folded: Option<PathBuf>,
    /// The service whose profile is written [default: the first that has one]
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
}

impl ProfileArgs {
    /// Writes what was asked for. Returns whether something was.
    pub(super) fn write(&self, incident: &Incident) -> Result<bool, Failure> {
        let files = [&self.flame_graph, &self.pprof, &self.folded];
        if files.iter().all(|file| file.is_none()) {
            return Ok(false);
        }
        let profile = self.profile(incident)?;
        let none = || no_profile(incident, "no stack was sampled");
        if let Some(path) = &self.flame_graph {
            print(path, &draw::flame_graph(profile).ok_or_else(none)?)?;
        }
        if let Some(path) = &self.pprof {
            save(path, &profiles::pprof(profile))?;
        }
        if let Some(path) = &self.folded {
            print(path, &profiles::folded(profile))?;
        }
        Ok(true)
    }

    fn profile<'a>(&self, incident: &'a Incident) -> Result<&'a IncidentProfile, Failure> {
        let fits = |profile: &&IncidentProfile| self.service.as_ref().is_none_or(|wanted| *wanted == profile.service);
        let taken = incident.profiles.iter().filter(fits);
        let (taken, failed): (Vec<_>, Vec<_>) = taken.partition(|profile| profile.problem.is_empty());
        match (taken.first(), failed.first()) {
            (Some(profile), _) => Ok(profile),
            (None, Some(failed)) => Err(no_profile(incident, &format!("{}: {}", failed.service, failed.problem))),
            (None, None) => {
                let has: Vec<_> = incident.profiles.iter().map(|profile| profile.service.as_str()).collect();
                let why = match &self.service {
                    Some(wanted) if !has.is_empty() => format!("there is none of {wanted}, but of {}", has.join(", ")),
                    _ => "no alarm of it was led by processor time, page faults or waiting".to_owned(),
                };
                Err(no_profile(incident, &why))
            }
        }
    }
}

fn no_profile(incident: &Incident, why: &str) -> Failure {
    Failure::to(format!("write a profile of the incident {}", incident.id)).because(why)
}

fn print(path: &Path, text: &str) -> Result<(), Failure> {
    if path.as_os_str() == STDOUT { output::print(text) } else { save(path, text.as_bytes()) }
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = std::fs::write(path, bytes);
    written.map_err(|error| Failure::to(format!("write {}", path.display())).caused_by(&error))?;
    output::print_stderr(&format!("the profile is in {}\n", path.display()));
    Ok(())
}

/// The heaviest functions of each profile.
pub(super) fn in_words(text: &mut String, of: &Incident) {
    for profile in &of.profiles {
        let clock = words::clock(UnixNanos(profile.began_unix_ns));
        // Writing into a string cannot fail.
        _ = writeln!(text, "\nWhat {} did at {clock}\n  {}", profile.service, profiles::sampled(profile));
        for heavy in profiles::heaviest(profile, LISTED) {
            let (itself, whole) = (100.0 * heavy.itself, 100.0 * heavy.whole);
            _ = writeln!(text, "  {itself:3.0} % running, {whole:3.0} % with what it called  {}", heavy.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::IncidentStack;

    use super::*;

    fn incident() -> Incident {
        let profile = IncidentProfile {
            service: "payment".to_owned(),
            event: "processor time".to_owned(),
            began_unix_ns: 1_795_761_735_000_000_000,
            frequency_hz: 99,
            samples: 100,
            names: ["payment-1", "main", "burn"].map(str::to_owned).to_vec(),
            stacks: vec![
                IncidentStack { frames: vec![0, 1, 2], samples: 90 },
                IncidentStack { frames: vec![0, 1], samples: 10 },
            ],
            ..IncidentProfile::default()
        };
        let failed = IncidentProfile {
            service: "store".to_owned(),
            problem: "process 7 is gone".to_owned(),
            ..IncidentProfile::default()
        };
        Incident { id: "20261127-064215-123".to_owned(), profiles: vec![failed, profile], ..Incident::default() }
    }

    fn args(folder: &Path, service: Option<&str>) -> ProfileArgs {
        ProfileArgs {
            flame_graph: Some(folder.join("a.svg")),
            pprof: Some(folder.join("a.pb")),
            folded: Some(folder.join("a.txt")),
            service: service.map(str::to_owned),
        }
    }

    #[test]
    fn the_heaviest_functions_are_told() {
        let mut text = String::new();
        in_words(&mut text, &incident());
        let expected = "
What store did at 00:00:00
  process 7 is gone

What payment did at 06:42:15
  processor time: 100 samples, sampled at 99 Hz
   90 % running,  90 % with what it called  burn
   10 % running, 100 % with what it called  main
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_first_profile_that_was_taken_is_written_in_each_form() {
        let folder = tempfile::tempdir().unwrap();

        assert!(args(folder.path(), None).write(&incident()).unwrap());

        assert!(std::fs::read_to_string(folder.path().join("a.svg")).unwrap().contains("burn"));
        assert_eq!(
            std::fs::read_to_string(folder.path().join("a.txt")).unwrap(),
            "payment-1;main;burn 90\npayment-1;main 10\n"
        );
        assert!(!std::fs::read(folder.path().join("a.pb")).unwrap().is_empty());
    }

    #[test]
    fn why_there_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let why =
            |service, incident: &Incident| args(folder.path(), Some(service)).write(incident).unwrap_err().to_string();

        assert!(why("store", &incident()).contains("store: process 7 is gone"));
        assert!(why("cart", &incident()).contains("there is none of cart, but of store, payment"));
        assert!(why("cart", &Incident::default()).contains("no alarm of it was led by"));
    }
}
