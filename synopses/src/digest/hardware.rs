//! The digest of a pipeline of hardware: CRC-32, additions of 32 bits, and a key. No products.
//!
//! 1. The bytes are words of 32 bits, zeros behind the last one. A word of the key is added to each (modulo 2³²), and
//!    the CRC-32 of the sums is the upper half. The lower half is the CRC-32 of other sums: words with their halves
//!    swapped, other words of the key, the last one in front.
//! 2. Three rounds: one half after the other, from the lower one, takes the CRC-32 of a word of the key and the other
//!    half, by addition.
//! 3. Values are derived from a digest by three more rounds, from the upper half, with the words that the seed became:
//!    never two in a row add to one half, which would be one addition of less. Of a number that is no digest, by six.
//!
//! # Source
//!
//! The round is that of TEA (D. Wheeler, R. Needham, TEA, a Tiny Encryption Algorithm, 1994), with a CRC in place of
//! its shifts: a pipeline computes one in the stage of the addition. CRC-32 is that of IEEE 802.3; by how many bits its
//! code words differ: P. Koopman, 32-Bit Cyclic Redundancy Codes for Internet Applications, 2002.
//!
//! # Guarantee
//!
//! - Rounds are bijective, so that a digest is as good as the 64 bits of the two CRCs.
//! - Fingerprints of one digest by two seeds depend on each other: CRC-32 of two keys differ by a constant.
//! - Bytes of one length that differ in one word of 32 bits have different digests, whatever the key is.
//! - The CRC alone is linear over XOR, a round is not: carries depend on the data. A difference in one half, and what
//!   its CRC makes of it in the next round, have ten bits or more together (the distance of CRC-32 for 32 bits), and
//!   each of them but the highest one of a word has a carry with probability 1/2.
//! - Whoever knows neither key nor digests cannot say which slot, row or sample a packet has. But this is neither a
//!   message authentication code nor a cipher: six rounds are few (the fingerprint is the fourth of them alone). Which
//!   numbers that are no digests (prefixes) share a row depends on six rounds with three words of the seed, and on no
//!   key: less than for packets. Who may choose many packets can choose
//!   *differences* for which two of his own packets share a digest more often than with 2⁻⁶⁴: of each CRC such a
//!   difference has to be a code word after the additions, and each of its bits halves the probability.
//! - Whoever knows the seed can undo the rounds, as with the other digest.
//!
//! Why it is so: D75 (`docs/decisions`).

/// CRC-32 of IEEE 802.3, lowest bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Words of a key, and those of them that are added to words of a name.
const KEY: usize = super::SECRET / 8;
const ADDED: usize = KEY - 2;

/// What a byte does to the CRC, with up to three bytes behind it.
static TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let (mut word, mut bits) = (byte as u32, 0);
        while bits < 8 {
            word = if word & 1 == 1 { (word >> 1) ^ POLYNOMIAL } else { word >> 1 };
            bits += 1;
        }
        tables[0][byte] = word;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 4 {
        byte = 0;
        while byte < 256 {
            let word = tables[behind - 1][byte];
            tables[behind][byte] = (word >> 8) ^ tables[0][(word & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// The CRC's register after another word, its highest byte in front.
const fn after(register: u32, word: u32) -> u32 {
    let [first, second, third, fourth] = (register ^ word.swap_bytes()).to_le_bytes();
    let [one, two, three, four] = &TABLES;
    four[first as usize] ^ three[second as usize] ^ two[third as usize] ^ one[fourth as usize]
}

/// CRC-32 of two words.
const fn crc(first: u32, second: u32) -> u32 {
    !after(after(u32::MAX, first), second)
}

/// One half after the other, from the upper one, takes the CRC-32 of a word of the key and the other half.
const fn rounds(halves: u64, keys: [u32; 3]) -> u64 {
    let (mut high, mut low) = ((halves >> 32) as u32, halves as u32);
    let [first, second, third] = keys;
    high = high.wrapping_add(crc(first, low));
    low = low.wrapping_add(crc(second, high));
    high = high.wrapping_add(crc(third, low));
    (high as u64) << 32 | low as u64
}

/// The digest of `bytes`. Of the key, the first two words are those of the rounds; the others are added to the bytes'
/// words, from the first one again if there are more than 22 of these.
pub(super) fn digest(key: &[u64; KEY], bytes: &[u8]) -> u64 {
    let [first, second, added @ ..] = key;
    let words = bytes.len().div_ceil(4);
    let (mut high, mut low) = (u32::MAX, u32::MAX);
    for at in 0..words {
        let back = words - 1 - at;
        high = after(high, word(bytes, at).wrapping_add((added[at % ADDED] >> 32) as u32));
        low = after(low, word(bytes, back).rotate_left(16).wrapping_add(added[back % ADDED] as u32));
    }
    // Bytes with zeros behind them are other bytes.
    let keys = [(first >> 32) as u32 ^ bytes.len() as u32, *first as u32, (second >> 32) as u32];
    rounds(u64::from(!low) << 32 | u64::from(!high), keys).rotate_left(32)
}

/// Four bytes as a number, the highest one in front.
fn word(bytes: &[u8], at: usize) -> u32 {
    let rest = &bytes[4 * at..];
    let (mut word, there) = ([0; 4], rest.len().min(4));
    word[..there].copy_from_slice(&rest[..there]);
    u32::from_be_bytes(word)
}

/// 64 bits that depend on a digest, by the number that a seed became.
pub(super) const fn mix(digest: u64, mixer: u64) -> u64 {
    let (high, low) = ((mixer >> 32) as u32, mixer as u32);
    rounds(digest, [high, low, high ^ low])
}

/// Likewise of a number that is no digest. Its rounds go on from the half that the first three did not end with.
pub(super) const fn mix_number(number: u64, mixer: u64) -> u64 {
    mix(mix(number, mixer).rotate_left(32), mixer)
}

/// A fingerprint of a digest, by one round with a word of its own.
pub(super) const fn fingerprint(digest: u64, mixer: u64) -> u32 {
    ((digest >> 32) as u32).wrapping_add(crc(mixer as u32, digest as u32))
}

#[cfg(test)]
mod tests;
