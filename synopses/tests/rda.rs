//! Guarantees of RDA, on seeded streams: decoding and its probability, exactness, and reports of missing data.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;
use synopses::rda::{
    Cache, Capture, Deviation, Difference, Estimate, Ids, Layout, Peeling, Rda, Reconciliation, Settings,
    UnexpectedTime, UnsettledLoss, sizing,
};

/// Digest of a packet.
fn packet(number: u64, seed: u64) -> Digest {
    Digest(ChaCha8Rng::seed_from_u64(number ^ seed << 32).random())
}

/// Cells of both ends: `lost` packets only at the sender, `extra` only at the receiver, none in common, since those
/// cancel out.
fn ends(settings: &Settings, lost: u64, extra: u64, seed: u64) -> [Rda; 2] {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    [lost, extra].map(|packets| {
        let mut rda = Rda::new(settings).expect("possible");
        (0..packets).for_each(|now| rda.insert(Digest(random.random()), now));
        rda
    })
}

fn peel(ends: &[Rda; 2], peeling: Peeling) -> Difference {
    Difference::between(&ends[0], &ends[1], peeling).expect("one kind")
}

/// An interval: what both ends saw, and the receiver's answers to what is asked.
struct Stream {
    sender: Cache,
    receiver: Cache,
}

impl Stream {
    fn new(packets: usize, ids: Ids) -> Self {
        let cache = || Cache::new(packets, ids).expect("possible");
        Self { sender: cache(), receiver: cache() }
    }

    /// `packets` of them, of which the first `lost` do not arrive, and `extra` that were not sent. Delays of Weibull's
    /// distribution of shape 0.7 and 8.4 µs in the mean.
    fn lossy(ids: Ids, packets: u64, lost: u64, extra: u64, seed: u64) -> (Self, Vec<u64>) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut stream = Self::new((packets + extra) as usize, ids);
        let mut delays = Vec::new();
        for number in 0..packets + extra {
            let (digest, now) = (Digest(random.random()), number * 500);
            let delay = (6_647.0 * (-(1.0 - random.random::<f64>()).ln()).powf(1.0 / 0.7)) as u64;
            if number < packets {
                stream.sender.insert(digest, now);
            }
            if number >= lost {
                stream.receiver.insert(digest, now + delay);
            }
            if (lost..packets).contains(&number) {
                delays.push(delay);
            }
        }
        (stream, delays)
    }

    /// The whole exchange.
    fn reconcile(&self, settings: &Settings) -> Reconciliation {
        let cells = self.receiver.aggregate(settings).expect("possible");
        let mut exchange = Reconciliation::new(self.sender.clone(), cells).expect("same ids");
        for _ in 0..4 {
            let asked = exchange.missing();
            let answers: Vec<_> = asked.iter().map(|id| (*id, self.receiver.time_of(*id))).collect();
            exchange.add_times(&answers).expect("what was asked");
        }
        exchange
    }

    fn estimate(&self, settings: &Settings) -> Estimate {
        self.reconcile(settings).estimate(Deviation::PerBucket)
    }
}

fn mean(values: &[u64]) -> f64 {
    values.iter().map(|value| u128::from(*value)).sum::<u128>() as f64 / values.len() as f64
}

