// LDA, for either end: sums of timestamps and counts, in two banks that sample different shares of the packets, of
// which the receiver's agent computes mean and deviation of the one-way delay, and loss.
//
// # Source
//
// R. R. Kompella, K. Levchenko, A. C. Snoeren, G. Varghese, Every Microsecond Counts, SIGCOMM 2009;
// `synopses/src/finecomb.rs` with `Rule::Lda`, with the names of `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the counts and the sums of the library's `FineComb` with two banks and
// `Sampling::Disjoint`, bit for bit, for each interval. Both ends are the same program: LDA stashes nothing.
//
// # Parameters
//
// In `constants.p4`: buckets M of each bank, the hashes that each bank samples, and, as keys (`shared/keys.p4`), the
// mixers and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/begun.p4`, and, for the banks 0 and 1:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | packets | 2 × 32 | packets of an interval, sampled or not |
// | sums_low, sums_high | 4 M × 32 each | sum of timestamps in nanoseconds, modulo 2⁶⁴ |
// | counts | 4 M × 32 | sampled packets |
//
// Buckets are in the order of intervals' parity, then banks, then rows. Each array is read and written at most once for
// a packet, at one index: a packet is in one bank at most. Nobody empties entries: those of a parity are the sum of all
// of its intervals, and an interval is the difference of two polls (`shared/begun.p4`).
//
// # Differences from the library
//
// - Counts have 32 bits. Sums of 64 bits are two halves: a register of hardware has 32.
// - An interval begins with a frame of kind 0x88b6 that has its number, and uses the other one of two sets of buckets.
//   The library's caller has a `FineComb` for each interval.
// - Without the XORs of digests, which LDA does not compare. The agent loads them as 0.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#ifdef HARDWARE_DIGEST
#define NAME_PAYLOAD 8
#else
#define NAME_PAYLOAD 32
#endif

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/begun.p4"
#include "../shared/frames.p4"
#ifdef HARDWARE_DIGEST
#include "../shared/hardware-name.p4"
#else
#include "../shared/name.p4"
#endif

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

/// The mixers that derive sample and row from a digest, and the secret of digests.
struct keys_t {
    key_t         sample;
    key_t         row;
    secret_t      first;
    more_secret_t second;
    bit<32>       checksum;
}

control Keys(out keys_t current) {
    action set(key_t sample, key_t row, SECRET_PARAMETERS(s), MORE_PARAMETERS(t), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(sample)
        CHECK(row)
        CHECK_SECRET(s)
        CHECK_MORE(t)
        current = {sample, row, SECRET_OF(s), MORE_OF(t), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(SAMPLE, ROW, FIRST_SECRET, MORE_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control Lda(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(2) packets;
    register<bit<32>>(4 * BUCKETS) sums_low;
    register<bit<32>>(4 * BUCKETS) sums_high;
    register<bit<32>>(4 * BUCKETS) counts;

    keys_t keys;
    bit<64> identity;
    bit<32> begun;
    bit<1> begins;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Begun.apply(hdr, begun, begins);
        if (meta.packet.usable == 1) {
            bit<32> parity = (bit<32>)begun[0:0];
            bit<32> counted;
            packets.read(counted, parity);
            packets.write(parity, counted + 1);
            PacketName.apply(hdr, meta.packet, keys.first, keys.second, identity);
            bit<64> sample;
            MIX(sample, identity, keys.sample)
            bit<1> sampled = 0;
            bit<32> bank = 0;
            if (sample - FIRST_0 <= MORE_0) {
                sampled = 1;
            } else if (sample - FIRST_1 <= MORE_1) {
                sampled = 1;
                bank = 1;
            }
            if (sampled == 1) {
                bit<64> mixed;
                MIX(mixed, identity, keys.row)
                bit<32> index = (2 * parity + bank) * BUCKETS + PLACE(mixed[63:32], BUCKETS);
                bit<32> low;
                bit<32> high;
                bit<32> count;
                sums_low.read(low, index);
                sums_high.read(high, index);
                bit<64> sum = (high ++ low) + meta.packet.time_ns;
                sums_low.write(index, sum[31:0]);
                sums_high.write(index, sum[63:32]);
                counts.read(count, index);
                counts.write(index, count + 1);
            }
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Lda(), NoEgress(), NoChecksum(), FrameDeparser()) main;
