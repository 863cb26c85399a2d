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
// them are before this one, and K, how many a flow updates; the key of digests and the mixers, as parameters of
// actions.
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
// Each is read and written at most once for a packet, at one index. The agent empties those of an epoch after it has
// read them, before the next epoch but one begins.
//
// # Differences from the library
//
// - An epoch begins with a frame of kind 0x88b6 that has its number, on the path of the packets.
// - Weights of fragments are equal: others would need a logarithm for each flow and fragment. A controller that wants a
//   busy fragment to count less takes it out of the path.
// - A packet adds 1, not its bytes.
// - No header travels with packets, and no hop decides. The agent collects fragments, and `PathTable::estimate`
//   answers.
// - One path: a switch on several has a table in front, by destination, which sets the other fragments.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#include "constants.p4"
#include "../shared/begun.p4"
#include "../shared/frames.p4"
#include "../shared/flow.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

/// The largest count. One more is what a header has to which nobody added.
const bit<32> LIMIT = 0xfffffffe;

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
        if (count < LIMIT) {               \
            row.write(index, count + 1);   \
        }                                  \
    }

control Fragment(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(2 * COUNTERS) row0;
    register<bit<32>>(2 * COUNTERS) row1;
    register<bit<32>>(2) load;
    register<bit<32>>(1) passed;

    bit<32> begun;
    bit<1> begins;
    bit<64> flow;
    bit<64> mine;
    bit<64> first;
    bit<64> second;
    bit<64> third;
    bit<32> column0;
    bit<32> column1;

    action choose(bit<64> own, bit<64> other0, bit<64> other1, bit<64> other2) {
        mine = finalise(flow ^ own);
        first = finalise(flow ^ other0);
        second = finalise(flow ^ other1);
        third = finalise(flow ^ other2);
    }

    table choice_key {
        actions = { choose; }
        default_action = choose(CHOICE, OTHER_0, OTHER_1, OTHER_2);
    }

    action find(bit<64> mixer0, bit<64> mixer1) {
        bit<64> mixed = finalise(flow ^ mixer0);
        column0 = place(mixed[63:32], COUNTERS);
        mixed = finalise(flow ^ mixer1);
        column1 = place(mixed[63:32], COUNTERS);
    }

    table row_key {
        actions = { find; }
        default_action = find(ROW_0, ROW_1);
    }

    apply {
        Frames.apply(hdr, meta.packet, standard);
        Begun.apply(hdr, begun, begins);
        if (meta.packet.usable == 1) {
            FlowName.apply(hdr, meta.packet, flow);
            choice_key.apply();
            bit<32> preferred = 0;
            PREFER(0, first)
            PREFER(1, second)
            PREFER(2, third)
            if (preferred < UPDATED) {
                row_key.apply();
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
