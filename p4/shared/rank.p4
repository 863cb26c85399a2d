// Register and rank of an item, for sketches of cardinality: `synopses/src/cardinality/hash.rs`.

#ifndef RANK_P4
#define RANK_P4

#include "hash.p4"

/// Moves on by a number of bits if none of them is set.
#define SKIP(bits)                       \
    if (rest[bits - 1:0] == 0) {         \
        rank = rank + bits;              \
        rest = rest >> bits;             \
    }

/// The lowest bits of an item's hash are its register; the place of the first bit that is set behind them, from 1, is
/// its rank.
control Rank(in bit<64> item, in key_t mixer, out bit<32> position, out bit<32> rank) {
    apply {
        bit<64> rest;
        MIX(rest, item, mixer)
        position = (bit<32>)rest[REGISTER_BITS - 1:0];
        // The bit behind the last one of the hash, for a hash without any.
        rest = (rest >> REGISTER_BITS) | (64w1 << (64 - REGISTER_BITS));
        rank = 1;
        SKIP(32)
        SKIP(16)
        SKIP(8)
        SKIP(4)
        SKIP(2)
        SKIP(1)
    }
}

#endif
