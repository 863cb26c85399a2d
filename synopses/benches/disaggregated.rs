//! Cost of an update of a fragment that fits in the cache and of one that does not, of a choice, and of a packet along
//! a path of 7, beside a hash table of all flows. `cargo bench -p synopses --bench disaggregated`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hashbrown::HashMap;
use synopses::digest::{Digest, DigestKey};
use synopses::disaggregated::{Fragment, Header, Path, Settings};

const PACKETS: u64 = 1 << 20;
const FLOWS: u64 = 100_000;

fn main() {
    divan::main();
}

fn packets() -> Vec<Digest> {
    let key = DigestKey::new(1);
    (0..PACKETS).map(|number| key.digest(&(number * number % FLOWS).to_le_bytes())).collect()
}

fn fragment(id: u32, counters: u32) -> Fragment {
    Fragment::new(Settings { id, counters, rows: 1, seed: id.into() }).expect("possible")
}

/// 8 kB, 256 kB and 64 MB of counters.
#[divan::bench(args = [2_000, 65_536, 16_777_216], sample_count = 20, sample_size = 1)]
fn insert(bencher: Bencher<'_, '_>, counters: u32) {
    let packets = packets();
    let mut fragment = fragment(0, counters);
    bencher.counter(ItemsCount::new(PACKETS as usize)).bench_local(|| {
        for packet in black_box(&packets) {
            fragment.insert(*packet, 1);
        }
        fragment.load()
    });
}

#[divan::bench(args = [1, 2, 7], sample_count = 20, sample_size = 1)]
fn select_of_seven(bencher: Bencher<'_, '_>, count: usize) {
    let packets = packets();
    let path = Path::random(&[0, 1, 2, 3, 4, 5, 6], count, 1).expect("possible");
    bencher
        .counter(ItemsCount::new(PACKETS as usize))
        .bench_local(|| black_box(&packets).iter().filter(|packet| path.select(**packet).contains(3)).count());
}

#[divan::bench(args = [1, 2, 7], sample_count = 20, sample_size = 1)]
fn seven_hops(bencher: Bencher<'_, '_>, count: usize) {
    let packets = packets();
    let path = Path::random(&[0, 1, 2, 3, 4, 5, 6], count, 1).expect("possible");
    let mut nodes: Vec<Fragment> = (0..7).map(|id| fragment(id, 2_000)).collect();
    bencher.counter(ItemsCount::new(PACKETS as usize)).bench_local(|| {
        let mut largest = 0;
        for packet in black_box(&packets) {
            let mut header = Header::first(0);
            for (position, node) in nodes.iter_mut().enumerate() {
                header.pass(&path, position, *packet, node);
            }
            largest = largest.max(header.least);
        }
        largest
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn hash_table_of_all_flows(bencher: Bencher<'_, '_>) {
    let packets = packets();
    let mut table = HashMap::<u64, u64>::with_capacity(FLOWS as usize);
    bencher.counter(ItemsCount::new(PACKETS as usize)).bench_local(|| {
        for packet in black_box(&packets) {
            *table.entry(packet.0).or_default() += 1;
        }
        table.len()
    });
}
