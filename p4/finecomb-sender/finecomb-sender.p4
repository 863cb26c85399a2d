// FineComb, the sender's end: sums of timestamps, counts and XORs of digests, of which the receiver's agent computes
// mean and deviation of the one-way delay, and loss. Without the XORs it is LDA.
//
// # Source
//
// M. Lee, S. Goldberg, R. R. Kompella, G. Varghese, Fine-Grained Latency and Loss Measurements in the Presence of
// Reordering, SIGMETRICS 2011; `synopses/src/finecomb.rs`, with the names of `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the buckets of the library's `FineComb`, bit for bit, for each interval.
//
// # Parameters
//
// In `constants.p4`: buckets M of one bank, the largest hash that is sampled, and, as keys (`shared/keys.p4`), the
// mixers and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/interval.p4`: 2 × 20 M bytes of buckets.
//
// # Differences from the library
//
// - Counts have 32 bits. Sums of 64 bits are two halves: a register of hardware has 32.
// - An interval begins with a frame of kind 0x88b6 that has its number, and uses the other one of two sets of buckets.
//   The library's caller has a `FineComb` for each interval. A set is the sum of its intervals, and an interval the
//   difference of two polls (`shared/begun.p4`).
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

control Sender(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Interval.apply(hdr, meta.packet, keys.packets, meta.found);
    }
}

V1Switch(FrameParser(), NoChecksum(), Sender(), NoEgress(), NoChecksum(), FrameDeparser()) main;
