use super::*;
use crate::digest::{Digest, DigestKey, DigestKind, Mixer, place};
use alloc::vec::Vec;
use std::collections::BTreeMap;

const SECRET: u128 = 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978;

fn key(secret: u128) -> DigestKey {
    DigestKey::of_kind(DigestKind::Hardware, secret)
}

fn mixer(purpose: u64) -> Mixer {
    Mixer::new(DigestKind::Hardware.seed(7), purpose)
}

/// The name of a request of a handshake, of which only the sequence number changes.
fn request(number: u32) -> [u8; 45] {
    let mut bytes = core::array::from_fn(|at| (at as u8).wrapping_mul(7));
    bytes[40..44].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// By how many standard deviations counts of something that is spread evenly differ from that.
fn irregularity(counts: &[u32]) -> f64 {
    let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    let sum: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    (sum - freedom) / (2.0 * freedom).sqrt()
}

/// Numbers of a script in Python, of `zlib.crc32` and whole numbers, which was written from the module's documentation:
///
/// ```text
/// def crc(*words): return zlib.crc32(struct.pack('>%dI' % len(words), *words))
/// def rounds(high, low, keys):
///     high = high + crc(keys[0], low) & M32
///     low = low + crc(keys[1], high) & M32
///     return high + crc(keys[2], low) & M32, low
/// def digest(k, text):
///     words = struct.unpack('>%dI' % -(-len(text) // 4), text + b'\0' * (-len(text) % 4))
///     added = [k[2 + at % 22] for at in range(len(words))]
///     high = crc(*[w + (a >> 32) & M32 for w, a in zip(words, added)])
///     low = crc(*[(w << 16 | w >> 16) + a & M32 for w, a in zip(words, added)][::-1])
///     low, high = rounds(low, high, (k[0] >> 32 ^ len(text), k[0] & M32, k[1] >> 32))
///     return high, low
/// def mix(d, m): return rounds(*d, (m >> 32, m & M32, m >> 32 ^ m & M32))
/// def mix_number(n, m): return mix(mix((n >> 32, n & M32), m)[::-1], m)
/// def fingerprint(d, m): return d[0] + crc(m & M32, d[1]) & M32
/// ```
///
/// The text is the bytes 0, 1, 2, … in this number; then its digest, and what purpose 1 of seed 7 makes of that and of
/// the text's length.
const GOLDEN: [(u8, u64, u64, u64, u32); 4] = [
    (0, 0xa2bc_0d7e_a7af_99f5, 0x0c5b_51aa_81aa_02f5, 0xa3ff_9e34_9623_6fce, 0x1551_feb8),
    (45, 0xb4ba_ca4b_0137_78cc, 0x53cb_cd01_681f_4dda, 0x79a1_e0b9_e20a_36e4, 0xa6af_de59),
    (64, 0xc9ac_55d6_4a8e_13d2, 0xdebb_7bb7_7d77_9241, 0xf13a_b584_d6c6_06a2, 0xd515_d778),
    (100, 0x482a_3961_cfda_4054, 0x4fb0_f549_3e5f_eb40, 0x842f_583e_f4a9_5a3f, 0x7740_a2a6),
];

#[test]
fn digests_and_derived_values_are_those_of_another_program() {
    assert_eq!((DigestKind::Hardware.seed(7), mixer(1).constant()), (0x7069_7065_12ae_3023, 0xa0ad_9002_6437_9a5c));
    for (length, digest, mixed, of_number, print) in GOLDEN {
        let bytes: Vec<u8> = (0..length).collect();
        let found = key(SECRET).digest(&bytes);
        let derived = (mixer(1).mix(found), mixer(1).fingerprint(found));

        assert_eq!((found, derived), (Digest(digest), (mixed, print)), "{length} bytes");
        assert_eq!(mixer(1).mix_number(length.into()), of_number, "{length}");
    }
    assert_eq!(key(SECRET).digest(b"123456789"), Digest(0x213d_6966_f923_2ca4));
}

#[test]
fn the_crc_is_that_of_ieee_802_3() {
    for (first, second) in [(0_u32, 0_u32), (1, u32::MAX), (0x0102_0304, 0xf0e0_d0c0)] {
        let bytes = [first.to_be_bytes(), second.to_be_bytes()].concat();
        assert_eq!(crc(first, second), crc32fast::hash(&bytes));
    }
}

/// What each bit of a name of so many words changes of both CRCs, as long as no addition carries.
fn columns(words: usize) -> Vec<u64> {
    let column = |bit: usize| {
        let mut name = alloc::vec![0_u32; words];
        name[bit / 32] = 1 << (bit % 32);
        let upper = name.iter().fold(0, |register, word| after(register, *word));
        let lower = name.iter().rev().fold(0, |register, word| after(register, word.rotate_left(16)));
        u64::from(upper) << 32 | u64::from(lower)
    };
    (0..32 * words).map(column).collect()
}

#[test]
fn both_crcs_together_have_64_independent_bits() {
    for words in [10, 12, 16] {
        let mut basis: Vec<u64> = Vec::new();
        for column in columns(words) {
            // Each one of the basis has a highest bit of its own.
            let rest = basis.iter().fold(column, |rest, one| rest.min(rest ^ one));
            if rest != 0 {
                basis.push(rest);
                basis.sort_unstable_by(|one, other| other.cmp(one));
            }
        }
        assert_eq!(basis.len(), 64, "{words} words");
    }
}

#[test]
fn no_difference_of_up_to_six_bits_is_in_the_kernel_of_both_crcs() {
    // Of a request's twelve words. If sums of up to three columns are different, no six have the sum 0.
    let columns = columns(12);
    let mut sums = alloc::vec![0];
    for (at, one) in columns.iter().enumerate() {
        sums.push(*one);
        for (before, other) in columns[..at].iter().enumerate() {
            sums.push(one ^ other);
            sums.extend(columns[..before].iter().map(|third| one ^ other ^ third));
        }
    }
    sums.sort_unstable();

    assert!(sums.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn a_digest_depends_on_key_length_and_every_bit_of_the_bytes() {
    const TIMES: u32 = 1_000;
    let mut flips = alloc::vec![[0_u32; 64]; 45 * 8];
    for number in 0..TIMES {
        let bytes = request(number.wrapping_mul(0x9e37_79b9));
        let digest = key(SECRET).digest(&bytes).0;
        for (bit, flips) in flips.iter_mut().enumerate() {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            let changed = key(SECRET).digest(&other).0 ^ digest;
            flips.iter_mut().enumerate().for_each(|(at, flips)| *flips += (changed >> at & 1) as u32);
        }
    }
    // Half of the times, with a standard deviation of 16; of 23,040 such numbers the worst is some four of them off.
    let worst = flips.iter().flatten().map(|flips| flips.abs_diff(TIMES / 2)).max();
    assert!(worst < Some(95), "{worst:?}");

    let bytes = request(1);
    let longer = [&bytes[..], &[0]].concat();
    assert_ne!(key(1).digest(&bytes), key(2).digest(&bytes));
    assert_ne!(key(1).digest(&bytes), key(1).digest(&longer));
    assert_ne!(key(1).digest(&bytes), DigestKey::new(1).digest(&bytes));
}

/// Two numbers that are derived from one digest.
type Derive<'a> = &'a dyn Fn(Digest) -> [u32; 2];

#[test]
fn values_that_are_derived_from_one_digest_are_independent_and_even() {
    let digests: Vec<Digest> = (0..1 << 18).map(|number| key(SECRET).digest(&request(number))).collect();
    let of = |digest, purpose| mixer(purpose).mix(digest);
    let high = |digest, purpose| (of(digest, purpose) >> 32) as u32;
    let low = |digest, purpose| of(digest, purpose) as u32;
    let lowest = |digest, purpose| low(digest, purpose).reverse_bits();
    let print = |digest| mixer(1).fingerprint(digest);
    let pairs: [(&str, Derive<'_>); 6] = [
        ("sample and row", &|digest| [high(digest, 1), high(digest, 2)]),
        ("row and value", &|digest| [high(digest, 1), lowest(digest, 2)]),
        ("lowest bits of two values", &|digest| [lowest(digest, 1), lowest(digest, 2)]),
        ("index and print", &|digest| [high(digest, 1), print(digest)]),
        ("coin and print", &|digest| [low(digest, 1), print(digest)]),
        ("index and coin", &|digest| [high(digest, 1), low(digest, 1)]),
    ];
    for (what, derive) in pairs {
        let mut counts = alloc::vec![0_u32; 32 * 32];
        for digest in &digests {
            let [left, right] = derive(*digest);
            counts[(place(left, 32) * 32 + place(right, 32)) as usize] += 1;
        }
        let found = irregularity(&counts);
        assert!(found.abs() < 4.0, "{what}: {found}");
    }
}

#[test]
fn both_halves_of_a_mixed_counter_or_prefix_are_even_and_neighbours_are_independent() {
    for (from, shift) in [(0, 0), (1 << 63, 0), (7, 40), (1 << 63, 16)] {
        let numbers = 0..1_u64 << 18;
        let mixed: Vec<u64> = numbers.map(|number| mixer(2).mix_number(from | number << shift)).collect();
        for half in [0, 32] {
            let part = |mixed: u64| place((mixed >> half) as u32, 64) as usize;
            let mut counts = alloc::vec![0_u32; 1 << 12];
            mixed.windows(2).step_by(2).for_each(|pair| counts[part(pair[0]) * 64 + part(pair[1])] += 1);
            let found = irregularity(&counts);
            assert!(found.abs() < 4.0, "from {from:#x} by {shift}, half {half}: {found}");
        }
    }
}

#[test]
fn the_lowest_bits_of_a_fingerprint_are_independent_of_the_digest_and_of_what_else_is_derived() {
    type Other = fn(Digest) -> u64;
    let others: [(&str, Other); 4] = [
        ("digest, low", |digest| digest.0),
        ("digest, high", |digest| digest.0 >> 32),
        ("mixed, low", |digest| mixer(1).mix(digest)),
        ("mixed, high", |digest| mixer(1).mix(digest) >> 32),
    ];
    for (what, other) in others {
        let mut counts = alloc::vec![0_u32; 1 << 10];
        for number in 0..1 << 18 {
            let digest = key(SECRET).digest(&request(number));
            counts[(mixer(1).fingerprint(digest) as usize & 31) * 32 + (other(digest) as usize & 31)] += 1;
        }
        let found = irregularity(&counts);
        assert!(found.abs() < 4.0, "{what}: {found}");
    }
}

#[test]
fn prefixes_that_share_a_row_under_one_seed_do_not_share_it_under_others() {
    let row = |seed: u64, prefix: u64| Mixer::new(DigestKind::Hardware.seed(seed), 5).mix_number(prefix) >> 56;
    // Those of 2¹⁸ prefixes that fall into row 0 of 256.
    let chosen: Vec<u64> =
        (0..1_u64 << 18).map(|prefix| prefix << 40 | 4).filter(|prefix| row(1, *prefix) == 0).collect();
    for seed in 2..20 {
        let mut counts = alloc::vec![0_u32; 256];
        for prefix in &chosen {
            counts[row(seed, *prefix) as usize] += 1;
        }
        let found = irregularity(&counts);
        assert!(found.abs() < 5.0, "seed {seed}: {found}");
    }
}

#[test]
fn digests_collide_as_often_as_random_numbers() {
    const TIMES: u32 = 1 << 19;
    let mut digests: Vec<u64> = (0..TIMES).map(|number| key(SECRET).digest(&request(number)).0).collect();
    let equal = |words: &mut Vec<u64>| {
        words.sort_unstable();
        words.windows(2).filter(|pair| pair[0] == pair[1]).count()
    };
    assert_eq!(equal(&mut digests), 0);
    // 2³⁷ pairs, of which one in 2³² has equal halves: 32, with a standard deviation of 5.7.
    for half in [0, 32] {
        let found = equal(&mut digests.iter().map(|digest| digest >> half & 0xffff_ffff).collect());
        assert!((8..=60).contains(&found), "{found} pairs");
    }
}

#[test]
fn sums_by_xor_are_those_of_no_other_set_where_a_bare_crc_is_fooled() {
    // T3: 4 ⊕ 5 = 8 ⊕ 9, so that the sums of a linear digest are equal.
    let linear = |number: u32| crc32fast::hash(&request(number));
    assert_eq!(linear(4) ^ linear(5), linear(8) ^ linear(9));
    for secret in 0..1_000 {
        let digest = |number| key(secret).digest(&request(number));
        let value = |number| mixer(secret as u64).mix(digest(number));

        assert_ne!(digest(4).0 ^ digest(5).0, digest(8).0 ^ digest(9).0);
        assert_ne!(value(4) ^ value(5), value(8) ^ value(9));
    }
}

#[test]
fn sums_of_sets_that_a_bare_crc_cannot_tell_apart_are_even() {
    // For each number a set of four whose sum is 0. 2¹⁷ of their sums are as even as other numbers, in each part.
    let mut sums: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in (0..1 << 19).step_by(4) {
        let of = |number| mixer(3).mix(key(SECRET).digest(&request(number)));
        let sum = of(number) ^ of(number + 1) ^ of(number ^ 1 << 28) ^ of((number + 1) ^ 1 << 28);
        for at in [0, 11, 22, 32, 43, 54] {
            sums.entry(at).or_insert_with(|| alloc::vec![0; 1 << 10])[(sum >> at & 0x3ff) as usize] += 1;
        }
    }
    for (at, counts) in sums {
        let found = irregularity(&counts);
        assert!(found.abs() < 4.0, "from bit {at}: {found}");
    }
}
