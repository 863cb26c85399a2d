//! Guarantees of disaggregated sketches, and the cases in which there is no estimate.

use proptest::prelude::*;
use synopses::digest::Digest;
use synopses::disaggregated::{
    Decision, Fragment, HEADER_BYTES, Header, LastHop, LoadTable, MAX_PATH, NoEstimate, Path, PathError, PathTable,
    Settings, TableError, Weighting, global,
};

fn settings(id: u32, counters: u32) -> Settings {
    Settings { id, counters, rows: 1, seed: 100 + u64::from(id) }
}

fn fragments(number: u32, counters: u32) -> Vec<Fragment> {
    (0..number).map(|id| Fragment::new(settings(id, counters)).expect("possible")).collect()
}

fn ids(number: u32) -> Vec<u32> {
    (0..number).collect()
}

/// Sends a packet along the path and returns its header.
fn send(fragments: &mut [Fragment], path: &Path, flow: Digest) -> Header {
    let mut header = Header::first(fragments.first().map_or(0, Fragment::epoch));
    for (position, fragment) in fragments.iter_mut().enumerate() {
        header.pass(path, position, flow, fragment);
    }
    header
}

fn table(path: Path) -> PathTable {
    let fragments: Vec<Settings> = (0..MAX_PATH as u32).map(|id| settings(id, 1)).collect();
    PathTable::new(1, &fragments, [(0, path)]).expect("possible")
}

proptest! {
    #[test]
    fn no_estimate_is_below_the_truth_and_the_header_says_what_the_controller_finds(
        flows in prop::collection::vec(0_u64..60, 1..300), count in 1_usize..9, seed: u64,
    ) {
        let path = Path::random(&ids(8), count, seed).expect("possible");
        let (mut nodes, mut last) = (fragments(8, 16), std::collections::HashMap::new());
        let mut truth = std::collections::HashMap::<u64, u64>::new();
        for flow in &flows {
            let found = send(&mut nodes, &path, Digest(*flow)).estimate(&path, 0).expect("all counted");
            *truth.entry(*flow).or_default() += 1;
            prop_assert!(found.count >= truth[flow] && !found.saturated);
            prop_assert!(found.count >= *last.get(flow).unwrap_or(&0), "grows");
            last.insert(*flow, found.count);
        }
        let table = table(path.clone());
        for (flow, size) in truth {
            let flow = Digest(flow);
            let found = table.estimate(0, flow, &nodes).expect("all were collected");
            let chosen = path.select(flow).positions().map(|at| u64::from(nodes[at].estimate(flow))).min();
            prop_assert!(found.count >= size && Some(found.count) == chosen);
            // The last packet saw what there was then.
            prop_assert!(found.count >= last[&flow.0]);
        }
    }

    #[test]
    fn the_order_of_packets_does_not_matter_at_the_end(
        flows in prop::collection::vec(0_u64..60, 1..200), count in 1_usize..9,
    ) {
        let path = Path::random(&ids(8), count, 3).expect("possible");
        let (mut one, mut other) = (fragments(8, 16), fragments(8, 16));
        for flow in &flows {
            send(&mut one, &path, Digest(*flow));
        }
        for flow in flows.iter().rev() {
            send(&mut other, &path, Digest(*flow));
        }
        prop_assert!(one.iter().zip(&other).all(|(one, other)| one.encode() == other.encode()));
    }

    #[test]
    fn as_many_fragments_as_the_path_has_are_all_and_one_is_a_row_of_its_own(
        flows in prop::collection::vec(any::<u64>(), 1..100), weights in prop::collection::vec(0.1_f64..9.0, 8),
    ) {
        let all = Path::all(&ids(8)).expect("possible");
        let every = Path::weighted(&ids(8), 8, &weights, 5).expect("possible");
        let single = Path::weighted(&ids(8), 1, &weights, 5).expect("possible");
        let mut alone = fragments(8, 16);
        let mut along = alone.clone();
        for flow in flows.iter().map(|flow| Digest(*flow)) {
            prop_assert_eq!(all.select(flow), every.select(flow));
            let at = single.select(flow).positions().next().expect("one is chosen");
            let count = alone[at].insert(flow, 1);
            prop_assert_eq!(send(&mut along, &single, flow).least, count);
        }
    }

    #[test]
    fn equal_weights_choose_as_no_weights_do(flow: u64, weight in 1e-9_f64..1e9, count in 1_usize..9) {
        let weighted = Path::weighted(&ids(8), count, &[weight; 8], 5).expect("possible");
        let random = Path::random(&ids(8), count, 5).expect("possible");
        prop_assert_eq!(weighted.select(Digest(flow)), random.select(Digest(flow)));
        prop_assert_eq!(weighted.select(Digest(flow)).positions().count(), count);
    }

    #[test]
    fn a_forged_header_changes_no_counter_and_makes_no_flow_larger(
        bytes: [u8; HEADER_BYTES], flows in prop::collection::vec(0_u64..30, 0..50), count in 1_usize..9,
    ) {
        let path = Path::random(&ids(8), count, 3).expect("possible");
        let mut honest = fragments(8, 16);
        for flow in &flows {
            send(&mut honest, &path, Digest(*flow));
        }
        let mut attacked = honest.clone();
        let true_header = send(&mut honest, &path, Digest(7));
        // No hop overwrites it.
        let mut forged = Header::decode(bytes);
        for (position, fragment) in attacked.iter_mut().enumerate() {
            forged.pass(&path, position, Digest(7), fragment);
        }

        prop_assert!(honest.iter().zip(&attacked).all(|(one, other)| one.encode() == other.encode()));
        let truth = true_header.estimate(&path, 0).expect("all counted");
        if let Ok(found) = forged.estimate(&path, 0) {
            prop_assert!(found.count <= truth.count && Header::decode(bytes).touched == 0);
        }
    }

    #[test]
    fn what_was_encoded_comes_back(flows in prop::collection::vec((any::<u64>(), any::<u32>()), 0..100), epoch: u32) {
        let mut fragment = Fragment::new(Settings { rows: 3, ..settings(7, 50) }).expect("possible");
        fragment.rotate(epoch);
        for (flow, weight) in &flows {
            fragment.insert(Digest(*flow), *weight);
        }
        let again = Fragment::decode(&fragment.encode(), 150).expect("what was encoded");
        prop_assert_eq!((again.epoch(), again.load(), again.encode()), (epoch, fragment.load(), fragment.encode()));
        let path = Path::weighted(&ids(8), 3, &[1.0, 2.0, 0.5, 1e-6, 1e6, 3.0, 1.0, 1.0], 5).expect("possible");
        let table = table(path);
        let again = PathTable::decode(&table.encode(), 1).expect("what was encoded");
        let same = |flow| table.path(0).map(|path| path.select(flow)) == again.path(0).map(|path| path.select(flow));
        prop_assert!(flows.iter().all(|(flow, _)| same(Digest(*flow))));
    }
}

