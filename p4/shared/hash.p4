// Digests and what synopses derive from them: `synopses/src/digest.rs`. XXH3-64 with a secret needs products of
// 64 by 64 bits, which bmv2 has and a pipeline of hardware has not. With HARDWARE_DIGEST the digests are those of
// `hardware.p4`.

#ifndef HASH_P4
#define HASH_P4

#include "keys.p4"

#ifdef HARDWARE_DIGEST
#include "hardware.p4"
#else

const bit<64> PRIME = 0x9e3779b185ebca87;
const bit<64> AVALANCHE = 0x165667919e3779f9;
/// 2⁶⁴ divided by the golden ratio.
const bit<64> APART = 0x9e3779b97f4a7c15;

/// Eight bytes of a packet as a little-endian number.
bit<64> little(in bit<64> bytes) {
    return bytes[7:0] ++ bytes[15:8] ++ bytes[23:16] ++ bytes[31:24] ++ bytes[39:32] ++ bytes[47:40]
        ++ bytes[55:48] ++ bytes[63:56];
}

/// The halves of a product, as XXH3 combines them.
bit<64> fold(in bit<64> a, in bit<64> b) {
    bit<128> product = (bit<128>)a * (bit<128>)b;
    return product[127:64] ^ product[63:0];
}

/// Sixteen bytes with sixteen bytes of the secret, which are two little-endian numbers.
bit<64> mix16(in bit<128> bytes, in key_t low, in key_t high) {
    return fold(little(bytes[127:64]) ^ low, little(bytes[63:0]) ^ high);
}

/// The end of XXH3.
bit<64> avalanche(in bit<64> sum) {
    bit<64> word = (sum ^ (sum >> 37)) * AVALANCHE;
    return word ^ (word >> 32);
}

/// The finaliser of SplitMix64.
bit<64> finalise(in bit<64> value) {
    bit<64> first = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    bit<64> second = (first ^ (first >> 27)) * 0x94d049bb133111eb;
    return second ^ (second >> 31);
}

/// A 32-bit fingerprint of a digest.
bit<32> fingerprint(in bit<64> identity, in key_t mixer) {
    bit<64> product = (identity ^ (mixer[31:0] ++ mixer[63:32])) * APART;
    return product[63:32];
}

/// An index below `size`: the upper half of a product instead of a remainder. A shift if `size` is a power of two.
bit<32> place(in bit<32> mixed, in bit<32> size) {
    bit<64> product = (bit<64>)mixed * (bit<64>)size;
    return product[63:32];
}

/// 64 bits that depend on a digest, by a mixer.
#define MIX(result, digest, mixer) \
    result = finalise(digest ^ mixer);

/// Likewise of a number that is no digest.
#define MIX_NUMBER(result, number, mixer) \
    MIX(result, number, mixer)

/// A 32-bit fingerprint of a digest.
#define FINGERPRINT(result, digest, mixer) \
    result = fingerprint(digest, mixer);

/// An index below `size`.
#define PLACE(mixed, size) \
    place(mixed, size)

/// Whether the product of a number and a power of two, `below` + 1, stays below 2⁶⁴.
#define STAYS_BELOW(result, mixed, below)                                      \
    {                                                                          \
        bit<128> product = (bit<128>)mixed * (bit<128>)(below + 1);            \
        result = 0;                                                            \
        if (product[127:64] == 0) {                                            \
            result = 1;                                                        \
        }                                                                      \
    }

#endif

#endif
