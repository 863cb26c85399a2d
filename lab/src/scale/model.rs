//! The formulas. Every quantity is in seconds, bytes, or a count.

use super::figures::{
    COSTS, Card, DETECTOR, FIRST_REGION, HEADER, HISTOGRAM_COLUMNS, HISTOGRAM_SLOTS, MAX_LMAPS, MEMORY_SHARE, PAGE,
    PCIE_CODING, PCIE_OVERHEAD, PCIE_PAYLOAD, PCIE_SHARE, PROCESS_REGION, READ_LATENCY, READS_POSTED, READS_UNDER_WAY,
    ROWS_KEPT, ROWS_LEARNT, Range, SLOT, SUMMARY, TICK_SHARE, VERDICT, VERDICT_SHARE,
};

/// The properties of a service that determine the cost of monitoring it.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Number of counters and gauges, each with a slot and a column.
    pub scalars: f64,
    /// Number of histograms of the default scale.
    pub histograms: f64,
    /// Number of replicas on the node, each with a region of its own and one for its process metrics, which are
    /// included in `scalars`.
    pub replicas: f64,
}

/// The resource that limits the number of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Processor time for columns and detectors.
    Processor,
    /// Latency of READs.
    Reads,
    /// The core's share of the bus to the host.
    Bus,
    /// The core's share of the card's memory, while all LMAPs learn.
    Memory,
    /// Maximal number of LMAPs of a worker.
    Lmaps,
}

/// The number of services that one core can monitor.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Number of services.
    pub services: f64,
    /// The limit that is reached first.
    pub limit: Limit,
}

impl Service {
    /// Columns of its LMAP.
    pub fn columns(self) -> f64 {
        self.scalars + HISTOGRAM_COLUMNS * self.histograms
    }

    /// Bytes of a replica's own region: whole pages, all of which are fetched.
    pub fn region(self) -> f64 {
        let bytes = HEADER + SLOT * (self.scalars + HISTOGRAM_SLOTS * self.histograms);
        ((bytes / PAGE).ceil() * PAGE).max(FIRST_REGION)
    }

    /// Bytes fetched per tick.
    pub fn fetched(self) -> f64 {
        self.replicas * (self.region() + PROCESS_REGION)
    }

    /// Processor time of a tick on the machine on which the costs were measured.
    pub fn processor(self) -> f64 {
        let regions = 2.0 * self.replicas * COSTS.region + COSTS.word * self.fetched() / SLOT;
        regions + (self.replicas - 1.0) * COSTS.increment * self.columns() + lmap(self.columns())
    }

    /// Bytes of its LMAP while it learns, and of the fetch buffers.
    pub fn memory(self) -> f64 {
        self.columns() * (DETECTOR + SLOT * (ROWS_LEARNT + ROWS_KEPT)) + self.fetched()
    }
}

/// Cost of an LMAP by its number of columns: linear interpolation between the measured points, extrapolated beyond the
/// last one.
fn lmap(columns: f64) -> f64 {
    let points = &COSTS.lmap;
    let last = points.len() - 2;
    let at = points.iter().skip(1).position(|(known, _)| columns <= *known).unwrap_or(last);
    let ((x0, y0), (x1, y1)) = (points[at], points[at + 1]);
    (y0 + (columns - x0) * (y1 - y0) / (x1 - x0)).max(0.0)
}

/// Bytes per second of the bus when a device reads the host's memory.
pub fn bus(card: &Card) -> f64 {
    let raw = card.transfers * card.lanes * PCIE_CODING / 8.0;
    raw * PCIE_PAYLOAD / (PCIE_PAYLOAD + PCIE_OVERHEAD)
}

/// Time of a READ of `bytes` among many pipelined ones, when a single one takes `latency`.
pub fn read(card: &Card, bytes: f64, latency: f64) -> f64 {
    (latency / READS_UNDER_WAY).max(bytes / bus(card)) + latency / READS_POSTED
}

/// The services that one core of `card` can monitor every `interval` if `cores` cores do. `pick` selects an end of each
/// assumed range.
pub fn core(card: &Card, cores: f64, service: Service, interval: f64, pick: fn(Range) -> f64) -> Answer {
    // Sequential: a fetched batch is scored before the next one.
    let reads = [service.region(), PROCESS_REGION].map(|bytes| read(card, bytes, pick(READ_LATENCY)));
    let waiting = service.replicas * reads.iter().sum::<f64>();
    let working = service.processor() * pick(card.slower);
    let time = (TICK_SHARE * interval - pick(READ_LATENCY)).max(0.0) / (waiting + working);
    let slower = if waiting > working { Limit::Reads } else { Limit::Processor };
    let bytes = service.fetched() / interval;
    let limits = [
        (time, slower),
        (PCIE_SHARE * bus(card) / cores / bytes, Limit::Bus),
        (MEMORY_SHARE * card.memory / cores / service.memory(), Limit::Memory),
        (MAX_LMAPS, Limit::Lmaps),
    ];
    let first = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    first.map_or(Answer { services: 0.0, limit: slower }, |(services, limit)| Answer {
        services: services.floor(),
        limit,
    })
}

/// Bytes per second from workers with `services` LMAPs to their host agent: a summary each second, and immediate
/// verdicts.
pub fn control_stream(services: f64, interval: f64) -> f64 {
    services * (SUMMARY + VERDICT * VERDICT_SHARE / interval)
}

