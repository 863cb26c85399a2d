//! The figures of host and switch side by side, and the bars that say when they are the same.

use std::fmt::Write as _;

use serde::Serialize;

use super::alarms::StreamAlarm;
use super::figures::Figures;
use super::link::LinkTruth;
use super::setting::{INTERVAL, INTERVAL_MS, Measure};

/// Intervals by whose packets two counts may differ: one at each end of the time.
const ENDS: f64 = 2.0;
/// What two delays may differ by in any case, in milliseconds: a packet is stamped in several places one after the
/// other.
const STAMPS_MS: f64 = 0.05;
/// Standard deviations by which shares of a sample may differ from those of all.
const DEVIATIONS: f64 = 4.0;
/// The share of segments out of order that the relay has to send where an alarm is expected: of fewer, figures that
/// agree would say little.
const MIN_REORDERED: f64 = 0.01;

/// What came of one condition. Pairs are those of the host and of the switch.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub condition: String,
    /// Whether an alarm has to come.
    pub expected: Option<bool>,
    pub relay: LinkTruth,
    /// How long the switch took to pass on what the host stamps later than the switch.
    pub passage_ms: Option<f64>,
    /// By how much times of two switches may be apart at most, as their agents say; 0 with one switch.
    pub clock_error_ms: f64,
    pub figures: [Figures; 2],
    pub alarms: [Option<StreamAlarm>; 2],
}

/// Requests, packets, or segments out of order that both had to count exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Burst {
    pub truth: u64,
    pub counted: [u64; 2],
}

/// What came of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct MeasureResult {
    pub measure: Measure,
    pub rows: Vec<Row>,
    pub burst: Burst,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What ran the programs.
    pub switch: String,
    /// Length of each condition.
    pub seconds: u64,
    pub cores: usize,
    pub results: Vec<MeasureResult>,
}

/// Something that has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    pub text: String,
    pub met: bool,
}

impl Row {
    /// Whether the verdicts of host and switch are the same: counts, delays, shares, alarms. Of order also whether they
    /// are the relay's.
    fn bars(&self, measure: Measure) -> Vec<Bar> {
        let [host, switch] = &self.figures;
        let bar = |what: &str, seen: [String; 2], met: bool| {
            let [host, switch] = seen;
            Bar { text: format!("{}, {}: {what}: {host} and {switch}", measure.title(), self.condition), met }
        };
        let shares = || [percent(host.share), percent(switch.share)];
        let mut bars = vec![bar(measure.counted(), self.counts(), self.counts_agree(measure))];
        if let Some(delay) = measure.delay() {
            let met = self.delays_agree(delay.tolerance);
            let mut what = delay.name.to_owned();
            if self.clock_error_ms > 0.0 {
                // Writing to a text does not fail.
                _ = write!(what, ", times of switches known to {:.3} ms", self.clock_error_ms);
            }
            bars.push(bar(&what, [ms(host.delay_ms), ms(switch.delay_ms)], met));
        }
        bars.push(bar(measure.share(), shares(), self.shares_agree(measure)));
        if measure == Measure::Reordering {
            let what = format!("{}, the relay {}", measure.share(), percent(self.relay.reordered()));
            bars.push(bar(&what, shares(), self.order_agrees(measure)));
        }
        let [first, second] = self.alarms.each_ref().map(Option::is_some);
        bars.push(bar(
            "alarm",
            self.alarms.each_ref().map(|alarm| text_of(alarm.as_ref())),
            first == second && self.expected.is_none_or(|expected| expected == first),
        ));
        bars
    }

    fn counts(&self) -> [String; 2] {
        self.figures.map(|figures| figures.counted.to_string())
    }

    /// Packets of one interval at each end may count for one and not for the other. Where an interval that was not read
    /// is missing, and not a part of the next one, counts are compared by interval.
    fn counts_agree(&self, measure: Measure) -> bool {
        let intervals = self.figures.iter().map(|figures| figures.intervals).min().unwrap_or(0);
        let [host, switch] = self.figures.map(|figures| {
            let among = if measure.misses_intervals() { figures.intervals } else { intervals };
            figures.counted as f64 / among as f64
        });
        intervals > 0 && host > 0.0 && (host - switch).abs() <= ENDS * host.max(switch) / intervals as f64
    }

