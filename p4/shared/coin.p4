// Coins of PRECISION: whether a flow that has no place takes that of another one. `synopses/src/rap/coins.rs`.

#ifndef COIN_P4
#define COIN_P4

#include "hash.p4"

/// Registers:
///
/// | name | entries × bits | what |
/// | --- | --- | --- |
/// | drawn_low, drawn_high | 1 × 32 each | coins that were drawn |
control Coin(in bit<32> least, in key_t mixer, out bit<1> admits) {
    register<bit<32>>(1) drawn_low;
    register<bit<32>>(1) drawn_high;

    apply {
        bit<32> low;
        bit<32> high;
        drawn_low.read(low, 0);
        drawn_high.read(high, 0);
        bit<64> number = (high ++ low) + 1;
        drawn_low.write(0, number[31:0]);
        drawn_high.write(0, number[63:32]);
        bit<64> mixed;
        MIX_NUMBER(mixed, number, mixer)
        // One less than the power of two above `least`: with its reciprocal as probability the flow is admitted.
        bit<64> below = (bit<64>)least;
        below = below | (below >> 1);
        below = below | (below >> 2);
        below = below | (below >> 4);
        below = below | (below >> 8);
        below = below | (below >> 16);
        STAYS_BELOW(admits, mixed, below)
    }
}

#endif