#[test]
fn choices_are_even_and_places_are_even_among_those_who_chose_alike() {
    let path = Path::random(&ids(4), 2, 9).expect("possible");
    let mut fragment = Fragment::new(settings(0, 10)).expect("possible");
    let mut chosen = [0_u32; 4];
    for flow in 0..40_000 {
        let selection = path.select(Digest(flow));
        selection.positions().for_each(|at| chosen[at] += 1);
        if selection.contains(0) {
            fragment.insert(Digest(flow), 1);
        }
    }

    // Half of the flows, with five standard deviations of 100.
    assert!(chosen.iter().all(|flows| flows.abs_diff(20_000) < 500), "{chosen:?}");
    // The 10 counters, found through flows; a tenth each, with five deviations of 43.
    let counts: Vec<u32> = (0..1_000).map(|flow| fragment.estimate(Digest(flow))).collect();
    assert!(counts.iter().all(|count| count.abs_diff(chosen[0] / 10) < 215), "{counts:?}");
}

#[test]
fn weights_draw_flows_in_proportion_and_busy_fragments_are_avoided() {
    let path = Path::weighted(&ids(3), 1, &[1.0, 2.0, 5.0], 1).expect("possible");
    let mut chosen = [0_u32; 3];
    (0..80_000).for_each(|flow| path.select(Digest(flow)).positions().for_each(|at| chosen[at] += 1));
    assert!(chosen.iter().zip([10_000, 20_000, 50_000]).all(|(found, due)| found.abs_diff(due) < 700), "{chosen:?}");

    let mut loads = LoadTable::default();
    for (id, load) in [(0, 10), (1, 4_000), (2, 20)] {
        loads.insert(id, load);
    }
    assert_eq!(loads.weights(&[0, 1, 2, 3], Weighting::Strict), [1.0, 1e-6, 1.0, 1.0], "3 is unknown, as the median");
    assert_eq!(loads.weights(&[0, 1, 2], Weighting::Soft { floor: 16 }), [1.0 / 16.0, 1.0 / 4_000.0, 1.0 / 20.0]);
    // Those that tie with the median are none of the busy ones, however many they are.
    let tied: LoadTable = (0_u32..8).map(|id| (id, if id % 7 == 0 { 5_000_u64 } else { 1_300 })).collect();
    assert_eq!(tied.weights(&ids(8), Weighting::Strict), [1e-6, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-6]);
    let strict = Path::weighted(&[0, 1], 1, &loads.weights(&[0, 1], Weighting::Strict), 1).expect("possible");
    let busy = (0..10_000).filter(|flow| strict.select(Digest(*flow)).contains(1)).count();
    assert!(busy <= 2, "of two NICs the less loaded one counts: {busy}");
    assert!(LoadTable::default().weights(&[], Weighting::Strict).is_empty());
}