fn deviation(values: &[u64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

const ALL: [(usize, Layout, Ids); 5] = [
    (2, Layout::Banks, Ids::Plain),
    (3, Layout::Banks, Ids::Checked8),
    (3, Layout::Banks, Ids::Checked16),
    (2, Layout::Flat, Ids::Plain),
    (4, Layout::Flat, Ids::Checked8),
];

fn kinds(cells: usize, seed: u64) -> impl Iterator<Item = Settings> {
    ALL.into_iter().map(move |(banks, layout, ids)| Settings { banks, cells, layout, ids, seed })
}

#[test]
fn lost_and_added_packets_are_identified_with_their_side() {
    for settings in kinds(64, 1) {
        let mut stream = Stream::new(8, settings.ids);
        for number in 0..5 {
            stream.sender.insert(packet(number, 1), 100 * number);
        }
        for number in 1..6 {
            stream.receiver.insert(packet(number, 1), 100 * number + 7);
        }
        let exchange = stream.reconcile(&settings);
        let id = |number| settings.ids.id(packet(number, 1));

        assert_eq!(exchange.difference().lost, [id(0)], "{settings:?}");
        assert_eq!(exchange.difference().reordered, [id(5)]);
        assert_eq!(exchange.lost().collect::<Vec<_>>(), [(id(0), 0)]);
        assert_eq!(exchange.reordered().collect::<Vec<_>>(), [(id(5), Some(507))]);
        let found = exchange.estimate(Deviation::PerBucket);
        assert_eq!((found.mean_ns, found.loss, found.lost, found.reordered), (Some(7.0), Some(0.2), 1, 1));
        assert_eq!((found.sent, found.received, found.complete, found.partial), (5, 5, true, false));
        assert_eq!(exchange.useful_packets(), 4);
    }
}

#[test]
fn nothing_the_same_and_nothing_in_common_are_told_apart() {
    for settings in kinds(128, 2) {
        let (same, delays) = Stream::lossy(settings.ids, 300, 0, 0, 2);
        let found = same.estimate(&settings);
        assert_eq!((found.loss, found.lost, found.complete), (Some(0.0), 0, true));
        match settings.layout {
            Layout::Banks => assert_eq!(found.mean_ns, Some(mean(&delays))),
            // A packet whose cells coincide counts for less.
            Layout::Flat => assert!(found.mean_ns.is_some_and(|found| (found / mean(&delays) - 1.0).abs() < 0.01)),
        }

        let nothing = Stream::new(1, settings.ids).estimate(&settings);
        assert_eq!((nothing.mean_ns, nothing.deviation_ns, nothing.loss, nothing.packets), (None, None, None, 0));
        assert!(nothing.complete);

        let (disjoint, _) = Stream::lossy(settings.ids, 20, 20, 20, 2);
        let found = disjoint.estimate(&settings);
        assert_eq!((found.mean_ns, found.loss, found.lost, found.reordered), (None, Some(1.0), 20, 20));

        // Only the sender has packets, more than can be named.
        let (silent, _) = Stream::lossy(settings.ids, 5_000, 5_000, 0, 2);
        let found = silent.estimate(&settings);
        assert_eq!((found.mean_ns, found.loss, found.received, found.complete), (None, Some(1.0), 0, false));
    }
}

#[test]
fn a_copy_that_one_end_did_not_get_does_no_harm() {
    let settings = Settings::paper(16, 3);
    let mut stream = Stream::new(4, settings.ids);
    for (digest, now) in [(1, 10), (2, 20), (1, 25)] {
        stream.sender.insert(packet(digest, 3), now);
    }
    for (digest, now) in [(2, 120), (1, 130)] {
        stream.receiver.insert(packet(digest, 3), now);
    }

    let found = stream.estimate(&settings);

    assert_eq!((found.mean_ns, found.loss, found.duplicates), (Some(110.0), Some(0.0), (1, 0)));
}

#[test]
fn ids_that_cancel_out_do_not_make_a_cell_usable() {
    // Filled without a cache: the same packet twice at the sender leaves no id, but a number.
    let settings = Settings { banks: 1, ..Settings::paper(1, 0) };
    let mut receiver = Rda::new(&settings).expect("possible");
    for digest in [7, 8, 8] {
        receiver.insert(Digest(digest), 1_000);
    }
    let mut sender = Cache::new(4, Ids::Plain).expect("possible");
    sender.insert(Digest(7), 0);

    let found = Reconciliation::new(sender, receiver).expect("same ids").estimate(Deviation::PerBucket);

    assert_eq!((found.mean_ns, found.health.usable, found.health.useless, found.complete), (None, 0, 1, false));
}

#[test]
fn everything_is_decoded_as_often_as_a_random_graph_has_no_cycle() {
    for (lost, cells, runs) in [(50_u64, 100, 2_000_u64), (100, 400, 1_000), (180, 200, 1_000)] {
        let (mut complete, mut unnamed) = (0, 0);
        for seed in 0..runs {
            let found = peel(
                &ends(&Settings { ids: Ids::Checked16, ..Settings::paper(cells, seed) }, lost / 2, lost / 2, seed),
                Peeling::UndoAndBan,
            );
            complete += u64::from(found.residual == 0);
            unnamed += lost - (found.lost.len() + found.reordered.len()) as u64;
        }
        let chance = sizing::complete_chance(lost as f64, cells as f64);
        let share = complete as f64 / runs as f64;
        // Exact for large graphs only: at d near m a little more than three deviations.
        let most = 3.0 * (chance * (1.0 - chance) / runs as f64).sqrt() + 2.0 / cells as f64;
        assert!((share - chance).abs() < most, "d {lost}, m {cells}: {share}, expected {chance} ± {most}");
        if lost as usize * 2 == cells {
            let expected = sizing::expected_unidentified(lost as f64, cells as f64);
            let found = unnamed as f64 / runs as f64;
            assert!((found / expected - 1.0).abs() < 0.3, "d {lost}, m {cells}: {found}, expected {expected}");
        }
    }
}

#[test]
fn one_bank_names_those_that_are_alone_in_their_cell() {
    let (cells, lost, runs) = (1_000, 500_u64, 60);
    let settings = |seed| Settings { banks: 1, ids: Ids::Checked16, ..Settings::paper(cells, seed) };
    let named: usize = (0..runs)
        .map(|seed| {
            let found = peel(&ends(&settings(seed), lost / 2, lost / 2, seed), Peeling::UndoAndBan);
            found.lost.len() + found.reordered.len()
        })
        .sum();

    let share = named as f64 / (runs * lost) as f64;
    let expected = (-(lost as f64 - 1.0) / cells as f64).exp();
    assert!((share / expected - 1.0).abs() < 0.03, "{share}, expected {expected}");
}

#[test]
fn the_printed_decoder_runs_for_ever_in_one_of_a_hundred_intervals() {
    let run = |peeling| {
        let (mut exhausted, mut complete) = (0, 0);
        for seed in 0..3_000 {
            let found = peel(&ends(&Settings::paper(200, seed), 50, 50, seed), peeling);
            exhausted += u32::from(found.exhausted);
            complete += u32::from(found.residual == 0);
        }
        (exhausted, complete)
    };

    let (printed, sound) = (run(Peeling::Printed), run(Peeling::UndoAndBan));

    assert!((10..=60).contains(&printed.0), "{printed:?}");
    assert_eq!(sound.0, 0);
    // √(1 − ¼) = 0.866 of 3,000, ± 19.
    assert!(sound.1.abs_diff(2_598) < 75 && printed.1 < sound.1, "{printed:?} {sound:?}");
}

#[test]
fn undo_and_ban_and_a_cache_and_checked_ids_each_unmask_more() {
    // Three banks, 1,000 cells, 600 differences: published as the bound, where many cells look like those of one
    // packet.
    let runs = 150;
    let complete = |ids: Ids, peeling: Peeling| {
        let whole = |seed: &u64| {
            let settings = Settings { banks: 3, cells: 333, ids, ..Settings::paper(0, *seed) };
            peel(&ends(&settings, 300, 300, *seed), peeling).residual == 0
        };
        (0..runs).filter(whole).count() as f64 / runs as f64
    };
    let with_cache = |seed: &u64| {
        let settings = Settings { banks: 3, cells: 333, ..Settings::paper(0, *seed) };
        let (stream, _) = Stream::lossy(Ids::Plain, 400, 300, 300, *seed);
        stream.reconcile(&settings).difference().residual == 0
    };

    let printed = complete(Ids::Plain, Peeling::Printed);
    let banning = complete(Ids::Plain, Peeling::UndoAndBan);
    let verified = (0..runs).filter(with_cache).count() as f64 / runs as f64;
    let checked = complete(Ids::Checked8, Peeling::UndoAndBan);

    assert!((printed - 0.72).abs() < 0.12, "{printed}");
    assert!((banning - 0.95).abs() < 0.05, "{banning}");
    assert!(verified > 0.95 && verified >= banning, "{verified}");
    assert!(checked > 0.99, "{checked}");
}

#[test]
fn a_packet_is_of_no_use_only_where_all_its_cells_are() {
    let (packets, extra, cells) = (20_000, 400, 500);
    let (stream, delays) = Stream::lossy(Ids::Plain, packets, 0, extra, 5);
    let settings = Settings::paper(cells, 5);
    let receiver = stream.receiver.aggregate(&settings).expect("possible");
    // Nobody answers when the other packets arrived.
    let exchange = Reconciliation::new(stream.sender.clone(), receiver).expect("same ids");

    let found = exchange.estimate(Deviation::PerBucket);
    let spoilt = found.health.useless as f64 / (2 * cells) as f64;
    let useless = packets - exchange.useful_packets();

    assert!((useless as f64 / (packets as f64 * spoilt * spoilt) - 1.0).abs() < 0.05, "{useless} at {spoilt}");
    assert!(found.partial && (found.mean_ns.expect("cells") / mean(&delays) - 1.0).abs() < 0.03);
    assert!(found.packets <= exchange.useful_packets() && found.packets > packets / 3);
    // Once it is known, everything is exact again.
    let found = stream.estimate(&Settings::paper(4 * cells, 6));
    assert!(!found.partial && found.complete && found.mean_ns == Some(mean(&delays)), "{found:?}");
}

#[test]
fn an_id_that_the_receiver_does_not_know_is_put_back() {
    let settings = Settings::paper(64, 6);
    let (stream, _) = Stream::lossy(Ids::Plain, 100, 0, 10, 6);
    let cells = stream.receiver.aggregate(&settings).expect("possible");
    let mut exchange = Reconciliation::new(stream.sender.clone(), cells).expect("same ids");
    let asked = exchange.missing();
    assert_eq!(asked.len(), 10);

    assert_eq!(exchange.add_times(&[(asked[0], Some(5)), (99, None)]), Err(UnexpectedTime(99)));
    assert_eq!(exchange.missing().len(), 10, "nothing of such an answer is taken");
    exchange.add_times(&[(asked[3], None)]).expect("asked");
    assert_eq!(exchange.add_times(&[(asked[3], None)]), Err(UnexpectedTime(asked[3])));

    let found = exchange.estimate(Deviation::PerBucket);
    assert!(!exchange.missing().contains(&asked[3]) && exchange.missing().len() == 9);
    // Its two cells are full again.
    assert!(!found.complete && found.health.residual == 2 && found.partial, "{found:?}");
}

#[test]
fn too_many_differences_are_reported_and_usable_cells_stay_exact() {
    // Ten times as many differences as cells.
    let (stream, delays) = Stream::lossy(Ids::Checked8, 20_000, 400, 300, 7);
    let small = Settings { cells: 100, ..Settings::default() };

    let found = stream.estimate(&small);
    assert!(!found.complete && found.health.residual > 100);
    assert!(found.lost >= 100 && found.lost <= 400, "{}", found.lost);
    if let Some(estimated) = found.mean_ns {
        assert!((estimated / mean(&delays) - 1.0).abs() < 0.5);
    }

    let mut settings = small;
    let mut attempts = 0;
    let whole = loop {
        let found = stream.estimate(&settings);
        if found.complete {
            break found;
        }
        (settings, attempts) = (settings.again(), attempts + 1);
    };
    assert_eq!(attempts, 2, "400 cells in each of three banks are enough for 700");
    assert_eq!((whole.mean_ns, whole.lost, whole.reordered), (Some(mean(&delays)), 400, 300));
}

#[test]
fn a_difference_of_the_clocks_moves_the_mean_by_itself() {
    let settings = Settings { cells: 256, ..Settings::default() };
    let run = |offset: u64| {
        let mut stream = Stream::new(2_000, settings.ids);
        for number in 0..2_000_u64 {
            // Sums wrap.
            let now = (number * 1_000).wrapping_sub(600_000);
            stream.sender.insert(packet(number, 8), now);
            stream.receiver.insert(packet(number, 8), now.wrapping_add(number % 1_000).wrapping_add(offset));
        }
        let exchange = stream.reconcile(&settings);
        (exchange.estimate(Deviation::Centred), exchange.estimate(Deviation::PerBucket))
    };
    let (plain, moved, back) = (run(0), run(1 << 40), run(5_000_u64.wrapping_neg()));

    assert_eq!(plain.0.mean_ns, Some(499.5));
    assert_eq!(moved.0.mean_ns, Some(499.5 + (1_u64 << 40) as f64));
    assert_eq!(back.0.mean_ns, Some(499.5 - 5_000.0));
    assert!(back.0.clock_suspect(1_000.0) && !back.0.clock_suspect(10_000.0) && !plain.0.clock_suspect(0.0));
    for way in [|both: &(Estimate, Estimate)| both.0.deviation_ns, |both: &(Estimate, Estimate)| both.1.deviation_ns] {
        let [one, other] = [way(&plain), way(&back)].map(|found| found.expect("cells"));
        assert!((one - other).abs() < 1e-6 && (one / 288.7 - 1.0).abs() < 0.15, "{one} {other}");
    }
}

#[test]
fn the_second_moment_has_no_bias_whatever_the_clocks_and_deviations_are_as_good_as_stated() {
    let ways = [Deviation::Selective, Deviation::Centred, Deviation::PerBucket];
    let (runs, cells) = (60, 100);
    let (mut errors, mut variances, mut shifted) = ([0.0; 3], [0.0; 3], 0.0);
    for seed in 0..runs {
        let settings = Settings { ids: Ids::Checked8, ..Settings::paper(cells, seed) };
        let (stream, delays) = Stream::lossy(settings.ids, 10_000, 20, 20, seed);
        let truth = deviation(&delays);
        let exchange = stream.reconcile(&settings);
        for (at, way) in ways.into_iter().enumerate() {
            let found = exchange.estimate(way).deviation_ns.expect("cells") / truth;
            errors[at] += (found - 1.0).abs() / runs as f64;
            variances[at] += found.powi(2) / runs as f64;
        }
        let mut late = Stream::new(11_000, settings.ids);
        late.sender = stream.sender.clone();
        stream.receiver.iter().for_each(|(id, time)| late.receiver.insert(Digest(id), time + 20_000));
        let found = late.reconcile(&settings).estimate(Deviation::Selective);
        assert!(
            (found.mean_ns.expect("cells") - exchange.estimate(ways[0]).mean_ns.expect("cells") - 20_000.0).abs()
                < 1e-3
        );
        shifted += (found.deviation_ns.expect("cells") / truth).powi(2) / runs as f64;
    }

    // 7.7 %, 5.2 % and 4.6 % with two banks of 100 cells; the formula is for the first.
    let expected = sizing::deviation_error(8.41, 12.28, cells as f64);
    assert!((errors[0] / expected - 1.0).abs() < 0.35, "{errors:?}, expected {expected}");
    assert!(errors[1] < 0.075 && errors[2] < 0.06 && errors[2] < errors[0], "{errors:?}");
    assert!(variances.iter().all(|share| (share - 1.0).abs() < 0.06), "{variances:?}");
    // The paper says that a shift of 20 µs would add 2 × 20 × 8.4 (n − 1) to σ²: it adds noise only.
    assert!((shifted - 1.0).abs() < 0.35, "{shifted}");
}

#[test]
fn in_a_flat_layout_pairs_say_nothing_and_single_cells_do() {
    let (stream, delays) = Stream::lossy(Ids::Plain, 10_000, 20, 20, 9);
    let exchange = stream.reconcile(&Settings { layout: Layout::Flat, ..Settings::paper(200, 9) });

    for pairs in [Deviation::Fixed, Deviation::Selective, Deviation::Centred] {
        assert_eq!(exchange.estimate(pairs).deviation_ns, None);
    }
    let found = exchange.estimate(Deviation::PerBucket);
    assert!((found.deviation_ns.expect("cells") / deviation(&delays) - 1.0).abs() < 0.15);
    assert_eq!(exchange.useful_packets(), 9_980);
}

#[test]
fn so_many_packets_make_the_mean_as_exact_as_was_asked_for() {
    let (error, failing, runs) = (0.05, 0.1, 400);
    let packets = sizing::packets_for_mean(8.41, 12.28, error, failing) as u64;
    let mut random = ChaCha8Rng::seed_from_u64(10);
    let weibull = || 6.647 * (-(1.0 - random.random::<f64>()).ln()).powf(1.0 / 0.7);
    let means: Vec<f64> = {
        let mut next = weibull;
        (0..runs).map(|_| (0..packets).map(|_| next()).sum::<f64>() / packets as f64).collect()
    };

    let within = means.iter().filter(|mean| (*mean / 8.414 - 1.0).abs() <= error).count();
    assert!(within as f64 / f64::from(runs) >= 1.0 - failing, "{within} of {runs} with {packets}");
}

#[test]
fn a_full_cache_makes_a_result_partial() {
    let mut stream = Stream::new(50, Ids::Plain);
    (0..60).for_each(|number| stream.sender.insert(packet(number, 11), number));
    (0..50).for_each(|number| stream.receiver.insert(packet(number, 11), number + 9));

    let found = stream.estimate(&Settings::paper(64, 11));

    assert_eq!((found.partial, found.mean_ns, found.sent), (true, Some(9.0), 50));
}

#[test]
fn packets_that_were_on_their_way_at_the_end_are_late_and_not_lost() {
    // Intervals of 1,000 packets a µs apart, 50 µs of delay: fifty are on their way at each end. Every 97th is lost.
    let settings = Settings { cells: 256, seed: 12, ..Settings::default() };
    let capture = || Capture::new(5_000_000, 1_000_000, 3, 2_000, settings.ids).expect("possible");
    let [mut sender, mut receiver] = [capture(), capture()];
    let mut exchanges = Vec::new();
    for number in 0..5_000_u64 {
        let now = 5_000_000 + number * 1_000;
        sender.insert(packet(number, 12), now);
        if !number.is_multiple_of(97) {
            receiver.insert(packet(number, 12), now + 50_000);
        }
        if number % 1_000 == 500 && number > 1_000 {
            let interval = number / 1_000 - 1;
            let close = |end: &mut Capture| {
                let cache = end.close(interval).expect("packets came");
                end.give_back(cache.clone());
                cache
            };
            exchanges.push(Stream { sender: close(&mut sender), receiver: close(&mut receiver) }.reconcile(&settings));
        }
    }

    for pair in exchanges.windows(2) {
        let found = pair[0].estimate(Deviation::PerBucket);
        let settled = UnsettledLoss::of(&pair[0]).settle(&pair[1]);

        assert!(found.lost > 55 && found.complete, "{found:?}");
        assert!((10..=11).contains(&settled.lost) && settled.complete, "{settled:?}");
        assert!((48..=50).contains(&settled.late) && settled.odd == 0, "{settled:?}");
        assert_eq!(settled.late_delays_ns, (i128::from(settled.late) * 50_000, settled.late));
        assert!(settled.loss.is_some_and(|loss| (loss - 1.0 / 97.0).abs() < 0.001));
        assert!(settled.mean_ns(&found).is_some_and(|mean| (mean - 50_000.0).abs() < 1e-6));
    }
    // Packets of the interval before the first that is looked at came in it, unsent.
    let odd = UnsettledLoss::of(&exchanges[0]).settle(&exchanges[0]);
    assert!(odd.late == 0 && odd.odd == odd.lost.min(odd.odd) && odd.sent == 1_000);
}
