// Digests of hardware, and what synopses derive from them: `synopses/src/digest/hardware.rs`, in CRC-32 and additions
// of 32 bits. What it guarantees is said there.
//
// The key is of 64-bit words: the first two for the rounds, then one for each word of 32 bits of a name. A pipeline
// adds the words' halves to the headers' words in one stage, computes both CRCs in the next one, and needs one stage
// for each round. Numbers that depend on the key only are the control plane's there.

#ifndef HARDWARE_P4
#define HARDWARE_P4

/// CRC-32 of fields, each of 32 bits.
#define CRC(result, ...) \
    hash(result, HashAlgorithm.crc32, 32w0, { __VA_ARGS__ }, 64w0x100000000);

/// A word of a name with the key added, for the CRC of the upper half, and for that of the lower half.
#define WORD(at, bits, key)                                                    \
    bit<32> word##at = bits;                                                   \
    bit<32> upper##at = word##at + key[63:32];                                 \
    bit<32> lower##at = (word##at[15:0] ++ word##at[31:16]) + key[31:0];

/// One half takes the CRC-32 of a word of the key and the other half.
#define ROUND(half, key, other)                                                \
    {                                                                          \
        bit<32> round_key = key;                                               \
        bit<32> taken;                                                         \
        CRC(taken, round_key, other)                                           \
        half = half + taken;                                                   \
    }

/// The last steps of a digest, after both CRCs.
#define NAMED(result, upper, lower, bytes, secret)                             \
    ROUND(lower, secret.k0[63:32] ^ bytes, upper)                              \
    ROUND(upper, secret.k0[31:0], lower)                                       \
    ROUND(lower, secret.k1[63:32], upper)                                      \
    result = upper ++ lower;

/// 64 bits that depend on a digest, by a mixer.
#define MIX(result, digest, mixer)                                             \
    {                                                                          \
        bit<32> upper_half = digest[63:32];                                    \
        bit<32> lower_half = digest[31:0];                                     \
        ROUND(upper_half, mixer[63:32], lower_half)                            \
        ROUND(lower_half, mixer[31:0], upper_half)                             \
        ROUND(upper_half, mixer[63:32] ^ mixer[31:0], lower_half)              \
        result = upper_half ++ lower_half;                                     \
    }

/// Likewise of a number that is no digest: its halves change places between.
#define MIX_NUMBER(result, number, mixer)                                      \
    {                                                                          \
        bit<64> once;                                                          \
        MIX(once, number, mixer)                                               \
        bit<64> changed = once[31:0] ++ once[63:32];                           \
        MIX(result, changed, mixer)                                            \
    }

/// A 32-bit fingerprint of a digest.
#define FINGERPRINT(result, digest, mixer)                                     \
    {                                                                          \
        bit<32> lower_half = digest[31:0];                                     \
        result = digest[63:32];                                                \
        ROUND(result, mixer[31:0], lower_half)                                 \
    }

/// An index below `size`, a power of two: a shift, once the compiler knows the size.
#define PLACE(mixed, size) \
    ((bit<32>)(((bit<64>)(mixed) * (bit<64>)(size)) >> 32))

/// Whether the product of a number and a power of two, `below` + 1, stays below 2⁶⁴: by the highest bits, in the order
/// of the lowest ones. A power has 32 zeros at most.
#define STAYS_BELOW(result, mixed, below)                                      \
    {                                                                          \
        bit<8> turned0 = mixed[32:32] ++ mixed[33:33] ++ mixed[34:34] ++ mixed[35:35] \
            ++ mixed[36:36] ++ mixed[37:37] ++ mixed[38:38] ++ mixed[39:39];   \
        bit<8> turned1 = mixed[40:40] ++ mixed[41:41] ++ mixed[42:42] ++ mixed[43:43] \
            ++ mixed[44:44] ++ mixed[45:45] ++ mixed[46:46] ++ mixed[47:47];   \
        bit<8> turned2 = mixed[48:48] ++ mixed[49:49] ++ mixed[50:50] ++ mixed[51:51] \
            ++ mixed[52:52] ++ mixed[53:53] ++ mixed[54:54] ++ mixed[55:55];   \
        bit<8> turned3 = mixed[56:56] ++ mixed[57:57] ++ mixed[58:58] ++ mixed[59:59] \
            ++ mixed[60:60] ++ mixed[61:61] ++ mixed[62:62] ++ mixed[63:63];   \
        bit<32> turned = turned0 ++ turned1 ++ turned2 ++ turned3;             \
        result = 0;                                                            \
        if ((turned & below[31:0]) == 0) {                                     \
            result = 1;                                                        \
        }                                                                      \
    }

#endif
