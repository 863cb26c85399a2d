//! The metrics of who is in a stream, and whom they are about.

use std::num::NonZeroU32;
use std::path::Path;

use client::{Client, Counter, Gauge, Group};
use packets::FlowsSettings;
use packets::flows::{DistinctInterval, FlowsInterval, HeavyInterval, MIN_PACKETS, ReorderingInterval, Weight};

use super::stream_service::stream_service;

const REORDERED: &str = "network.reordering.share";
const WORST_PREFIX: &str = "network.reordering.prefix.share";
const PREFIXES: &str = "network.reordering.prefixes";
pub(super) const TOP_TALKER: &str = "network.top_talker.share";
pub(super) const FLOWS: &str = "network.flows.distinct";
const SOURCES: &str = "network.sources.distinct";
const PORTS: &str = "network.ports.distinct";
const FAN_OUT: &str = "network.source.destinations";
const FAN_IN: &str = "network.destination.flows";

/// The metrics of one stream: those of the synopses that it has.
#[derive(Debug)]
pub(super) struct FlowMetrics {
    service: String,
    /// Values, and how many packets were not checked since they are first fragments.
    reordering: Option<([Gauge; 3], Counter)>,
    heavy: Option<(Gauge, Weight)>,
    distinct: Option<[Gauge; 5]>,
    // How good the figures are. No detector watches them.
    checked: Gauge,
    packets: Counter,
    refused: Counter,
    dropped: Counter,
    merged_flag: Gauge,
    oversized: Counter,
    pub(super) clock_steps: Counter,
    // Last: dropping it unregisters the metrics.
    client: Client,
}

