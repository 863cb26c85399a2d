//! Which quantiles are of scraping itself. An exporter asks the service for what it tells, and a service that measures
//! its requests measures those, too: as `redis_latency_percentiles_usec{cmd="info"}`.

use std::collections::BTreeSet;

use crate::candidate::{Candidate, Form};

/// Observations between two scrapes, at most: several may scrape.
const MOST: f32 = 4.0;
/// Fewest scrapes in which it is seen that there are no more.
const SCRAPES: usize = 10;

/// Name and labels of each summary that observes something in each scrape, and hardly more than once.
pub fn of_scraping<'c>(candidates: &[Candidate<'c>]) -> BTreeSet<(&'c str, &'c str)> {
    let is_of_scraping = |candidate: &&Candidate<'_>| {
        let growth = candidate.window.iter().filter(|growth| growth.is_finite());
        candidate.form == Form::Counter
            && growth.clone().count() >= SCRAPES
            && growth.clone().all(|growth| *growth <= MOST)
            // A scrape may come just before that of another scraper.
            && growth.clone().filter(|growth| **growth == 0.0).count() * 4 <= growth.count()
    };
    let counts = candidates.iter().filter(is_of_scraping);
    counts.filter_map(|count| Some((count.name.strip_suffix("_count")?, count.labels))).collect()
}

/// Whether `candidate` is a quantile of one of `summaries`.
pub fn is_of_scraping(candidate: &Candidate<'_>, summaries: &BTreeSet<(&str, &str)>) -> bool {
    candidate.form == Form::Quantile
        && summaries.iter().any(|(name, labels)| *name == candidate.name && is_part(labels, candidate.labels))
}

/// Whether `labels` are those of `quantile` but for the label `quantile`.
fn is_part(labels: &str, quantile: &str) -> bool {
    let Some((before, rest)) = quantile.split_once("quantile=\"") else { return false };
    let Some((_, after)) = rest.split_once('"') else { return false };
    // With it goes the comma before it; if it comes first, the one behind it.
    let (before, after) = match before.strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.strip_prefix(',').unwrap_or(after)),
    };
    labels.strip_prefix(before).is_some_and(|rest| rest == after)
        || (labels.is_empty() && before == "{" && after == "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantile<'a>(labels: &'a str, window: &'a [f32]) -> Candidate<'a> {
        Candidate { name: "latency", labels, form: Form::Quantile, window, is_present: true }
    }

    fn count<'a>(labels: &'a str, window: &'a [f32]) -> Candidate<'a> {
        Candidate { name: "latency_count", labels, form: Form::Counter, window, is_present: true }
    }

    #[test]
    fn quantiles_of_what_happens_with_each_scrape_are_found_by_their_labels() {
        let scrapes = [2.0, 2.0, 1.0, 3.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
        let requests = [900.0; 12];
        let summaries = [count("{cmd=\"info\"}", &scrapes), count("{cmd=\"get\"}", &requests)];
        let found = of_scraping(&summaries);
        let is = |labels| is_of_scraping(&quantile(labels, &scrapes), &found);

        assert!(is("{cmd=\"info\",quantile=\"0.5\"}") && is("{quantile=\"0.99\",cmd=\"info\"}"));
        assert!(!is("{cmd=\"get\",quantile=\"0.5\"}") && !is("{cmd=\"information\",quantile=\"0.5\"}"));
        assert!(!is("{cmd=\"info\"}") && !is(""));
    }

    #[test]
    fn without_labels_it_is_the_same_and_what_is_rare_or_hardly_seen_is_not_of_scraping() {
        let found = |window: &[f32]| !of_scraping(&[count("", window)]).is_empty();
        assert!(found(&[1.0; 12]));
        let all = [count("", &[1.0; 12])];
        assert!(is_of_scraping(&quantile("{quantile=\"0.5\"}", &[]), &of_scraping(&all)));

        let mut rare = [0.0; 12];
        rare[3] = 1.0;
        assert!(!found(&rare) && !found(&[0.0; 12]) && !found(&[1.0; 9]) && !found(&[f32::NAN; 12]));
    }
}
