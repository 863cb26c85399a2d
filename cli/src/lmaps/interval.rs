//! How often rows of an LMAP are taken, and changes to that.

use std::fmt::Write as _;

use wire::proto::operators::{LmapStatus, SetIntervalReply, SetIntervalRequest};

use crate::figures::duration_ms;

/// What `uview lmap` can change of an interval.
#[derive(Clone, Debug, clap::Args)]
pub struct IntervalArgs {
    /// Time between two rows, such as 200ms, 5s or 1m; or default
    #[arg(long, value_name = "TIME", value_parser = choice, requires = "name")]
    interval: Option<Choice>,
    /// Least time between two fetches while something seems wrong; or off, or default
    #[arg(long, value_name = "TIME", value_parser = adaptive, requires = "name")]
    adaptive: Option<Adaptive>,
}

/// An interval that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As the metrics and the configuration say.
    Default,
    /// A number of microseconds.
    Micros(u64),
}

/// How often an LMAP is fetched while something seems wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptive {
    /// Not at all.
    Off,
    /// At most so often.
    Of(Choice),
}

/// The microseconds of a number with a unit: µs, us, ms, s, m or h. `None` for 0, and for other texts.
pub(crate) fn micros(text: &str) -> Option<u64> {
    let digits = text.find(|of: char| !of.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|micros| *micros > 0)
}

fn choice(text: &str) -> Result<Choice, String> {
    if text == "default" {
        return Ok(Choice::Default);
    }
    micros(text).map(Choice::Micros).ok_or_else(|| "a time such as 200ms, 5s or 1m, or default is possible".to_owned())
}

fn adaptive(text: &str) -> Result<Adaptive, String> {
    if text == "off" {
        return Ok(Adaptive::Off);
    }
    choice(text).map(Adaptive::Of).map_err(|_| "a time such as 50ms, off, or default is possible".to_owned())
}

impl IntervalArgs {
    /// Whether a change is asked for.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.interval.is_some() || self.adaptive.is_some()
    }

    /// The interval that is asked for; 0: none, or the default.
    #[must_use]
    pub fn micros(&self) -> u64 {
        match self.interval {
            Some(Choice::Micros(micros)) => micros,
            None | Some(Choice::Default) => 0,
        }
    }

    /// The change that is asked for.
    #[must_use]
    pub fn request(&self, lmap: u32) -> SetIntervalRequest {
        let interval_us = self.interval.map(|_| self.micros());
        let fastest_us = match self.adaptive {
            None | Some(Adaptive::Of(Choice::Default)) => None,
            Some(Adaptive::Off) => Some(0),
            Some(Adaptive::Of(Choice::Micros(micros))) => Some(micros),
        };
        let default_fastest = self.adaptive == Some(Adaptive::Of(Choice::Default));
        SetIntervalRequest { lmap, interval_us, fastest_us, default_fastest }
    }
}

/// What is in effect for a service, in words.
#[must_use]
pub fn in_effect(lmap: &LmapStatus) -> String {
    let by = if lmap.interval_by.is_empty() { String::new() } else { format!(", set by {}", lmap.interval_by) };
    let mut text = format!("{}: a row every {}{by}\n", lmap.service, time(lmap.interval_us));
    if let Some(pace) = pace(lmap) {
        let _ = writeln!(text, "{}: {pace}", lmap.service);
    }
    let _ = writeln!(text, "{}: {}", lmap.service, while_wrong(lmap.fastest_us));
    if let Some(model) = model(lmap) {
        let _ = writeln!(text, "{}: {model}", lmap.service);
    }
    text
}

/// What becomes of the model that an operator gave an LMAP, if there is one.
fn model(lmap: &LmapStatus) -> Option<String> {
    let LmapStatus { model_by: by, model_unused, .. } = lmap;
    let said = if *model_unused {
        format!("the model that {by} gave it is of rows at another interval, and does not judge at this one")
    } else {
        format!("judged by a model that {by} gave it")
    };
    (!by.is_empty()).then_some(said)
}

/// A time as text.
fn time(micros: u64) -> String {
    duration_ms(micros / 1000)
}

fn while_wrong(fastest_us: u64) -> String {
    match fastest_us {
        0 => "while something seems wrong, it is fetched for its rows only".to_owned(),
        micros => {
            format!(
                "while something seems wrong, it is fetched up to ten times per row, at most every {}",
                time(micros)
            )
        }
    }
}