#[test]
fn paths_that_cannot_be_are_refused_and_others_corrected_and_counted() {
    assert_eq!(Path::random(&ids(3), 0, 1).err(), Some(PathError::Count));
    assert_eq!(Path::all(&[1, 2, 1]).err(), Some(PathError::Twice(1)));
    assert_eq!(Path::all(&ids(33)).err(), Some(PathError::Length(33)));
    let missing = PathError::Weights { weights: 1, fragments: 2 };
    assert_eq!(Path::weighted(&ids(2), 1, &[1.0], 1).err(), Some(missing));
    assert_eq!(Path::all(&ids(32)).expect("possible").select(Digest(1)).positions().count(), 32);

    let weights = [0.0, f64::NAN, f64::INFINITY, -1.0, 0.5, 2.0];
    let corrected = Path::weighted(&ids(6), 9, &weights, 1).expect("possible");
    assert_eq!((corrected.count(), corrected.clamped(), corrected.replaced_weights()), (6, true, 4));
    let corrected = Path::weighted(&ids(6), 2, &weights, 1).expect("possible");
    let plain = Path::weighted(&ids(6), 2, &[0.5, 0.5, 0.5, 0.5, 0.5, 2.0], 1).expect("possible");
    assert!((0..1_000).all(|flow| corrected.select(Digest(flow)) == plain.select(Digest(flow))));
    assert_eq!(table(corrected).corrected(), (0, 4));
}

#[test]
fn fragments_with_a_common_seed_or_name_and_unknown_ones_are_refused() {
    let new = |fragments: &[Settings]| {
        let path = Path::all(&[0]).expect("possible");
        PathTable::new(1, fragments, [(5, path.clone()), (6, path)]).map(|table| table.version())
    };
    let one = settings(0, 1);

    assert_eq!(new(&[one, settings(1, 1)]), Ok(1));
    assert_eq!(new(&[one, Settings { id: 1, ..one }]), Err(TableError::Seed { one: 0, other: 1 }));
    assert_eq!(new(&[one, Settings { seed: 1, ..one }]), Err(TableError::Id(0)));
    assert_eq!(new(&[settings(1, 1)]), Err(TableError::Unknown { path: 5, fragment: 0 }));
    let twice = [(5, Path::all(&[0]).expect("possible")), (5, Path::all(&[0]).expect("possible"))];
    assert_eq!(PathTable::new(1, &[one], twice).err(), Some(TableError::Path(5)));
}

#[test]
fn nothing_is_said_where_a_fragment_was_skipped_or_began_anew() {
    let path = Path::all(&ids(3)).expect("possible");
    let mut nodes = fragments(3, 100);
    let mut header = Header::first(0);
    header.pass(&path, 0, Digest(1), &mut nodes[0]);
    header.pass(&path, 2, Digest(1), &mut nodes[2]);
    assert_eq!(header.estimate(&path, 0), Err(NoEstimate::Skipped { touched: 2, chosen: 3 }));
    assert!(Header::first(0).estimate(&path, 0).is_err(), "nobody counted");

    let table = table(path.clone());
    assert_eq!(table.estimate(0, Digest(1), &nodes[..2]), Err(NoEstimate::Missing(2)));
    assert_eq!(table.estimate(9, Digest(1), &nodes), Err(NoEstimate::Path(9)));
    nodes[1].rotate(1);
    let header = send(&mut nodes, &path, Digest(1));
    assert_eq!(header.estimate(&path, 0), Err(NoEstimate::Skipped { touched: 2, chosen: 3 }));
    assert_eq!(nodes[1].estimate(Digest(1)), 1, "it counts for its own epoch");
    assert_eq!(header.estimate(&path, 1), Err(NoEstimate::Epoch { found: 0, expected: 1 }));
    assert_eq!(table.estimate(0, Digest(1), &nodes), Err(NoEstimate::Epoch { found: 1, expected: 0 }));

    let empty = Path::all(&[]).expect("possible");
    assert_eq!(Header::first(0).estimate(&empty, 0), Err(NoEstimate::Unmonitored));
    let empty = PathTable::new(1, &[], [(0, empty)]).expect("possible");
    let again = PathTable::decode(&empty.encode(), 1).expect("what was encoded");
    assert_eq!(again.estimate(0, Digest(1), &nodes), Err(NoEstimate::Unmonitored));
}

