//! A fat tree of 128 hosts with busy racks: NICs and switches have fragments.

use rand::seq::SliceRandom as _;
use synopses::disaggregated::{LoadTable, Path, Weighting};

use super::{Flow, Random, Series, errors, fragments};
use crate::claim::{Claim, judged_by_own_bar};

/// Hosts, with a NIC each; 4 to a rack, 16 to a pod.
const HOSTS: usize = 128;
/// First fragment of the racks' switches, of the pods' switches and of the core.
const RACKS: usize = HOSTS;
const PODS: usize = RACKS + 32;
const CORE: usize = PODS + 32;
const FRAGMENTS: u32 = 208;
const SEEDS: u64 = 5;
/// Flows between hosts anywhere, and within each of the busy racks.
const ANYWHERE: usize = 64_000;
const LOCAL: usize = 6_000;
const BUSY_RACKS: usize = 4;

/// The fragments between two different hosts; `way` names the equal routes, 16 of them.
fn route(from: usize, to: usize, way: usize) -> Vec<u32> {
    let pod = |host: usize| PODS + host / 16 * 4 + way / 4;
    let mut route = vec![from, RACKS + from / 4];
    if from / 4 != to / 4 {
        route.push(pod(from));
        if from / 16 != to / 16 {
            route.extend([CORE + way, pod(to)]);
        }
        route.push(RACKS + to / 4);
    }
    route.push(to);
    route.into_iter().map(|fragment| fragment as u32).collect()
}

/// Two different hosts: anywhere, or in a rack.
fn hosts(random: &mut Random, rack: Option<usize>) -> (usize, usize) {
    let (first, number) = rack.map_or((0, HOSTS), |rack| (4 * rack, 4));
    let from = random.below(number);
    (first + from, first + (from + 1 + random.below(number - 1)) % number)
}

/// Routes and flows of an epoch, in random order.
fn traffic(random: &mut Random) -> (Vec<Vec<u32>>, Vec<Flow>) {
    let mut racks = vec![None; ANYWHERE];
    // One rack in each of the first pods.
    racks.extend((0..BUSY_RACKS * LOCAL).map(|flow| Some(flow % BUSY_RACKS * 4)));
    racks.shuffle(&mut random.0);
    let flow = |(path, rack): (usize, Option<usize>)| {
        let (from, to) = hosts(random, rack);
        let route = route(from, to, random.below(16));
        let group = usize::from(rack.is_some());
        (route, Flow { group, path, digest: random.digest(), size: random.size(1e4) })
    };
    racks.into_iter().enumerate().map(flow).unzip()
}

#[derive(Clone, Copy)]
struct Policy {
    id: &'static str,
    text: &'static str,
    count: usize,
    weighting: Option<Weighting>,
}

const SOFT: Option<Weighting> = Some(Weighting::Soft { floor: 1 });
const STRICT: Option<Weighting> = Some(Weighting::Strict);

const POLICIES: [Policy; 6] = [
    Policy { id: "D10-all", text: "fat tree, all fragments (DISCO)", count: 7, weighting: None },
    Policy { id: "D10-random-2", text: "fat tree, random, K = 2", count: 2, weighting: None },
    Policy { id: "D10-random-3", text: "fat tree, random, K = 3", count: 3, weighting: None },
    Policy { id: "D10-soft-2", text: "fat tree, soft, K = 2", count: 2, weighting: SOFT },
    Policy { id: "D10-strict-2", text: "fat tree, strict, K = 2", count: 2, weighting: STRICT },
    Policy { id: "D10-strict-3", text: "fat tree, strict, K = 3", count: 3, weighting: STRICT },
];

impl Policy {
    /// The epoch after one with random choices.
    fn run(&self, seed: u64) -> (f64, [f64; 2]) {
        let mut random = Random::new(seed);
        let mut nodes = fragments(FRAGMENTS, seed + 1);
        let (routes, flows) = traffic(&mut random);
        let choose = |route: &Vec<u32>| Path::random(route, self.count, seed).expect("possible");
        let _ = errors::<2>(&mut nodes, &routes.iter().map(choose).collect::<Vec<_>>(), &flows);
        let loads: LoadTable = nodes.iter().collect();
        for node in &mut nodes {
            node.rotate(1);
        }
        let (routes, flows) = traffic(&mut random);
        let paths: Vec<Path> = match self.weighting {
            None => routes.iter().map(choose).collect(),
            Some(weighting) => {
                let choose = |route: &Vec<u32>| {
                    Path::weighted(route, self.count, &loads.weights(route, weighting), seed).expect("possible")
                };
                routes.iter().map(choose).collect()
            }
        };
        errors(&mut nodes, &paths, &flows)
    }

    fn series(&self) -> Series {
        Series::of(&(0..SEEDS).map(|seed| self.run(seed)).collect::<Vec<_>>())
    }
}

pub fn claims() -> Vec<Claim> {
    let found = POLICIES.map(|policy| policy.series());
    let all = found[0].all;
    let weighted = POLICIES.iter().zip(&found).filter(|(policy, _)| policy.weighting.is_some());
    let rows = weighted.map(|(policy, series)| {
        let is_peer = |other: &Policy| other.weighting.is_none() && other.count == policy.count;
        let random = POLICIES.iter().zip(&found).find(|(other, _)| is_peer(other)).map_or(f64::NAN, |(_, found)| found.all);
        Claim {
            id: policy.id,
            text: policy.text,
            published: "no figure",
            ours: format!(
                "{:.3} all flows, {:.3} between any hosts, {:.3} in busy racks; all flows with all fragments (DISCO) {all:.3}: {:.2} \
                 times better; with {} random ones {random:.3}",
                series.all,
                series.horizontal,
                series.vertical,
                all / series.all,
                policy.count
            ),
            tolerance: "ours: better than all fragments and than random ones of the same number, all flows",
            verdict: judged_by_own_bar(series.all < all.min(random)),
        }
    });
    rows.collect()
}
