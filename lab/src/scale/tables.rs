//! The tables of docs/scale.md.

use super::figures::{CARDS, COSTS, Card, PCIE_SHARE, READ_LATENCY, Range, cluster};
use super::model::{Limit, Service, bus, control_stream, core, read};

const INTERVALS: [(&str, f64); 4] = [("1 ms", 1e-3), ("10 ms", 1e-2), ("100 ms", 0.1), ("1 s", 1.0)];

/// The services of the tables: columns as in the thesis' evaluation, and two services of a hundred metrics.
const SERVICES: [(&str, Service); 3] = [
    ("100 counters and gauges", Service { scalars: 100.0, histograms: 0.0, replicas: 1.0 }),
    ("10 and 30 histograms", Service { scalars: 10.0, histograms: 30.0, replicas: 1.0 }),
    ("141, 4 replicas", Service { scalars: 141.0, histograms: 0.0, replicas: 4.0 }),
];

/// Every table by its name in the page.
pub fn all() -> [(&'static str, String); 6] {
    [
        ("cards", cards()),
        ("costs", costs()),
        ("one core", one_core()),
        ("growth", growth()),
        ("a node", a_node()),
        ("a cluster", a_cluster()),
    ]
}

fn best(range: Range) -> f64 {
    range.best
}

fn worst(range: Range) -> f64 {
    range.worst
}

fn cards() -> String {
    let mut text =
        row(&["card", "cores", "memory", "PCIe to the host", "of it for READs' data", "our share", "slower by"]);
    text += &rule(7);
    for card in &CARDS {
        let Card { name, cores, memory, transfers, lanes, slower } = *card;
        text += &row(&[
            name,
            &whole(cores),
            &format!("{} GB", whole(memory / 1e9)),
            &format!("{} GT/s × {}", whole(transfers / 1e9), whole(lanes)),
            &format!("{} GB/s", digits(bus(card) / 1e9)),
            &format!("{} GB/s", digits(bus(card) * PCIE_SHARE / 1e9)),
            &format!("{} to {}", slower.best, slower.worst),
        ]);
    }
    text
}

fn costs() -> String {
    let mut text = row(&["what", "on this machine", "on a core of BlueField-2", "of BlueField-3"]) + &rule(4);
    let mut cost = |what: &str, seconds: f64| {
        let there =
            |card: &Card| format!("{} to {}", time(seconds * card.slower.best), time(seconds * card.slower.worst));
        text += &row(&[what, &time(seconds), &there(&CARDS[0]), &there(&CARDS[1])]);
    };
    cost("a region", COSTS.region);
    cost("a page of it", COSTS.word * 512.0);
    cost("a column of a further replica", COSTS.increment);
    COSTS.lmap.iter().for_each(|(columns, seconds)| cost(&format!("an LMAP of {columns} columns"), *seconds));
    for (name, service) in &SERVICES {
        cost(&format!("a service of {name}"), service.processor());
    }
    let [two, three] = [&CARDS[0], &CARDS[1]].map(|card| {
        let [low, high] = [best as fn(Range) -> f64, worst].map(|pick| time(read(card, 4096.0, pick(READ_LATENCY))));
        format!("{low} to {high}")
    });
    text + &row(&["a READ of a page among others, waiting", "", &two, &three])
}

fn one_core() -> String {
    let mut text = row(&["card", "every", SERVICES[0].0, SERVICES[1].0, SERVICES[2].0]) + &rule(5);
    for card in &CARDS {
        for (name, interval) in INTERVALS {
            let cells = SERVICES.map(|(_, service)| span(card, service, interval));
            text += &row(&[card.name, name, &cells[0], &cells[1], &cells[2]]);
        }
    }
    text
}

fn growth() -> String {
    let mut text = row(&["metrics", "1 replica", "4 replicas", "16 replicas", "64 replicas"]) + &rule(5);
    for scalars in [16.0, 64.0, 256.0, 1000.0] {
        let cells = [1.0, 4.0, 16.0, 64.0]
            .map(|replicas| span(&CARDS[1], Service { scalars, histograms: 0.0, replicas }, 1e-2));
        text += &row(&[&whole(scalars), &cells[0], &cells[1], &cells[2], &cells[3]]);
    }
    text
}

fn a_node() -> String {
    let service = SERVICES[0].1;
    let head =
        ["card", "every", "services", "metrics read per second", "bus", "memory while learning", "control streams"];
    let mut text = row(&head) + &rule(7);
    for card in &CARDS {
        for (name, interval) in INTERVALS {
            let answer = core(card, card.cores, service, interval, worst);
            let services = answer.services * card.cores;
            text += &row(&[
                card.name,
                name,
                &format!("{} ({})", whole(services), name_of(answer.limit)),
                &with_prefix(services * service.columns() / interval, ""),
                &with_prefix(services * service.fetched() / interval, "B/s"),
                &with_prefix(services * service.memory(), "B"),
                &with_prefix(control_stream(services, interval), "B/s"),
            ]);
        }
    }
    text
}

fn a_cluster() -> String {
    use cluster::{DENSE, EPISODES, INTERVAL, LEADERS, METRICS, NODES, NOT_CALM, SERVICES, SPARSE, TRIGGER};
    let service = Service { scalars: METRICS, histograms: 0.0, replicas: 1.0 };
    let series = SERVICES * METRICS;
    let triggers = 2.0 * EPISODES * SERVICES;
    let mut text = row(&["what", "formula", "a node", "all nodes"]) + &rule(4);
    let mut line = |what: &str, formula: &str, node: f64, unit: &str| {
        text += &row(&[what, formula, &with_prefix(node, unit), &with_prefix(node * NODES, unit)]);
    };
    line("metrics read, within nodes", "S m / T", series / INTERVAL, " metrics/s");
    line("READs' data, within nodes", "S F / T", SERVICES * service.fetched() / INTERVAL, "B/s");
    line("control streams, within nodes", "S (σ + v a / T)", control_stream(SERVICES, INTERVAL), "B/s");
    line("triggers, to leaders", "2 e S L", triggers * LEADERS, " messages/s");
    line("the same", "2 e S L b", triggers * LEADERS * TRIGGER, "B/s");
    line("remote write, everything densely", "S m / d", series / DENSE, " samples/s");
    line("remote write, everything sparsely", "S m / D", series / SPARSE, " samples/s");
    let sampled = series * (1.0 / SPARSE + NOT_CALM / DENSE);
    line("remote write, densely what is not calm", "S m (1 / D + q / d)", sampled, " samples/s");
    text += &row(&["what a leader receives", "2 e S N", "", &with_prefix(triggers * NODES, " messages/s")]);
    text
}

/// The services that a core can monitor, from the worse to the better end of the assumptions, and the limiting
/// resource.
fn span(card: &Card, service: Service, interval: f64) -> String {
    let [low, high] = [worst as fn(Range) -> f64, best].map(|pick| core(card, 1.0, service, interval, pick));
    let [first, last] = [low, high].map(|answer| name_of(answer.limit));
    let limits = if first == last { first.to_owned() } else { format!("{first}, {last}") };
    if low.services == high.services {
        return format!("{} ({limits})", whole(low.services));
    }
    format!("{} to {} ({limits})", whole(low.services), whole(high.services))
}

fn name_of(limit: Limit) -> &'static str {
    match limit {
        Limit::Processor => "time",
        Limit::Reads => "READs",
        Limit::Bus => "bus",
        Limit::Memory => "memory",
        Limit::Lmaps => "LMAPs",
    }
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn rule(cells: usize) -> String {
    "| --- ".repeat(cells) + "|\n"
}

fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let parts: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    parts.join(",")
}

