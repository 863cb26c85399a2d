// A fragment of a disaggregated count-min sketch: how many packets each flow has, of those flows of a path that chose
// this switch. The least count of the fragments that a flow chose is its estimate.
//
// # Source
//
// A. Cornacchia, dissertation, chapter 3, on DISCO; `synopses/src/disaggregated`, with the flows of
// `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames give the counters and the load of the library's `Fragment`, bit for bit, for each epoch, with the
// choices of the library's `Path::all` and `Path::random`. What the library says of estimates holds.
//
// # Parameters
//
// In `constants.p4`: w counters in each of two rows; the path's fragments other than this one, up to three, how many of
// them are before this one, and K, how many a flow updates; and, as keys (`shared/keys.p4`), the mixers and the secret
// of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/begun.p4`, and:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | row0, row1 | 2 w × 32 each | counters; those of odd epochs behind those of even ones |
// | load | 2 × 32 | updates of an epoch |
// | passed | 1 × 32 | packets whose flows chose other fragments |
//
// Each is read and written at most once for a packet, at one index. Nobody empties those of an epoch: `row0`, `row1`
// and `load` are sums of every other epoch, and an epoch is the difference of two polls (`shared/begun.p4`).
//
// # Differences from the library
//
// - An epoch begins with a frame of kind 0x88b6 that has its number, on the path of the packets.
// - Weights of fragments are equal: others would need a logarithm for each flow and fragment. A controller that wants a
//   busy fragment to count less takes it out of the path.
// - A packet adds 1, not its bytes.
// - Counters wrap, since they are read by differences; the library's stay at 2^32 − 2.
// - No header travels with packets, and no hop decides. The agent collects fragments, and `PathTable::estimate`
//   answers.
// - One path: a switch on several has a table in front, by destination, which sets the other fragments.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/begun.p4"
#include "../shared/frames.p4"
#include "../shared/flow.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

/// Counts another fragment that the flow prefers. Of equal numbers the fragment in front is preferred.
#define PREFER(place, number)                                                                    \
    if (OTHERS > place) {                                                                        \
        if (number[63:12] > mine[63:12] || (place < BEFORE && number[63:12] == mine[63:12])) {   \
            preferred = preferred + 1;                                                           \
        }                                                                                        \
    }

/// Adds 1 to a counter of a row.
#define ADD(row, index)                    \
    {                                      \
        bit<32> count;                     \
        row.read(count, index);            \
        row.write(index, count + 1);       \
    }

struct keys_t {
    /// Derive a flow's preference of this fragment, and of others.
    key_t    own;
    key_t    other0;
    key_t    other1;
    key_t    other2;
    /// Derive the columns of both rows.
    key_t    row0;
    key_t    row1;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t own, key_t other0, key_t other1, key_t other2, key_t row0, key_t row1, SECRET_PARAMETERS(s),
               bit<32> checksum) {
        bit<64> check = 0;
        CHECK(own)
        CHECK(other0)
        CHECK(other1)
        CHECK(other2)
        CHECK(row0)
        CHECK(row1)
        CHECK_SECRET(s)
        current = {own, other0, other1, other2, row0, row1, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(CHOICE, OTHER_0, OTHER_1, OTHER_2, ROW_0, ROW_1, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control Fragment(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(2 * COUNTERS) row0;
    register<bit<32>>(2 * COUNTERS) row1;
    register<bit<32>>(2) load;
    register<bit<32>>(1) passed;

    keys_t keys;
    bit<32> begun;
    bit<1> begins;
    bit<64> flow;
    bit<64> mine;
    bit<64> first;
    bit<64> second;
    bit<64> third;
    bit<32> column0;
    bit<32> column1;

    action choose() {
        MIX(mine, flow, keys.own)
        MIX(first, flow, keys.other0)
        MIX(second, flow, keys.other1)
        MIX(third, flow, keys.other2)
    }

    action find() {
        bit<64> mixed;
        MIX(mixed, flow, keys.row0)
        column0 = PLACE(mixed[63:32], COUNTERS);
        MIX(mixed, flow, keys.row1)
        column1 = PLACE(mixed[63:32], COUNTERS);
    }

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Begun.apply(hdr, begun, begins);
        if (meta.packet.usable == 1) {
            FlowName.apply(hdr, meta.packet, keys.secret, flow);
            choose();
            bit<32> preferred = 0;
            PREFER(0, first)
            PREFER(1, second)
            PREFER(2, third)
            if (preferred < UPDATED) {
                find();
                bit<32> parity = (bit<32>)begun[0:0];
                bit<32> updates;
                load.read(updates, parity);
                load.write(parity, updates + 1);
                ADD(row0, parity * COUNTERS + column0)
                ADD(row1, parity * COUNTERS + column1)
            } else {
                COUNT(passed)
            }
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Fragment(), NoEgress(), NoChecksum(), FrameDeparser()) main;