#[test]
fn a_packet_that_is_lost_between_two_fragments_is_in_no_estimate_of_both() {
    let all = Path::all(&ids(3)).expect("possible");
    let mut nodes = fragments(3, 100);
    let mut last = None;
    for number in 0..10 {
        if number % 3 == 1 {
            // Lost behind the first fragment: no later hop sees it.
            let mut header = Header::first(0);
            header.pass(&all, 0, Digest(1), &mut nodes[0]);
            assert_eq!(header.estimate(&all, 0), Err(NoEstimate::Skipped { touched: 1, chosen: 3 }));
        } else {
            last = Some(send(&mut nodes, &all, Digest(1)).estimate(&all, 0).expect("all counted").count);
        }
    }

    let table = table(all);
    assert_eq!(last, Some(7), "those that were delivered");
    assert_eq!(table.estimate(0, Digest(1), &nodes).expect("all were collected").count, 7);
    assert_eq!([0, 1, 2].map(|at| nodes[at].estimate(Digest(1))), [10, 7, 7]);
    // Who counts at the first fragment only counts what passed it.
    let single = Path::weighted(&ids(3), 1, &[1.0, 1e-9, 1e-9], 1).expect("possible");
    assert!(single.select(Digest(1)).contains(0));
    let table = PathTable::new(1, &[0, 1, 2].map(|id| settings(id, 100)), [(0, single)]).expect("possible");
    assert_eq!(table.estimate(0, Digest(1), &nodes).expect("it was collected").count, 10);
}

#[test]
fn a_flow_that_changes_its_route_is_the_sum_over_its_paths_and_less_on_each() {
    let (before, after) = (Path::all(&[0, 1]).expect("possible"), Path::all(&[2, 3]).expect("possible"));
    let (mut nodes, flow) = (fragments(4, 1_000), Digest(1));
    for packet in 0..12 {
        let (passed, path) = if packet < 5 { (&mut nodes[..2], &before) } else { (&mut nodes[2..], &after) };
        assert!(send(passed, path, flow).estimate(path, 0).is_ok());
    }

    let all = [0, 1, 2, 3].map(|id| settings(id, 1_000));
    let table = PathTable::new(1, &all, [(0, before), (1, after)]).expect("possible");
    let parts = [0, 1].map(|path| table.estimate(path, flow, &nodes).expect("all were collected"));
    assert_eq!((parts.map(|part| part.count), global(parts).count), ([5, 7], 12));
}

#[test]
fn a_forged_header_that_looks_complete_has_no_estimate_and_a_forged_least_is_overwritten_by_the_first_hop() {
    let path = Path::all(&ids(2)).expect("possible");
    let mut nodes = fragments(2, 100);
    (0..9).for_each(|_| _ = send(&mut nodes, &path, Digest(1)));
    let mut pass = |mut header: Header| {
        for (position, node) in nodes.iter_mut().enumerate() {
            header.pass(&path, position, Digest(1), node);
        }
        header.estimate(&path, 0)
    };

    for (touched, found) in [(1, 3), (2, 4), (253, 255), (255, 255)] {
        let skipped = Err(NoEstimate::Skipped { touched: found, chosen: 2 });
        assert_eq!(pass(Header { least: 1, epoch: 0, touched }), skipped, "{touched} updates were claimed");
    }
    // Believed, if it comes from within: that is why the first hop writes its own.
    assert_eq!(pass(Header { least: 1, epoch: 0, touched: 0 }).expect("complete").count, 1);
    assert_eq!(pass(Header::first(0)).expect("complete").count, 15);
}

#[test]
fn a_load_at_its_limit_stays_there_and_comes_back() {
    let mut fragment = Fragment::new(settings(1, 4)).expect("possible");
    fragment.insert(Digest(1), u32::MAX);
    for _ in 0..40 {
        let same = fragment.clone();
        fragment.merge(&same).expect("one fragment");
    }
    let before = fragment.estimate(Digest(1));

    assert_eq!((fragment.insert(Digest(1), 9), fragment.load()), (before, u64::MAX));
    let again = Fragment::decode(&fragment.encode(), 4).expect("what was encoded");
    assert_eq!((again.load(), again.estimate(Digest(1))), (u64::MAX, u32::MAX - 1));
}

