//! One record: bounded texts, scores at falling resolution, the order of its services, and its size.

use page::shown::shortened;
use prost::Message as _;
use wire::proto::operators::{Incident, IncidentProfile, IncidentService, IncidentSummary};

/// Bytes of an encoded record.
pub const MAX_RECORD_BYTES: usize = 256 << 10;
/// Services of a record.
pub const MAX_SERVICES: usize = 32;
/// Metrics, and silent replicas, of one service.
pub const MAX_METRICS: usize = 8;
/// Scores of one service; with more, each stands for twice the time.
pub const MAX_STEPS: usize = 600;
/// Services in a line of the list.
const LISTED: usize = 8;
/// Characters of a name or a title.
const MAX_NAME: usize = 300;

/// `text` in one printable line that is not too long.
pub(crate) fn short(text: &str) -> String {
    shortened(text, MAX_NAME)
}

/// The same profile with bounded texts.
pub(super) fn bounded_profile(profile: &IncidentProfile) -> IncidentProfile {
    IncidentProfile {
        service: short(&profile.service),
        names: profile.names.iter().map(|name| short(name)).collect(),
        problem: short(&profile.problem),
        ..profile.clone()
    }
}

/// Adds a score in `second` since 1970; of a step the largest counts. What is before the first step is left out.
pub(super) fn push(service: &mut IncidentService, second: u64, ratio: f32) {
    let Some(after) = second.checked_sub(service.ratios_from_s) else { return };
    service.ratio_step_s = service.ratio_step_s.max(1);
    while after / u64::from(service.ratio_step_s) >= MAX_STEPS as u64 {
        let pairs = service.ratios.chunks(2);
        service.ratios = pairs.map(|pair| pair.iter().copied().fold(f32::NAN, f32::max)).collect();
        service.ratio_step_s = service.ratio_step_s.saturating_mul(2);
        if service.ratio_step_s > u32::MAX / 2 {
            return;
        }
    }
    let step = (after / u64::from(service.ratio_step_s)) as usize;
    if service.ratios.len() <= step {
        service.ratios.resize(step + 1, f32::NAN);
    }
    service.ratios[step] = service.ratios[step].max(ratio);
}

/// Sorts services by rank, and numbers them.
pub(super) fn order(record: &mut Incident) {
    record.services.sort_by_key(|service| service.rank);
    (1..).zip(&mut record.services).for_each(|(rank, service)| service.rank = rank);
}

/// The line of the list.
#[must_use]
pub fn summary(record: &Incident) -> IncidentSummary {
    IncidentSummary {
        id: record.id.clone(),
        began_unix_ns: record.began_unix_ns,
        ended_unix_ns: record.ended_unix_ns,
        cause: record.cause.clone(),
        services: record.services.iter().take(LISTED).map(|service| service.service.clone()).collect(),
        kept_traces: record.kept_traces,
        kept_logs: record.kept_logs,
    }
}

/// Leaves out what matters least until the record has [`MAX_RECORD_BYTES`] at most: the last trace, the last log
/// record, the last profile, scores of the service that is suspected least, that service.
pub(super) fn fit(record: &mut Incident) {
    while record.encoded_len() > MAX_RECORD_BYTES {
        if record.traces.pop().is_some() || record.logs.pop().is_some() || record.profiles.pop().is_some() {
            continue;
        }
        if let Some(service) = record.services.iter_mut().rfind(|service| !service.ratios.is_empty()) {
            service.ratios.clear();
        } else if record.services.pop().is_some() {
            record.further_services = record.further_services.saturating_add(1);
        } else if record.changes.pop().is_none() && record.streams.pop().is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::{IncidentSpan, IncidentTrace};

    use super::*;

    #[test]
    fn scores_keep_their_peaks_at_falling_resolution() {
        let mut service = IncidentService { ratios_from_s: 100, ..IncidentService::default() };
        for second in 100..100 + 5_000 {
            push(&mut service, second, if second == 3_333 { 50.0 } else { 0.5 });
        }
        push(&mut service, 5, 9.0);

        assert!(service.ratios.len() <= MAX_STEPS && service.ratio_step_s == 16, "{}", service.ratio_step_s);
        let at = ((3_333 - 100) / 16) as usize;
        assert_eq!(service.ratios.iter().position(|ratio| *ratio == 50.0), Some(at));
        assert!(service.ratios.iter().all(|ratio| *ratio >= 0.5));
    }

    #[test]
    fn a_clock_that_jumps_far_takes_no_memory() {
        let mut service = IncidentService { ratios_from_s: 100, ratios: vec![1.0], ..IncidentService::default() };
        push(&mut service, u64::MAX, 1.0);
        push(&mut service, 10_000_000_000, 1.0);

        assert!(service.ratios.len() <= MAX_STEPS);
    }

    #[test]
    fn a_gap_in_time_is_a_gap_in_the_scores() {
        let mut service = IncidentService::default();
        push(&mut service, 2, 0.5);
        push(&mut service, 2, 0.4);

        assert!(service.ratios[0].is_nan() && service.ratios[1].is_nan());
        assert_eq!(service.ratios[2], 0.5);
    }

    #[test]
    fn a_record_that_is_too_long_loses_what_matters_least() {
        let span = IncidentSpan { name: "x".repeat(300), ..IncidentSpan::default() };
        let trace = IncidentTrace { spans: vec![span; 200], ..IncidentTrace::default() };
        let service = |rank| IncidentService { rank, ratios: vec![1.0; 600], ..IncidentService::default() };
        let mut record =
            Incident { traces: vec![trace; 5], services: (0..32).map(service).collect(), ..Incident::default() };

        fit(&mut record);

        assert!(record.encoded_len() <= MAX_RECORD_BYTES);
        assert_eq!((record.traces.len(), record.services.len()), (3, 32));
        assert!(record.services.iter().all(|service| service.ratios.len() == 600));
    }
}