#[cfg(test)]
mod tests {
    use super::super::figures::CARDS;
    use super::*;

    const HUNDRED: Service = Service { scalars: 100.0, histograms: 0.0, replicas: 1.0 };

    fn best(range: Range) -> f64 {
        range.best
    }

    fn worst(range: Range) -> f64 {
        range.worst
    }

    #[test]
    fn regions_are_whole_pages_and_the_first_one_is_large() {
        assert_eq!(HUNDRED.region(), 16384.0);
        assert_eq!(Service { scalars: 2040.0, ..HUNDRED }.region(), 16384.0);
        assert_eq!(Service { scalars: 2041.0, ..HUNDRED }.region(), 20480.0);
        assert_eq!(Service { scalars: 0.0, histograms: 17.0, replicas: 1.0 }.region(), 20480.0);
        assert_eq!(Service { replicas: 3.0, ..HUNDRED }.fetched(), 3.0 * 20480.0);
    }

    #[test]
    fn between_what_was_measured_lies_what_is_between() {
        for pair in COSTS.lmap.windows(2) {
            let middle = f64::midpoint(pair[0].0, pair[1].0);
            assert_eq!((lmap(pair[0].0), lmap(pair[1].0)), (pair[0].1, pair[1].1));
            assert!((lmap(middle) - f64::midpoint(pair[0].1, pair[1].1)).abs() < 1e-12);
        }
        let beyond = COSTS.lmap[COSTS.lmap.len() - 1];
        assert!(lmap(1.0) >= 0.0 && lmap(2.0 * beyond.0) > beyond.1);
    }

    #[test]
    fn a_bus_carries_what_its_specification_says() {
        // 16 GT/s on 16 lanes are 31.5 GB/s before, and 27 behind the headers of completions of 128 bytes.
        assert!((bus(&CARDS[0]) / 1e9 - 27.2).abs() < 0.1, "{}", bus(&CARDS[0]));
        assert!((bus(&CARDS[1]) / bus(&CARDS[0]) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn short_reads_wait_for_answers_and_long_ones_for_the_bus() {
        let [short, long] = [4096.0, 1e6].map(|bytes| read(&CARDS[0], bytes, 4e-6));

        assert!((short - 4e-6 / 16.0 - 4e-6 / 256.0).abs() < 1e-12);
        assert!((long - 1e6 / bus(&CARDS[0]) - 4e-6 / 256.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_that_is_promised_exceeds_any_limit() {
        for card in &CARDS {
            for interval in [1e-3, 1e-2, 0.1, 1.0] {
                for pick in [best, worst] {
                    let services = core(card, card.cores, HUNDRED, interval, pick).services;
                    let busy = services * HUNDRED.processor() * pick(card.slower);
                    assert!(busy <= TICK_SHARE * interval, "{} {interval}", card.name);
                    assert!(services * HUNDRED.fetched() / interval * card.cores <= PCIE_SHARE * bus(card));
                    assert!(services * HUNDRED.memory() * card.cores <= MEMORY_SHARE * card.memory);
                    assert!(services <= MAX_LMAPS);
                }
            }
        }
    }

    #[test]
    fn longer_intervals_watch_no_less_and_more_replicas_no_more() {
        for pick in [best, worst] {
            let at =
                |interval, replicas| core(&CARDS[1], 1.0, Service { replicas, ..HUNDRED }, interval, pick).services;
            assert!(at(1e-3, 1.0) <= at(1e-2, 1.0) && at(1e-2, 1.0) <= at(0.1, 1.0));
            assert!(at(1e-3, 1.0) >= at(1e-3, 2.0) && at(1e-3, 2.0) >= at(1e-3, 8.0));
        }
    }

    #[test]
    fn an_interval_shorter_than_a_read_watches_nothing() {
        assert_eq!(core(&CARDS[0], 1.0, HUNDRED, 1e-6, worst).services, 0.0);
    }

    #[test]
    fn the_control_stream_is_a_summary_each_second_and_few_verdicts() {
        let calm = control_stream(10.0, f64::INFINITY);

        assert_eq!(calm, 10.0 * SUMMARY);
        assert!((control_stream(10.0, 0.1) - calm - 10.0 * 10.0 * VERDICT * VERDICT_SHARE).abs() < 1e-9);
    }

    #[test]
    fn what_comes_first_is_named() {
        let card =
            Card { cores: 1.0, memory: 1e15, transfers: 1e15, slower: Range { best: 1.0, worst: 1.0 }, ..CARDS[0] };
        let limit = |card: &Card, interval| core(card, 1.0, HUNDRED, interval, best).limit;
        let slow = Range { best: 1e3, worst: 1e3 };

        assert_eq!(limit(&Card { slower: slow, ..card }, 1e-3), Limit::Processor);
        assert_eq!(limit(&Card { slower: Range { best: 0.0, worst: 0.0 }, ..card }, 1e-4), Limit::Reads);
        assert_eq!(limit(&Card { transfers: 1e8, ..card }, 1e-3), Limit::Bus);
        assert_eq!(limit(&Card { memory: 1e8, ..card }, 1.0), Limit::Memory);
        assert_eq!(limit(&card, 1.0), Limit::Lmaps);
    }
}
