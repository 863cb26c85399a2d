// Fridge, FineComb and ST-HLL in one program: the delay of TCP handshakes, one-way delay and loss at the sending end,
// and the number of distinct flows, of the same packets.
//
// # Source
//
// `fridge`, `finecomb-sender`, `st-hll`, whose controls these are.
//
// # Guarantee
//
// The same frames at the same times give the registers that each of the three has alone.
//
// # Parameters
//
// In `constants.p4`: those of all three, with one key of digests. The agent sets the key in three tables.
//
// # Registers
//
// Those of all three. `frames` and `refusals` are there once.
//
// # Differences from the library
//
// - Those of all three. Names of packets and of flows are two digests, since FineComb's has the payload in it.

#include <core.p4>
#include <v1model.p4>

#define NAME_PAYLOAD 32

#include "constants.p4"
#include "../shared/frames.p4"
#include "../shared/fridge.p4"
#include "../shared/interval.p4"
#include "../shared/st-hll.p4"

struct metadata_t {
    packet_t  packet;
    sampled_t found;
}

#include "../shared/parser.p4"

control Together(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        Frames.apply(hdr, meta.packet, standard);
        Fridge.apply(hdr, meta.packet);
        Interval.apply(hdr, meta.packet, meta.found);
        StHll.apply(hdr, meta.packet);
    }
}

V1Switch(FrameParser(), NoChecksum(), Together(), NoEgress(), NoChecksum(), FrameDeparser()) main;
