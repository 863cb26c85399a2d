//! What looks find of a service from a moment on at which it was quiet: rows, alarms, and whether it is still the same
//! service. Pure.

use core::fmt;
use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use super::super::kit::Status;

/// What an LMAP has counted.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// The number of the LMAP itself, which another one of the service does not have.
    lmap: u64,
    /// Alarms that began, also if they were over before anybody looked.
    alarms: u64,
    rows: u64,
}

impl Counts {
    /// Those of a service; none: it has no LMAP.
    fn of(status: &Status, service: &str) -> Option<Self> {
        let count = |key: &str| status.lmap(service)[key].as_u64();
        Some(Self { lmap: count("lmap")?, alarms: count("alarms")?, rows: count("samples")? })
    }
}

/// A service that is to stay quiet, and what it is.
#[derive(Clone, Debug)]
pub struct QuietWatch {
    service: String,
    /// Names of all services at first.
    services: BTreeSet<String>,
    first: Counts,
    last: Counts,
    /// What made it alarm, as of the first look at an alarm.
    reasons: Option<String>,
    /// Services that were in alarm meanwhile: if these are others, the machine may be why.
    in_alarm: BTreeSet<String>,
    /// What else was not as it should be.
    findings: BTreeSet<String>,
}

impl QuietWatch {
    /// From this look on.
    ///
    /// # Errors
    ///
    /// The service has no LMAP.
    pub fn begin(service: &str, status: &Status) -> Result<Self> {
        let first = Counts::of(status, service).with_context(|| format!("{service} has no LMAP; {status}"))?;
        let (reasons, in_alarm, findings) = Default::default();
        let (services, service) = (names(status), service.to_owned());
        let mut watch = Self { service, services, first, last: first, reasons, in_alarm, findings };
        watch.look(status);
        Ok(watch)
    }

    /// Forgets what was found, and goes on from the last look.
    #[must_use]
    pub fn anew(self) -> Self {
        let (reasons, in_alarm, findings) = Default::default();
        Self { first: self.last, reasons, in_alarm, findings, ..self }
    }

    /// Takes a look.
    pub fn look(&mut self, status: &Status) {
        let service = self.service.as_str();
        let services = names(status);
        if services != self.services {
            self.findings.insert(format!("services are {services:?}, and were {:?}", self.services));
        }
        self.in_alarm.extend(services.into_iter().filter(|of| status.is_in_alarm(of)));
        let Some(now) = Counts::of(status, service) else {
            self.findings.insert("it has no LMAP".to_owned());
            return;
        };
        if now.lmap != self.first.lmap {
            self.findings.insert(format!("LMAP {} is there in place of {}", now.lmap, self.first.lmap));
        }
        if status.learns_anew(service) {
            self.findings.insert("it learns anew".to_owned());
        } else if !status.is_judged(service) {
            self.findings.insert(format!("rows are not judged: {}", status.lmap(service)["state"]));
        }
        if status.is_in_alarm(service) && self.reasons.is_none() {
            self.reasons = Some(status.reasons(service));
        }
        self.last = now;
    }

    /// Rows since the begin.
    pub const fn rows(&self) -> u64 {
        self.last.rows.saturating_sub(self.first.rows)
    }

    /// Alarms that have begun since.
    const fn alarms(&self) -> u64 {
        self.last.alarms.saturating_sub(self.first.alarms)
    }

    /// Whether no alarm has begun or was on, all its rows were judged, and it is what it was.
    pub fn is_quiet(&self) -> bool {
        self.alarms() == 0 && self.reasons.is_none() && self.findings.is_empty()
    }

    /// Judges what was found.
    ///
    /// # Errors
    ///
    /// It was not quiet.
    pub fn judge(&self) -> Result<()> {
        ensure!(self.is_quiet(), "{self}");
        Ok(())
    }
}

impl fmt::Display for QuietWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} rows, {} alarms began", self.service, self.rows(), self.alarms())?;
        for found in self.reasons.iter().chain(&self.findings) {
            write!(f, "; {found}")?;
        }
        if !self.in_alarm.is_empty() {
            write!(f, "; in alarm meanwhile: {:?}", self.in_alarm)?;
        }
        Ok(())
    }
}

