//! Streams of heavy and light keys.

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;

/// Order of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Random,
    /// Heavy keys in turn, light ones at random places.
    RoundRobin,
    /// Each heavy key at once, light ones at random places.
    Bursts,
    /// Ten times a tenth of each heavy key at once, light ones at random places.
    Blocks,
    LightFirst,
    LightLast,
}

impl Order {
    pub const ALL: [Self; 6] =
        [Self::Random, Self::RoundRobin, Self::Bursts, Self::Blocks, Self::LightFirst, Self::LightLast];
}

/// k heavy keys, numbered from 0, each of the same frequency, among light keys that occur once.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub heavy: u64,
    pub frequency: u64,
    pub light: u64,
}

impl Stream {
    pub fn keys(&self, order: Order, seed: u64) -> Vec<Digest> {
        let Self { heavy, frequency, light } = *self;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let runs = match order {
            Order::Bursts => 1,
            Order::Blocks => 10,
            Order::Random | Order::RoundRobin | Order::LightFirst | Order::LightLast => frequency,
        };
        let rounds = (0..runs).flat_map(|run| {
            let times = frequency * (run + 1) / runs - frequency * run / runs;
            (0..heavy).flat_map(move |key| (0..times).map(move |_| key))
        });
        let lights = (0..light).map(|number| heavy + number);
        let mut keys: Vec<u64> = match order {
            Order::LightFirst => lights.chain(rounds).collect(),
            Order::LightLast => rounds.chain(lights).collect(),
            Order::Random => {
                let mut keys: Vec<u64> = rounds.chain(lights).collect();
                keys.shuffle(&mut random);
                keys
            }
            Order::RoundRobin | Order::Bursts | Order::Blocks => {
                let mut places: Vec<u64> = (0..light).map(|_| random.random_range(0..=heavy * frequency)).collect();
                places.sort_unstable();
                insert(rounds, &places, heavy)
            }
        };
        keys.shrink_to_fit();
        keys.into_iter().map(Digest).collect()
    }
}

/// Light keys before the heavy ones at these places.
fn insert(rounds: impl Iterator<Item = u64>, places: &[u64], first_light: u64) -> Vec<u64> {
    let mut lights = (first_light..).zip(places).peekable();
    let mut keys = Vec::new();
    for (place, key) in (0..).zip(rounds) {
        while let Some((light, _)) = lights.next_if(|(_, at)| **at == place) {
            keys.push(light);
        }
        keys.push(key);
    }
    keys.extend(lights.map(|(light, _)| light));
    keys
}

/// Keys of Zipf's law, numbered by rank from 0.
pub fn zipf(keys: usize, skew: f64, updates: usize, seed: u64) -> Vec<Digest> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut sums: Vec<f64> = Vec::with_capacity(keys);
    let mut sum = 0.0;
    for rank in 1..=keys {
        sum += (rank as f64).powf(-skew);
        sums.push(sum);
    }
    let mut key = || {
        let at = random.random::<f64>() * sum;
        sums.partition_point(|below| *below <= at).min(keys - 1)
    };
    (0..updates).map(|_| Digest(key() as u64)).collect()
}