impl FlowMetrics {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32, settings: &FlowsSettings) -> Self {
        // The process may measure delays of this stream, too: then that is another replica of the service.
        let instance = format!("synopses-{}", std::process::id());
        let client = client::connect(stream_service(service, socket, interval_ms).instance(instance));
        let gauge = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Network).register();
        let measurement = |name: &str| client.counter(name).unit("{packet}").group(Group::Measurement).register();
        let reordering = || {
            let gauges = [gauge(REORDERED, "1"), gauge(WORST_PREFIX, "1"), gauge(PREFIXES, "{prefix}")];
            (gauges, measurement("network.reordering.fragments"))
        };
        let distinct = || {
            let [flows, sources] = [gauge(FLOWS, "{flow}"), gauge(SOURCES, "{source}")];
            [flows, sources, gauge(PORTS, "{port}"), gauge(FAN_OUT, "{destination}"), gauge(FAN_IN, "{flow}")]
        };
        let checked = client.gauge("network.reordering.checked").unit("{packet}").group(Group::Measurement);
        // Delays of this stream have a flag of their own, for other frames.
        let merged_flag =
            client.gauge("network.flag.synopses_oversized").unit("1").group(Group::Measurement).register();
        // Nobody looks for merged frames in a switch, which merges none.
        merged_flag.set(0.0);
        let steps = client.counter("network.synopses.clock_steps");
        Self {
            service: service.to_owned(),
            reordering: settings.reordering.is_some().then(reordering),
            heavy: settings.heavy.map(|(_, weight)| (gauge(TOP_TALKER, "1"), weight)),
            distinct: settings.window_ns.map(|_| distinct()),
            checked: checked.register(),
            packets: measurement("network.synopses.packets"),
            refused: measurement("network.synopses.refused"),
            dropped: measurement("network.synopses.dropped_by_kernel"),
            merged_flag,
            oversized: measurement("network.synopses.oversized"),
            clock_steps: steps.unit("{step}").group(Group::Measurement).register(),
            client,
        }
    }

    /// Adds merged frames that bias the figures of the interval that is written next, and flags it if there are any.
    pub(super) fn oversized(&self, frames: u64) {
        self.merged_flag.set(f64::from(u8::from(frames > 0)));
        self.oversized.add(frames);
    }

    /// Writes one interval: whom its values are about, then the values.
    pub(super) fn write(&self, interval: &FlowsInterval) {
        if let (Some((gauges, fragments)), Some(found)) = (&self.reordering, &interval.reordering) {
            self.write_reordering(gauges, found);
            fragments.add(found.fragments);
            self.log_order(interval.packets, Some(found));
        }
        if let (Some((gauge, weight)), Some(found)) = (&self.heavy, &interval.heavy) {
            self.client.set_subject(TOP_TALKER, &top_talker(found, *weight));
            gauge.set(found.lasting_share.unwrap_or(f64::NAN));
        }
        if let (Some(gauges), Some(found)) = (&self.distinct, &interval.distinct) {
            self.write_distinct(gauges, found);
        }
        self.packets.add(interval.packets);
        self.client.changed();
    }

    /// Writes an interval that was cut short, since the clock was set back: its packets, and missing values for the
    /// gauges, as its window is partly of a time that is still to come.
    pub(super) fn write_cut(&self, interval: &FlowsInterval) {
        self.set_missing();
        self.clock_steps.add(1);
        self.packets.add(interval.packets);
        self.client.changed();
    }

    /// Writes an interval of which nothing is known but so many packets.
    pub(super) fn write_missing(&self, packets: u64) {
        self.set_missing();
        self.packets.add(packets);
        self.client.changed();
        if self.reordering.is_some() {
            self.log_order(packets, None);
        }
    }

    /// Logs the order of an interval's packets, or that it is not known.
    fn log_order(&self, packets: u64, found: Option<&ReorderingInterval>) {
        tracing::debug!(
            service = self.service,
            packets,
            checked = found.map(|found| found.checked),
            out_of_order = found.map(|found| found.out_of_order),
            "the order of an interval's packets"
        );
    }

    fn set_missing(&self) {
        let reordering = self.reordering.iter().flat_map(|(gauges, _)| gauges);
        let distinct = self.distinct.iter().flatten();
        let heavy = self.heavy.iter().map(|(gauge, _)| gauge);
        reordering.chain(heavy).chain(distinct).for_each(|gauge| gauge.set(f64::NAN));
        self.checked.set(0.0);
    }

    /// Another gauge of what is measured.
    pub(super) fn gauge(&self, name: &str, unit: &str) -> Gauge {
        self.client.gauge(name).unit(unit).group(Group::Network).register()
    }

    /// Sets whom the value of a metric is about.
    pub(super) fn set_subject(&self, metric: &str, subject: &str) {
        self.client.set_subject(metric, subject);
    }

    /// A gauge beside the figures that says how good they are. No detector watches it.
    pub(super) fn flag(&self, name: &str) -> Gauge {
        self.client.gauge(name).unit("1").group(Group::Measurement).register()
    }

    fn write_reordering(&self, [share, worst, prefixes]: &[Gauge; 3], found: &ReorderingInterval) {
        let subject = found
            .worst
            .first()
            .filter(|worst| worst.out_of_order > 0)
            .map(|worst| format!("{} ({} of {} packets checked)", worst.prefix, worst.out_of_order, worst.checked));
        let subject = subject.unwrap_or_default();
        for metric in [REORDERED, WORST_PREFIX, PREFIXES] {
            self.client.set_subject(metric, &subject);
        }
        let is_known = found.checked >= MIN_PACKETS;
        share.set(found.share().filter(|_| is_known).unwrap_or(f64::NAN));
        worst.set(found.worst.first().map_or(f64::NAN, |worst| worst.least_share));
        prefixes.set(found.heavy_prefixes as f64);
        self.checked.set(found.checked as f64);
    }

    fn write_distinct(&self, gauges: &[Gauge; 5], found: &DistinctInterval) {
        let (fan_out, fan_in) = (found.fan_out, found.fan_in);
        let of_source = fan_out.map(|of| format!("{} ({} destinations)", of.source, of.destinations));
        let of_target = fan_in.map(|of| format!("to {} ({} flows)", of.destination, of.flows));
        let (of_source, of_target) = (of_source.unwrap_or_default(), of_target.unwrap_or_default());
        // New flows are of one source, or to one destination: whichever has more of them.
        let (out, into) = (fan_out.map_or(0, |of| of.destinations), fan_in.map_or(0, |of| of.flows));
        let of_flows = if out > into { &of_source } else { &of_target };
        for (metric, subject) in
            [(FLOWS, of_flows), (SOURCES, &of_target), (PORTS, &of_source), (FAN_OUT, &of_source), (FAN_IN, &of_target)]
        {
            self.client.set_subject(metric, subject);
        }
        // That all clients change their addresses at once is no growth.
        let lasting = found.lasting;
        let values = [lasting.flows, lasting.sources, found.ports, out as f64, lasting.fan_in];
        gauges.iter().zip(values).for_each(|(gauge, value)| gauge.set(value));
    }

    /// Adds frames that could not be parsed.
    pub(super) fn refused(&self, frames: u64) {
        self.refused.add(frames);
    }

    /// Adds frames that the kernel dropped.
    pub(super) fn dropped(&self, frames: u64) {
        self.dropped.add(frames);
    }
}

/// The heaviest party, and its weight.
fn top_talker(found: &HeavyInterval, weight: Weight) -> String {
    let top = found.top.first();
    top.map_or_else(String::new, |top| format!("{} ({} of {} {})", top.party, top.least, found.total, weight.name()))
}

#[cfg(test)]
impl FlowMetrics {
    /// The watched values by name.
    pub(super) fn values(&self) -> std::collections::BTreeMap<&'static str, f64> {
        let names = [REORDERED, WORST_PREFIX, PREFIXES];
        let reordering = self.reordering.iter().flat_map(|(gauges, _)| names.into_iter().zip(gauges));
        let heavy = self.heavy.iter().map(|(gauge, _)| (TOP_TALKER, gauge));
        let names = [FLOWS, SOURCES, PORTS, FAN_OUT, FAN_IN];
        let distinct = self.distinct.iter().flat_map(|gauges| names.into_iter().zip(gauges));
        reordering.chain(heavy).chain(distinct).map(|(name, gauge)| (name, gauge.get())).collect()
    }

    /// What a metric is about.
    pub(super) fn subject(&self, metric: &str) -> Option<String> {
        self.client.subject(metric)
    }

    /// The flag of merged frames, and their number.
    pub(super) fn merged(&self) -> (f64, u64) {
        (self.merged_flag.get(), self.oversized.get())
    }

    /// Packets, unparsable frames and dropped ones.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.packets, &self.refused, &self.dropped].map(Counter::get)
    }
}