    /// The host has a packet later than the switch, by what the switch takes to pass it on.
    fn delays_agree(&self, tolerance: f64) -> bool {
        let [host, switch] = self.figures.map(|figures| figures.delay_ms);
        let (Some(host), Some(switch), Some(passage)) = (host, switch, self.passage_ms) else { return false };
        (host - switch - passage).abs() <= tolerance * host.max(switch) + STAMPS_MS + self.clock_error_ms
    }

    /// The switch knows the losses of a sample only, and not of requests that it has forgotten meanwhile.
    fn shares_agree(&self, measure: Measure) -> bool {
        let [host, switch] = self.figures.map(|figures| figures.share);
        let (Some(host), Some(switch)) = (host, switch) else { return false };
        let allowed = self.allowed(measure, host.max(switch));
        let [figures, _] = &self.figures;
        let seconds = (INTERVAL * figures.intervals as u32).as_secs_f64();
        let least = host * measure.noticed(figures.counted as f64 / seconds);
        (least - allowed..=host + allowed).contains(&switch)
    }

    /// What both have is what the relay did, and it did enough.
    fn order_agrees(&self, measure: Measure) -> bool {
        let Some(truth) = self.relay.reordered() else { return false };
        let is_enough = self.expected != Some(true) || truth >= MIN_REORDERED;
        let agrees = |share: f64| (share - truth).abs() <= self.allowed(measure, share.max(truth));
        is_enough && self.figures.iter().all(|figures| figures.share.is_some_and(agrees))
    }

    /// By how much two shares may differ of which `larger` is the larger one.
    fn allowed(&self, measure: Measure, larger: f64) -> f64 {
        let (larger, [figures, _]) = (larger.max(0.0), &self.figures);
        let sampled = measure.sampled();
        let variance = larger * (1.0 - larger) * (1.0 - sampled) / (sampled * figures.counted as f64);
        DEVIATIONS.mul_add(variance.sqrt(), ENDS * larger / figures.intervals as f64) + measure.strays()
    }

    /// What stands in its line of the table.
    fn cells(&self, measure: Measure) -> Vec<String> {
        let [host, switch] = &self.figures;
        let LinkTruth { packets, lost, held_ms, segments, .. } = self.relay;
        let mut cells =
            vec![self.condition.clone(), format!("{packets} packets, {lost} lost, others held {}", ms(held_ms))];
        let shares = [host.share, switch.share].map(percent);
        if measure.delay().is_some() {
            cells.extend([host.delay_ms, switch.delay_ms, self.passage_ms].map(ms));
            cells.extend(shares.into_iter().chain(self.counts()));
        } else {
            cells.push(percent(self.relay.reordered()));
            cells.extend(shares);
            cells.push(segments.to_string());
            cells.extend(self.counts());
        }
        cells.extend(self.alarms.each_ref().map(|alarm| text_of(alarm.as_ref())));
        cells
    }
}

impl MeasureResult {
    fn bars(&self) -> Vec<Bar> {
        let mut bars: Vec<_> = self.rows.iter().flat_map(|row| row.bars(self.measure)).collect();
        let Burst { truth, counted: [host, switch] } = self.burst;
        let text = format!("{}, {truth} {}: {host} and {switch}", self.measure.title(), self.measure.alone());
        bars.push(Bar { text, met: truth > 0 && [host, switch] == [truth; 2] });
        bars
    }

    /// What stands above the columns: a pair is that of the host and that of the switch, behind the relay's own if it
    /// has one.
    fn header(&self) -> Vec<String> {
        let (measure, share, counted) = (self.measure, self.measure.share(), self.measure.counted());
        let pair = |what: &str| [format!("{what}: host"), "switch".to_owned()];
        let mut header = vec![measure.title().to_owned(), "the relay".to_owned()];
        if let Some(delay) = measure.delay() {
            header.extend(pair(delay.name));
            header.push("the switch took".to_owned());
            header.extend([share, counted].into_iter().flat_map(pair));
        } else {
            let triple = |what: &str| [format!("{what}: the relay"), "host".to_owned(), "switch".to_owned()];
            header.extend([share, counted].into_iter().flat_map(triple));
        }
        header.extend(pair("alarm"));
        header
    }

