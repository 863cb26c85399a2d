// TS-PCSA: how many distinct flows came in any window up to W, by the time at which each bit of a PCSA was set last.
//
// # Source
//
// A. Cornacchia, dissertation, chapter 2; `synopses/src/cardinality/stamped.rs`, with the flows of
// `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the cells and the counts of the library's `TsPcsa` with `Rounding::Up`,
// without offsets and with 64-bit hashes, bit for bit, once both are pruned at the latest time.
//
// # Parameters
//
// In `constants.p4`: m = 2^REGISTER_BITS registers of K positions; a slot of 2^SLOT_SHIFT nanoseconds; W in
// nanoseconds, for packets that are late; and, as keys (`shared/keys.p4`), the mixer and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4`, and:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | stamps | K m × 32 | slot of the position's latest item modulo 2^31, and 1 in the lowest bit; 0 if there was none |
// | latest_low, latest_high | 1 × 32 each | time of the latest packet |
// | inserted, late, dropped | 1 × 32 each | the library's counts of the same names |
//
// Each is read and written at most once for a packet, at one index. `stamps` takes the later one of two slots.
//
// # Differences from the library
//
// - Slots have 31 bits, the library's as few as can be told apart in 2 W. So nothing has to be pruned among packets:
//   the reader prunes what it reads (`TsPcsa::of_slots`), and nobody sets stamps to 0. Slots come round after 2^31 of
//   them, in 25 days with slots of a millisecond: a position without an item for just so long counts again for W.
// - Times are rounded up to slots. Rounded to the closest one, a late packet could have an earlier slot than one that
//   is stale, and it would matter when the library pruned. Counts are too large by half a slot in W; the agent knows.
// - Offsets of registers (TS-PCSA+) concern estimates, and pruning. They are not in the pipeline.
// - A slot is a power of two of nanoseconds. Without the replay's time, a frame has the switch's time in microseconds.
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
#include "../shared/flow.p4"
#include "../shared/rank.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

/// The 31 bits of the slot to which a time is rounded up.
bit<31> rounded_up(in bit<64> time_ns) {
    bit<64> rounded = time_ns + ((64w1 << SLOT_SHIFT) - 1);
    return rounded[SLOT_SHIFT + 30:SLOT_SHIFT];
}

control TsPcsa(in headers_t hdr, in packet_t packet, in key_t mixer, in secret_t secret) {
    register<bit<32>>(POSITIONS << REGISTER_BITS) stamps;
    register<bit<32>>(1) latest_low;
    register<bit<32>>(1) latest_high;
    register<bit<32>>(1) inserted;
    register<bit<32>>(1) late;
    register<bit<32>>(1) dropped;

    bit<64> flow;
    bit<32> position;
    bit<32> rank;

    apply {
        if (packet.usable == 1) {
            bit<32> low;
            bit<32> high;
            latest_low.read(low, 0);
            latest_high.read(high, 0);
            bit<64> latest = high ++ low;
            bit<1> counts = 1;
            if (packet.time_ns >= latest) {
                latest = packet.time_ns;
                latest_low.write(0, packet.time_ns[31:0]);
                latest_high.write(0, packet.time_ns[63:32]);
            } else if (latest - packet.time_ns > WINDOW) {
                counts = 0;
                COUNT(dropped)
            } else {
                COUNT(late)
            }
            if (counts == 1) {
                COUNT(inserted)
                FlowName.apply(hdr, packet, secret, flow);
                Rank.apply(flow, mixer, position, rank);
                if (rank > POSITIONS) {
                    rank = POSITIONS;
                }
                bit<32> index = position * POSITIONS + (rank - 1);
                // Ages, since no stamp is later than the latest packet: so an old one is replaced, however old it is.
                bit<31> newest = rounded_up(latest);
                bit<31> slot = rounded_up(packet.time_ns);
                bit<32> old;
                stamps.read(old, index);
                if (old == 0 || newest - slot <= newest - old[31:1]) {
                    stamps.write(index, slot ++ 1w1);
                }
            }
        }
    }
}

control Cardinality(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        TsPcsa.apply(hdr, meta.packet, keys.item, keys.secret);
    }
}

V1Switch(FrameParser(), NoChecksum(), Cardinality(), NoEgress(), NoChecksum(), FrameDeparser()) main;