#[test]
fn a_full_counter_says_so_and_sizes_over_paths_are_added() {
    let path = Path::all(&ids(2)).expect("possible");
    let mut nodes = fragments(2, 1);
    for node in &mut nodes {
        node.insert(Digest(1), u32::MAX);
    }
    let full = send(&mut nodes, &path, Digest(1)).estimate(&path, 0).expect("all counted");
    assert_eq!((full.count, full.saturated), (u64::from(u32::MAX) - 1, true));

    let mut nodes = fragments(2, 100);
    let small = send(&mut nodes, &path, Digest(1)).estimate(&path, 0).expect("all counted");
    let sum = global([full, small, small]);
    assert_eq!((sum.count, sum.saturated), (u64::from(u32::MAX) + 1, true));
}

#[test]
fn headers_are_six_bytes_and_the_first_hop_overwrites_a_senders() {
    let header = Header { least: 0x0102_0304, epoch: 5, touched: 6 };
    assert_eq!(header.encode(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(Header::decode(header.encode()), header);
    let forged = Header::decode([0; HEADER_BYTES]);
    assert_ne!(forged, Header::first(0));
    assert_eq!(Header::first(0x1ff).epoch, 0xff);
    assert!(forged.estimate(&Path::all(&ids(2)).expect("possible"), 0).is_err());
}

#[test]
fn the_last_hop_reports_a_flow_once_per_epoch_and_counts_what_it_cannot_say() {
    let path = Path::all(&ids(2)).expect("possible");
    let (mut nodes, mut last) = (fragments(2, 4_000), LastHop::new(3, 2, 1));
    let mut reports = Vec::new();
    for round in 0..5 {
        for flow in 0..3 {
            let header = send(&mut nodes, &path, Digest(flow));
            if let Decision::Report(found) = last.insert(&header, &path, Digest(flow)) {
                reports.push((round, flow, found.count));
            }
        }
    }
    assert_eq!(reports, [(2, 0, 3), (2, 1, 3)]);
    assert_eq!((last.tally().estimated, last.tally().dropped), (15, 3), "there is room for two flows");

    last.insert(&Header::first(0), &path, Digest(1));
    last.insert(&Header::first(7), &path, Digest(1));
    last.insert(&Header::first(0), &Path::all(&[]).expect("possible"), Digest(1));
    let tally = last.tally();
    assert_eq!((tally.skipped, tally.epochs, tally.unmonitored), (1, 1, 1));
    last.rotate(1);
    for node in &mut nodes {
        node.rotate(1);
    }
    let again = (0..3).map(|_| last.insert(&send(&mut nodes, &path, Digest(0)), &path, Digest(0)));
    assert_eq!(again.filter(|decision| matches!(decision, Decision::Report(_))).count(), 1);
    assert_eq!(last.memory_bytes(), 4 * 16);
    let (mut roomless, full) = (LastHop::new(1, 0, 1), Header { least: 9, epoch: 0, touched: 2 });
    assert!(matches!(roomless.insert(&full, &path, Digest(9)), Decision::Pass(_)));
    assert_eq!(roomless.tally().dropped, 1);
}

#[test]
fn the_bound_of_one_sketch_holds_for_all_but_few_flows() {
    let (epsilon, delta) = (0.02, 0.05);
    for seed in 0..20 {
        let settings = Settings::of_error(0, epsilon, delta, seed).expect("possible");
        let mut sketch = Fragment::new(settings).expect("possible");
        let size = |flow: u64| 1 + 2_000 / (flow + 1) as u32;
        for flow in 0..2_000 {
            sketch.insert(Digest(flow), size(flow));
        }
        let bound = epsilon * sketch.load() as f64;
        let over = (0..2_000).filter(|flow| f64::from(sketch.estimate(Digest(*flow)) - size(*flow)) > bound).count();
        assert!(over as f64 <= delta * 2_000.0, "seed {seed}: {over}");
    }
}

#[test]
fn impossible_bytes_are_refused() {
    let mut fragment = Fragment::new(settings(1, 1 << 20)).expect("possible");
    assert!(Fragment::decode(&fragment.encode(), 1 << 10).is_err(), "few bytes, much memory");
    fragment.insert(Digest(1), 9);
    let encoded = fragment.encode();
    assert!((0..encoded.len()).all(|cut| Fragment::decode(&encoded[..cut], 1 << 20).is_err()));
    assert!(PathTable::decode(&encoded, 1).is_err());
    let table = table(Path::all(&ids(3)).expect("possible")).encode();
    assert!(PathTable::decode(&table, 0).is_err());
    assert!((0..table.len()).all(|cut| PathTable::decode(&table[..cut], 1).is_err()));
}