/// Rounds to two significant digits.
fn digits(value: f64) -> String {
    let places = if value > 0.0 { (1 - value.log10().floor() as i32).max(0) } else { 0 };
    if places == 0 { whole(value) } else { format!("{value:.0$}", places as usize) }
}

fn with_prefix(value: f64, unit: &str) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| value >= *scale).unwrap_or((1.0, ""));
    format!("{} {}", digits(value / scale), format!("{prefix}{unit}").trim_start())
}

fn time(seconds: f64) -> String {
    if seconds < 1e-6 { format!("{} ns", digits(seconds * 1e9)) } else { format!("{} µs", digits(seconds * 1e6)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0.0, 12.0, 1234.0, 1_234_567.0].map(whole), ["0", "12", "1,234", "1,234,567"]);
        assert_eq!([0.0, 0.0123, 1.26, 12.6, 1234.0].map(digits), ["0", "0.012", "1.3", "13", "1,234"]);
        assert_eq!([0.46, 1500.0, 2e9].map(|value| with_prefix(value, "B")), ["0.46 B", "1.5 kB", "2.0 GB"]);
        assert_eq!([1.0, 1e4].map(|value| with_prefix(value, " rows")), ["1.0 rows", "10 k rows"]);
        assert_eq!([30e-9, 1.5e-6, 40e-6].map(time), ["30 ns", "1.5 µs", "40 µs"]);
    }

    #[test]
    fn a_cell_has_both_ends_and_what_comes_first() {
        let cells = CARDS.map(|card| span(&card, SERVICES[0].1, 1e-2));

        for cell in cells {
            let (services, limits) = cell.split_once(" (").unwrap();
            assert!(services.split(" to ").all(|end| end.replace(',', "").parse::<u32>().is_ok()), "{cell}");
            assert!(
                limits.ends_with(')') && ["time", "bus", "memory"].iter().any(|name| limits.contains(name)),
                "{cell}"
            );
        }
    }
}
