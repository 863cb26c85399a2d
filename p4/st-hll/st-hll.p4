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
// W = m/2 slots; and, as keys (`shared/keys.p4`), the mixer and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4`, and:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | laps_and_ranks | m × 32 | lap in which an item came last, and in the last REGISTER_BITS bits its largest rank |
// | slot_low, slot_high | 1 × 32 each | the latest slot: packets' time in nanoseconds, divided by 2^SLOT_SHIFT |
// | inserted, late, dropped | 1 × 32 each | the library's counts of the same names |
//
// Each is read and written at most once for a packet, at one index. `laps_and_ranks` takes the larger one of two ranks
// of a lap, and any rank of a new lap, so that nothing has to be reset: no timer writes, and no packet waits for one.
//
// Slot 0 begins at time 0 of the packets' clock: when the switch started, unless packets are replayed. A reader reads
// the slot behind `laps_and_ranks`, so that what was reset meanwhile is empty, and `slot_high` before and after
// `slot_low`, so that both halves are of one slot.
//
// # Differences from the library
//
// - A register is not set to 0 in its turn: its rank then belongs to an earlier lap. In slot s, the rank of register r
//   counts if its lap is ⌊(s − r)/m⌋, modulo 2^(32 − REGISTER_BITS). `StHll::of_ranks` takes what is read, and the
//   slot, with an origin and a start of 0.
// - A slot is a power of two of nanoseconds. The slot itself has 64 bits, but laps come round after 2^32 slots, in 104
//   days with slots of 2.1 ms: the rank of a register without an item for just so long counts again for one lap.
// - The agent estimates: a pipeline has neither logarithms nor divisions.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/frames.p4"
#include "../shared/item-keys.p4"
#include "../shared/st-hll.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

control Cardinality(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        StHll.apply(hdr, meta.packet, keys.item, keys.secret);
    }
}

V1Switch(FrameParser(), NoChecksum(), Cardinality(), NoEgress(), NoChecksum(), FrameDeparser()) main;
