// FineComb, the receiver's end: buckets as at the sender's end, and the sampled packets near the ends of intervals,
// among which the agent looks for those that changed the interval on their way.
//
// # Source
//
// M. Lee, S. Goldberg, R. R. Kompella, G. Varghese, Fine-Grained Latency and Loss Measurements in the Presence of
// Reordering, SIGMETRICS 2011; `synopses/src/finecomb.rs`, with the names of `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the buckets and the stashed packets of the library's `Receiver`, bit for bit,
// for each interval.
//
// # Parameters
//
// In `constants.p4`: buckets M of one bank, the largest hash that is sampled, w stashed packets before and after an
// end, a power of two, and, as keys (`shared/keys.p4`), the mixers and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/interval.p4`: 2 × 20 M bytes of buckets. And, for four ends of intervals, the
// end of interval k (counted from 0) at k + 1 modulo 4, its entries one after the other:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | before_count, after_count | 4 × 32 each | packets that were stashed; before the end the last w of them are there |
// | before_…, after_…: values_low, values_high | 4 w × 32 each | value that is added up by XOR |
// | before_…, after_…: times_low, times_high | 4 w × 32 each | timestamp in nanoseconds |
// | before_…, after_…: rows, numbers | 4 w × 32 each | row, and number of the packet |
//
// # Differences from the library
//
// - Counts have 32 bits. Sums of 64 bits are two halves: a register of hardware has 32.
// - An interval begins with a frame of kind 0x88b6 that has its number, and uses the other one of two sets of buckets.
//   The library's caller has a `FineComb` for each interval. A set is the sum of its intervals, and an interval the
//   difference of two polls (`shared/begun.p4`).
// - Stashes are no sums: only the two counts of an end are set to 0, and what is behind a count is of an earlier end.
//   The stash of the end of interval k is whole while the intervals k + 2 and k + 3 last. When interval k + 4 begins,
//   it begins anew, for the end of that one.
// - One bank. Several are several copies of the buckets, each with its own hashes that are sampled.
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
#include "../shared/frames.p4"
#include "../shared/packet-keys.p4"

struct metadata_t {
    packet_t  packet;
    sampled_t found;
}

#include "../shared/parser.p4"

/// Writes a packet into one list.
#define STASH(list, index)                                         \
    {                                                              \
        list##_values_low.write(index, meta.found.value[31:0]);    \
        list##_values_high.write(index, meta.found.value[63:32]);  \
        list##_times_low.write(index, meta.packet.time_ns[31:0]);  \
        list##_times_high.write(index, meta.packet.time_ns[63:32]); \
        list##_rows.write(index, meta.found.row);                  \
        list##_numbers.write(index, meta.found.number);            \
    }

/// Registers of one list.
#define STASHED(list)                                  \
    register<bit<32>>(4) list##_count;                 \
    register<bit<32>>(4 * STASHED_MOST) list##_values_low;    \
    register<bit<32>>(4 * STASHED_MOST) list##_values_high;   \
    register<bit<32>>(4 * STASHED_MOST) list##_times_low;     \
    register<bit<32>>(4 * STASHED_MOST) list##_times_high;    \
    register<bit<32>>(4 * STASHED_MOST) list##_rows;          \
    register<bit<32>>(4 * STASHED_MOST) list##_numbers;

control Receiver(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    STASHED(before)
    STASHED(after)

    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Interval.apply(hdr, meta.packet, keys.packets, meta.found);
        bit<32> start = meta.found.begun & 3;
        bit<32> end = (meta.found.begun + 1) & 3;
        if (meta.found.begins == 1) {
            before_count.write(end, 0);
            after_count.write(end, 0);
        }
        if (meta.found.sampled == 1) {
            bit<32> count;
            bit<32> index;
            before_count.read(count, end);
            before_count.write(end, count + 1);
            index = end * STASHED_MOST + (count & (STASHED_MOST - 1));
            STASH(before, index)
            after_count.read(count, start);
            if (count < STASHED_MOST) {
                after_count.write(start, count + 1);
                index = start * STASHED_MOST + count;
                STASH(after, index)
            }
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Receiver(), NoEgress(), NoChecksum(), FrameDeparser()) main;
