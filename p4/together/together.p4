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
// In `constants.p4`: those of all three, with one secret of digests. Keys of all three are in one table.
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
#include "../shared/fridge.p4"
#include "../shared/interval.p4"
#include "../shared/st-hll.p4"

struct metadata_t {
    packet_t  packet;
    sampled_t found;
}

#include "../shared/parser.p4"

struct keys_t {
    /// Those of the fridge and of ST-HLL.
    key_t         mixer;
    key_t         item;
    packet_keys_t packets;
    bit<32>       checksum;
}

control Keys(out keys_t current) {
    action set(key_t mixer, SECRET_PARAMETERS(s), key_t item, key_t sample, key_t row, key_t value,
               MORE_PARAMETERS(t), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(mixer)
        CHECK_SECRET(s)
        CHECK(item)
        CHECK(sample)
        CHECK(row)
        CHECK(value)
        CHECK_MORE(t)
        current = {mixer, item, {sample, row, value, SECRET_OF(s), MORE_OF(t)}, CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(MIXER, FIRST_SECRET, ITEM_MIXER, SAMPLE, ROW, VALUE, MORE_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control Together(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Fridge.apply(hdr, meta.packet, keys.mixer, keys.packets.first);
        Interval.apply(hdr, meta.packet, keys.packets, meta.found);
        StHll.apply(hdr, meta.packet, keys.item, keys.packets.first);
    }
}

V1Switch(FrameParser(), NoChecksum(), Together(), NoEgress(), NoChecksum(), FrameDeparser()) main;