fn names(status: &Status) -> BTreeSet<String> {
    status.services().into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SERVICE: &str = "shop/frontend";

    fn lmap(service: &str) -> Value {
        json!({
            "service": service, "lmap": 4, "state": "armed", "alarm": false, "alarms": 2, "samples": 1_000, "rows": 600,
        })
    }

    /// A status with the frontend as `changes` have it, and a cart.
    fn status(changes: &[(&str, Value)]) -> Status {
        let mut frontend = lmap(SERVICE);
        for (key, value) in changes {
            frontend[*key] = value.clone();
        }
        Status::from(json!({ "lmaps": [frontend, lmap("shop/cart")] }))
    }

    fn watch() -> QuietWatch {
        QuietWatch::begin(SERVICE, &status(&[])).unwrap()
    }

    #[test]
    fn a_service_that_goes_on_is_quiet_and_its_rows_are_counted() {
        let mut watch = watch();

        watch.look(&status(&[("samples", json!(1_120))]));
        watch.look(&status(&[("samples", json!(1_300)), ("state", json!("drifted")), ("replicas", json!(4))]));

        assert!(watch.judge().is_ok());
        assert_eq!((watch.rows(), watch.to_string().as_str()), (300, "shop/frontend: 300 rows, 0 alarms began"));
    }

    #[test]
    fn an_alarm_counts_also_if_no_look_has_seen_it() {
        let (mut unseen, mut seen) = (watch(), watch());
        let reason = json!([{"column": "requests", "seen": 9, "unit": "", "expected": 2, "replica": "frontend-a"}]);

        unseen.look(&status(&[("alarms", json!(3))]));
        seen.look(&status(&[("alarms", json!(3)), ("alarm", json!(true)), ("reasons", reason)]));
        seen.look(&status(&[("alarms", json!(4)), ("alarm", json!(true)), ("samples", json!(1_005))]));

        assert_eq!(unseen.judge().unwrap_err().to_string(), "shop/frontend: 0 rows, 1 alarms began");
        assert_eq!(
            seen.judge().unwrap_err().to_string(),
            "shop/frontend: 5 rows, 2 alarms began; shop/frontend: requests 9 , expected 2, replica frontend-a; in alarm \
             meanwhile: {\"shop/frontend\"}"
        );
        // One that was on before, and that no count tells.
        assert!(!QuietWatch::begin(SERVICE, &status(&[("alarm", json!(true))])).unwrap().is_quiet());
    }

    #[test]
    fn another_lmap_another_name_and_rows_that_are_not_judged_are_found() {
        for (changes, found) in [
            (vec![("lmap", json!(5)), ("alarms", json!(0))], "LMAP 5 is there in place of 4"),
            (vec![("state", json!("learning"))], "it learns anew"),
            (vec![("state", json!("learning")), ("rows", json!(3))], "rows are not judged: \"learning\""),
            (vec![("state", json!("silent"))], "rows are not judged: \"silent\""),
            (vec![("service", json!("shop/frontend-5d8c"))], "it has no LMAP"),
            (vec![("service", json!("shop/frontend-5d8c"))], "services are {\"shop/cart\", \"shop/frontend-5d8c\"}"),
        ] {
            let mut watch = watch();

            watch.look(&status(&changes));

            let said = watch.judge().unwrap_err().to_string();
            assert!(said.contains(found), "{found}: {said}");
        }
        assert!(QuietWatch::begin("shop/store", &status(&[])).is_err());
    }

    #[test]
    fn what_others_do_is_said_and_no_finding() {
        let mut watch = watch();
        let mut cart = lmap("shop/cart");
        cart["alarm"] = json!(true);

        watch.look(&Status::from(json!({ "lmaps": [lmap(SERVICE), cart] })));

        assert!(watch.is_quiet());
        assert!(watch.to_string().ends_with("in alarm meanwhile: {\"shop/cart\"}"), "{watch}");
    }

    #[test]
    fn anew_what_was_found_does_not_count() {
        let mut watch = watch();
        watch.look(&status(&[("alarms", json!(3)), ("alarm", json!(true)), ("samples", json!(1_100))]));

        let mut watch = watch.anew();
        watch.look(&status(&[("alarms", json!(3)), ("samples", json!(1_140))]));

        assert_eq!((watch.is_quiet(), watch.rows()), (true, 40));
        watch.look(&status(&[("alarms", json!(4)), ("samples", json!(1_150))]));
        assert!(!watch.is_quiet());
    }
}
