// ST-HLL: how many distinct flows came in the last W seconds, at any moment, in four bytes for each of m registers.
//
// # Source
//
// A. Cornacchia, dissertation, chapter 2; `synopses/src/cardinality/staggered.rs`, with the flows of
// `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the ranks, the slot and the counts of the library's `StHll` with 64-bit
// hashes, bit for bit, once registers whose turn to be reset has come are read as 0. What the library says of its error
// holds.
//
// # Parameters
//
// In `constants.p4`: m = 2^REGISTER_BITS registers, from 64 to 65,536; a slot of 2^SLOT_SHIFT nanoseconds, so that
// W = m/2 slots; the time of slot 0; the key of digests and the mixer, which are parameters of actions.
//
// # Registers
//
// Those of `shared/frames.p4`, and:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | laps_and_ranks | m × 32 | turns to be reset until then, and in the last 6 bits the largest rank since |
// | slot | 1 × 32 | the latest slot |
// | inserted, late, dropped | 1 × 32 each | the library's counts of the same names |
//
// Each is read and written at most once for a packet, at one index. `laps_and_ranks` only ever takes the larger of two
// numbers, so that nothing has to be reset: no timer writes, and no packet waits for one.
//
// # Differences from the library
//
// - A register is not set to 0 in its turn: its rank then belongs to an earlier lap. In slot s, the rank of register r
//   counts if its lap is ⌊s/m⌋ + 1, or ⌊s/m⌋ if r is above s mod m. `StHll::of_ranks` takes what is read.
// - A slot is a power of two of nanoseconds. Slots have 32 bits: a new time of slot 0 is due after 2^32 of them, in 104
//   days with slots of 2.1 ms. A jump of the clock by half of that is taken for one back.
// - The agent estimates: a pipeline has neither logarithms nor divisions.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#include "constants.p4"
#include "../shared/frames.p4"
#include "../shared/st-hll.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

control Cardinality(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        Frames.apply(hdr, meta.packet, standard);
        StHll.apply(hdr, meta.packet);
    }
}

V1Switch(FrameParser(), NoChecksum(), Cardinality(), NoEgress(), NoChecksum(), FrameDeparser()) main;