    fn table(&self) -> String {
        let header = self.header();
        let mut table = line(&header) + &"| --- ".repeat(header.len()) + "|\n";
        for row in &self.rows {
            table += &line(&row.cells(self.measure));
        }
        table
    }
}

impl Report {
    /// All bars, in the order of the tables.
    pub fn bars(&self) -> Vec<Bar> {
        self.results.iter().flat_map(MeasureResult::bars).collect()
    }

    /// The tables, and which bars are met.
    pub fn tables(&self) -> String {
        let tables: Vec<_> = self.results.iter().map(MeasureResult::table).collect();
        let mut text = tables.join("\n") + "\n";
        for Bar { text: bar, met } in self.bars() {
            _ = writeln!(text, "- {} {bar}", if met { "✓" } else { "✗" });
        }
        text
    }

    /// The page of the book.
    pub fn page(&self) -> String {
        let (switch, seconds, cores) = (&self.switch, self.seconds, self.cores);
        let taken = format!(
            "Taken with {switch} on {cores} cores: {seconds} s of each condition, intervals of {INTERVAL_MS} ms."
        );
        format!("{HEAD}\n{taken}\n\n{}\n{FOOT}", self.tables())
    }
}

fn ms(of: Option<f64>) -> String {
    of.map_or_else(|| "not known".to_owned(), |ms| format!("{ms:.3} ms"))
}

