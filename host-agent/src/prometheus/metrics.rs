//! `/metrics` of scrapes.

use core::fmt;
use std::sync::Arc;

use agent_runtime::Count;
use exposition::{ExcludedSeries, Exclusion, RefusedSamples};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::targets::Targets;
use super::view::{REASONS, ScrapeCounts, TargetView};
use crate::metrics_endpoint::encoding::{counter, counters_by_reason, gauge, gauges_by_reason};

/// Collects the values of all targets on each scrape.
#[derive(Debug)]
pub(crate) struct TargetMetrics(pub(crate) Targets);

/// Targets that there are now, and what those have counted that are gone.
struct Views<'a>(Vec<Arc<TargetView>>, &'a ScrapeCounts);

impl Views<'_> {
    fn counts(&self) -> impl Iterator<Item = &ScrapeCounts> {
        self.0.iter().map(|view| &view.counts).chain([self.1])
    }

    /// A counter with the label `reason`, summed over targets.
    fn by_reason<const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        what: (&str, &str),
        reasons: &[&'static str; N],
        of: fn(&ScrapeCounts) -> &[Count; N],
    ) -> fmt::Result {
        let sum = |at: usize| self.counts().filter_map(|counts| of(counts).get(at)).map(Count::get).sum::<u64>();
        counters_by_reason(encoder, what, reasons.iter().enumerate().map(|(at, reason)| (*reason, sum(at))))
    }
}

impl Collector for TargetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let views = Views(self.0.views(), self.0.gone());
        let sum = |of: fn(&ScrapeCounts) -> &Count| -> u64 { views.counts().map(|counts| of(counts).get()).sum() };
        let e = &mut encoder;
        counter(e, "scrapes", "Scrapes of Prometheus targets.", sum(|counts| &counts.scrapes))?;
        counter(e, "scrape_us", "Time that scrapes took, from request to values.", sum(|counts| &counts.took_us))?;
        counter(e, "scrape_bytes", "Bytes of answers of targets, as sent.", sum(|counts| &counts.bytes))?;
        let help = "Scrapes left out since the one before took too long.";
        counter(e, "late_scrapes", help, sum(|counts| &counts.late))?;
        let help = "Samples of targets that were not looked at, by reason.";
        views.by_reason(e, ("refused_samples", help), &RefusedSamples::REASONS, |counts| &counts.refused)?;
        let help = "Scrapes that failed, by reason.";
        views.by_reason(e, ("failed_scrapes", help), &REASONS, |counts| &counts.failed)?;
        let (mut exposed, mut watched, mut excluded) = (0, 0, ExcludedSeries::default());
        for view in &views.0 {
            let target = view.target();
            exposed += target.exposed();
            watched += target.watched();
            excluded = excluded.and(target.excluded());
        }
        let down = views.0.iter().filter(|view| view.state().down.is_some()).count();
        gauge(&mut encoder, "targets", "Prometheus targets that are configured.", views.0.len())?;
        gauge(&mut encoder, "down_targets", "Prometheus targets whose last scrape failed.", down)?;
        gauge(&mut encoder, "exposed_series", "Series that targets expose.", exposed)?;
        gauge(&mut encoder, "chosen_series", "Series of targets with columns of their own.", watched)?;
        let help = "Series of targets that no column has, by reason; of reason type samples that are no series.";
        let excluded = Exclusion::REASONS.into_iter().zip(excluded.counts());
        gauges_by_reason(&mut encoder, ("unwatched_series", help), excluded)
    }
}