/// What a reply says, in words.
#[must_use]
pub fn changed(service: &str, reply: &SetIntervalReply) -> String {
    let interval = time(reply.interval_us);
    let learning = time(reply.interval_us.saturating_mul(u64::from(reply.rows_needed)));
    let judged = match (reply.rows_needed, reply.judged_us) {
        (0, _) => "what is normal at this interval is known".to_owned(),
        (rows, 0) => format!("nothing is judged until {rows} rows are learnt, which takes {learning}"),
        (rows, judged) => format!(
            "judged every {} until {rows} rows are learnt, which takes {learning}; at once if the NIC agent knows them",
            time(judged)
        ),
    };
    format!("{service}: a row every {interval}; {judged}\n{service}: {}\n", while_wrong(reply.fastest_us))
}

/// How an LMAP deviates from a row every `interval_us`: it is fetched faster, or another interval still judges.
#[must_use]
pub fn pace(lmap: &LmapStatus) -> Option<String> {
    let LmapStatus { interval_us, judged_us, fetch_us, learning_rows, learning_needed, .. } = *lmap;
    if judged_us > 0 && judged_us != interval_us {
        let (judged, learnt) = (time(judged_us), time(interval_us));
        return Some(format!(
            "judged every {judged} while {learnt} is learnt, {learning_rows} of {learning_needed} rows"
        ));
    }
    (0 < fetch_us && fetch_us < judged_us)
        .then(|| format!("fetched every {} since something seems wrong", time(fetch_us)))
}

/// The intervals that are not the usual ones, and a model that somebody gave, for the status.
#[must_use]
pub fn remark(lmap: &LmapStatus) -> Option<String> {
    let set = (!lmap.interval_by.is_empty())
        .then(|| format!("a row every {}, set by {}", time(lmap.interval_us), lmap.interval_by));
    let remarks: Vec<String> = set.into_iter().chain(pace(lmap)).chain(model(lmap)).collect();
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lmap() -> LmapStatus {
        LmapStatus { service: "cart".to_owned(), interval_us: 1_000_000, judged_us: 1_000_000, ..LmapStatus::default() }
    }

    #[test]
    fn times_have_units_and_words_have_meanings() {
        assert_eq!(choice("200ms"), Ok(Choice::Micros(200_000)));
        assert_eq!(choice("5s"), Ok(Choice::Micros(5_000_000)));
        assert_eq!(choice("1m"), Ok(Choice::Micros(60_000_000)));
        assert_eq!(choice("default"), Ok(Choice::Default));
        assert_eq!(adaptive("off"), Ok(Adaptive::Off));
        for wrong in ["200", "ms", "0s", "-1s", "1.5s", "1 s", "99999999999999999h"] {
            assert!(choice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_interval_that_is_learnt_says_what_judges_meanwhile() {
        let reply = SetIntervalReply { interval_us: 200_000, fastest_us: 0, judged_us: 1_000_000, rows_needed: 120 };
        let text = changed("cart", &reply);
        assert!(
            text.starts_with(
                "cart: a row every 200 ms; judged every 1.0 s until 120 rows are learnt, which takes 24.0 s"
            ),
            "{text}"
        );

        let blind = changed("cart", &SetIntervalReply { judged_us: 0, ..reply });
        assert!(blind.contains("nothing is judged until 120 rows"), "{blind}");
        let known = changed("cart", &SetIntervalReply { judged_us: 200_000, rows_needed: 0, ..reply });
        assert!(known.contains("is known"), "{known}");
    }

    #[test]
    fn the_status_remarks_what_is_not_usual() {
        assert_eq!(remark(&lmap()), None);
        assert_eq!(in_effect(&lmap()).lines().next(), Some("cart: a row every 1.0 s"));

        let fast = LmapStatus { fetch_us: 100_000, ..lmap() };
        assert_eq!(remark(&fast).unwrap(), "fetched every 100 ms since something seems wrong");
        let set = LmapStatus {
            interval_us: 200_000,
            interval_by: "user 0".to_owned(),
            learning_rows: 7,
            learning_needed: 120,
            ..lmap()
        };
        assert_eq!(
            remark(&set).unwrap(),
            "a row every 200 ms, set by user 0; judged every 1.0 s while 200 ms is learnt, 7 of 120 rows"
        );
    }

    #[test]
    fn a_model_that_somebody_gave_is_said_with_whether_it_judges() {
        let given = LmapStatus { model_by: "user 0".to_owned(), ..lmap() };
        assert_eq!(remark(&given).unwrap(), "judged by a model that user 0 gave it");
        assert!(in_effect(&given).ends_with("cart: judged by a model that user 0 gave it\n"));

        let unused = remark(&LmapStatus { model_unused: true, ..given }).unwrap();
        assert!(unused.contains("of rows at another interval, and does not judge"), "{unused}");
    }
}