fn percent(of: Option<f64>) -> String {
    of.map_or_else(|| "not known".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

/// A line of a table.
fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn text_of(alarm: Option<&StreamAlarm>) -> String {
    alarm.map_or_else(|| "none".to_owned(), |alarm| format!("`{}` after {:.1} s", alarm.metric, alarm.after_s))
}

const HEAD: &str = "# Switch and host, side by side

Made by `cargo lab switch --write`. Real TCP passes P4 programs between two network namespaces. The NIC agent measures it at the host's own interface and in
the switch, and an LMAP judges each:

```text
here0 ── switch ── relay ── switch ── there0
```
";

const FOOT: &str = "| | |
| --- | --- |
| traffic | 200 connections a second of 16 clients, each with a request of 100 bytes and an answer of 300. For order, two connections that last, on each of which the \
server sends segments of 300 bytes, 2 ms or a little more apart |
| the relay | holds each packet for 1 ms, *5 ms more* for 6 ms, *reordered* for 1 to 4 ms; loses none or, *1 % lost*, one in a hundred. Its figures are what it did, of both directions with \
handshakes and order, else of the one that is measured |
| handshakes | one switch at the clients, with `p4/fridge`; the host's own capture is at the clients. *repeated* is the share of requests that were sent again |
| one way | a switch at each end, with `p4/finecomb-sender` and `p4/finecomb-receiver`; what the server sends takes another way, since the programs have no filter |
| order | one switch at the clients, behind the relay, with `p4/reordering`; the host's own capture is at the clients. *out of order* is the share of segments with payload that were \
below the one before, of their connection (definition 1, the only one of the programs); what is sent again is among them. Both connections are heavy flows at either, so both check all \
segments; the relay's figures are of its own log of what it sent |
| the switch took | a packet has the time at which it came to the switch, and the host's is when the switch has passed it on: the mean of what that takes, by captures at both ports |
| alarm | the metric that leads the alarm of the stream's LMAP, and when it came |

The verdicts are the same (✓) if

- counts differ by at most what comes in two intervals, one at each end; of packets one way those of an interval, since what was not read in time is missing;
- what is sent alone, at the end, is counted without a difference: requests, packets, or how many of 1,000 segments were out of order while the link was *reordered*, as the relay counts them;
- delays, without what the switch took, differ by at most 5 %, 0.05 ms and what the agents say of the error of the switches' times, which stands beside them; medians of handshakes \
by a quarter, since classes are 12 % wide;
- shares differ by at most four standard deviations of the choice of the switch's sample, of three in four requests or six in ten packets, and what two intervals can add. \
Of repeated requests the switch may miss those whose slot, one of 256, was taken before they were sent again;
- shares out of order, of which nothing is sampled, differ by at most what two intervals can add, and 0.1 %, from each other and from the relay's, which is at least 1 % when *reordered*;
- both are in alarm, or neither; with nothing neither, with 5 ms more both; of order both when *reordered*.

Not compared: flows that reordering samples or gives up, since host and switch choose others, and the kept `p4/reordering-samples`, which reports too few of them to be read; \
LDA, whose kept program has two banks, and agents compare one.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: Figures, switch: Figures) -> Row {
        let relay = LinkTruth {
            packets: 1_000,
            lost: 10,
            held_ms: Some(1.0),
            late_ms: 0.0,
            segments: 20_000,
            out_of_order: 1_000,
        };
        let figures = [host, switch];
        Row {
            condition: "nothing".to_owned(),
            expected: None,
            relay,
            passage_ms: Some(0.2),
            clock_error_ms: 0.0,
            figures,
            alarms: [None, None],
        }
    }

    fn of(counted: u64, delay_ms: f64, share: f64) -> Figures {
        Figures { intervals: 20, of_intervals: 20, counted, delay_ms: Some(delay_ms), share: Some(share) }
    }

    fn met_of(measure: Measure, row: &Row) -> Vec<bool> {
        row.bars(measure).iter().map(|bar| bar.met).collect()
    }

    fn met(row: &Row) -> Vec<bool> {
        met_of(Measure::OneWay, row)
    }

    #[test]
    fn figures_that_differ_by_what_is_allowed_are_the_same() {
        assert_eq!(met(&row(of(10_000, 2.2, 0.0), of(10_000, 2.0, 0.0))), [true; 4]);
        // Two intervals have a thousand packets; 5 % are 0.11 ms; four deviations are 0.33 %, and two intervals 0.1 %.
        assert_eq!(met(&row(of(10_000, 2.35, 0.010), of(9_100, 2.0, 0.007))), [true; 4]);
        assert_eq!(met(&row(of(10_000, 2.45, 0.010), of(8_900, 2.0, 0.004))), [false, false, false, true]);
    }

    #[test]
    fn a_switch_may_miss_repeated_requests_that_it_has_forgotten_and_no_lost_packets() {
        // 200 requests a second, of which three in four take one of 256 slots: 56 % are there after a second.
        let seen = |host: f64, switch: f64| row(of(4_000, 3.0, host), of(4_000, 2.8, switch));
        let agree = |measure, host, switch| seen(host, switch).shares_agree(measure);

        assert!(agree(Measure::Handshake, 0.0184, 0.0102) && !agree(Measure::OneWay, 0.0184, 0.0082));
        assert!(!agree(Measure::Handshake, 0.0184, 0.001) && !agree(Measure::Handshake, 0.0102, 0.0184));
    }

    #[test]
    fn what_is_not_known_is_not_the_same() {
        assert_eq!(met(&row(Figures::default(), Figures::default())), [false, false, false, true]);
        let mut unknown = row(of(10_000, 2.2, 0.0), of(10_000, 2.0, 0.0));
        unknown.passage_ms = None;
        assert_eq!(met(&unknown), [true, false, true, true]);
    }

    #[test]
    fn times_of_two_switches_may_be_apart_by_what_their_agents_say() {
        let mut row = row(of(10_000, 2.45, 0.0), of(10_000, 2.0, 0.0));
        assert_eq!(met(&row), [true, false, true, true]);

        row.clock_error_ms = 0.12;
        assert_eq!(met(&row), [true; 4]);
        let bars = row.bars(Measure::OneWay);
        let text = &bars[1].text;
        assert!(text.ends_with("mean, times of switches known to 0.120 ms: 2.450 ms and 2.000 ms"), "{text}");
    }

    #[test]
    fn an_alarm_of_one_is_another_verdict_and_so_is_one_that_should_not_come() {
        let alarm = || Some(StreamAlarm { after_s: 2.0, metric: "network.owd.mean".to_owned() });
        let met = |alarms: [Option<StreamAlarm>; 2], expected: Option<bool>| {
            let row = Row { expected, alarms, ..row(of(1, 1.0, 0.0), of(1, 1.0, 0.0)) };
            met_of(Measure::Handshake, &row)[3]
        };

        assert!(met([None, None], None) && met([alarm(), alarm()], None));
        assert!(!met([alarm(), None], None) && !met([None, alarm()], None));
        assert!(met([alarm(), alarm()], Some(true)) && !met([alarm(), alarm()], Some(false)));
        assert!(!met([None, None], Some(true)));
    }

    #[test]
    fn intervals_that_were_not_read_are_missing_one_way_and_else_a_part_of_the_next_one() {
        // Three of twenty intervals, of 500 packets each, were not read.
        let read = |counted: u64| Figures { intervals: 17, ..of(counted, 2.0, 0.0) };
        let agree = |measure, switch| row(of(10_000, 2.2, 0.0), switch).counts_agree(measure);

        assert!(agree(Measure::OneWay, read(8_500)) && !agree(Measure::OneWay, read(10_000)));
        assert!(agree(Measure::Handshake, read(10_000)) && !agree(Measure::Handshake, read(8_500)));
        assert!(!agree(Measure::OneWay, Figures::default()) && !agree(Measure::Reordering, Figures::default()));
    }

    #[test]
    fn order_is_the_same_if_it_is_that_of_the_relay_which_reordered_enough() {
        let seen = |host: f64, switch: f64| row(of(20_000, 0.0, host), of(20_000, 0.0, switch));
        let met = |row: &Row| met_of(Measure::Reordering, row);

        // The relay has 5 %. Two of twenty intervals can add a tenth of that, and a tenth of a percent is allowed.
        assert_eq!(met(&seen(0.05, 0.055)), [true; 4]);
        assert_eq!(met(&seen(0.05, 0.057)), [true, false, false, true]);
        assert_eq!(met(&seen(0.057, 0.057)), [true, true, false, true], "the same, and not the relay's");
        let calm = |expected| {
            let mut row = seen(0.0009, 0.0);
            (row.relay.out_of_order, row.expected) = (0, expected);
            met(&row)
        };
        assert_eq!(calm(Some(false)), [true; 4]);
        assert_eq!(calm(Some(true)), [true, true, false, false], "nothing was reordered");
        let mut unknown = seen(0.0, 0.0);
        unknown.relay.segments = 0;
        assert_eq!(met(&unknown), [true, true, false, true]);
    }

    #[test]
    fn a_table_of_order_has_the_relays_own_figures_and_no_delays() {
        let rows = vec![row(of(20_000, 0.0, 0.05), of(19_999, 0.0, 0.05))];
        let burst = Burst { truth: 61, counted: [61; 2] };
        let result = MeasureResult { measure: Measure::Reordering, rows, burst };

        let table = result.table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[0],
            "| reordering by prefix | the relay | out of order: the relay | host | switch | segments: the relay | host \
             | switch | alarm: host | switch |"
        );
        assert_eq!(
            lines[2],
            "| nothing | 1000 packets, 10 lost, others held 1.000 ms | 5.00 % | 5.00 % | 5.00 % | 20000 | 20000 \
             | 19999 | none | none |"
        );
        let columns = |line: &str| line.matches('|').count();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{table}");
        let last = result.bars().pop().map(|bar| (bar.text, bar.met));
        assert_eq!(last, Some(("reordering by prefix, 61 segments out of order alone: 61 and 61".to_owned(), true)));
        let nothing = MeasureResult { burst: Burst { truth: 0, counted: [0; 2] }, ..result };
        assert_eq!(nothing.bars().pop().map(|bar| bar.met), Some(false), "nothing was counted");
    }

    #[test]
    fn a_burst_is_counted_exactly_and_stands_behind_the_rows() {
        let rows = vec![row(of(10_000, 2.2, 0.0), of(10_000, 2.0, 0.0))];
        let result = MeasureResult { measure: Measure::OneWay, rows, burst: Burst { truth: 500, counted: [500, 499] } };
        let report = Report { switch: "a switch".to_owned(), seconds: 20, cores: 2, results: vec![result] };

        let page = report.page();
        assert!(
            page.contains("| nothing | 1000 packets, 10 lost, others held 1.000 ms | 2.200 ms | 2.000 ms | 0.200 ms |")
        );
        assert!(page.contains("- ✓ FineComb: one way, nothing: mean: 2.200 ms and 2.000 ms\n"), "{page}");
        assert!(page.contains("- ✗ FineComb: one way, 500 packets alone: 500 and 499\n"), "{page}");
        assert_eq!(report.bars().iter().filter(|bar| !bar.met).count(), 1);
    }
}
