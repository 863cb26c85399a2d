// Reordering by prefix, the hybrid: heavy flows are watched for long, in the manner of PRECISION with two stages, the
// others sampled.
//
// # Source
//
// Y. Zheng, H. Yu, J. Rexford, Detecting TCP Packet Reordering in the Data Plane; `synopses/src/reordering`, with the
// segments of `synopses/packets/src/flows/reordering.rs`.
//
// # Guarantee
//
// The same frames at the same times give the records, counts and reports of the library's `Reordering` with
// `Split::Hybrid`, two stages, `Definition::BelowPredecessor`, `Admission::PowerOfTwo` and `Reports::Always`, bit for
// bit.
//
// # Parameters
//
// In `constants.p4`: W rows of each stage of heavy flows, and what `reordering-samples` has for the other buckets; and,
// as keys (`shared/keys.p4`), the mixers and the secret of digests.
//
// # Registers
//
// Those of `reordering-samples`, and, for the stages 0 and 1:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | heavy0_flows_low, heavy0_flows_high | W × 32 each | digest of the flow |
// | heavy0_prefixes_low, heavy0_prefixes_high | W × 32 each | its prefix |
// | heavy0_counts | W × 32 | estimated packets, partly inherited; 0 if there is no flow |
// | heavy0_checked, heavy0_events | W × 32 each | packets since admission but the first, and those out of order |
// | heavy0_states | W × 32 | sequence number of its last packet |
// | drawn_low, drawn_high | 1 × 32 each | coins that were drawn |
//
// Each is read and written at most once for a packet, at one index. Which stage gives a flow up is known behind the
// second one: hardware sends the packet round a second time to write the first.
//
// # Differences from the library
//
// - Those of `reordering-samples`.
// - Coins are the library's, from a counter. Hardware has a random number, and compares its upper bits.
// - All records of heavy flows with a packet checked are reported: their share of events is a quotient, which the agent
//   compares.

#include <core.p4>
#include <v1model.p4>

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/frames.p4"
#include "../shared/samples.p4"
#include "../shared/coin.p4"
#include "../shared/visits.p4"

struct metadata_t {
    packet_t  packet;
    segment_t segment;
    visit_t   visit;
}

#include "../shared/parser.p4"

/// Registers of one stage.
#define STAGE(stage)                                   \
    register<bit<32>>(ROWS) stage##_flows_low;         \
    register<bit<32>>(ROWS) stage##_flows_high;        \
    register<bit<32>>(ROWS) stage##_prefixes_low;      \
    register<bit<32>>(ROWS) stage##_prefixes_high;     \
    register<bit<32>>(ROWS) stage##_counts;            \
    register<bit<32>>(ROWS) stage##_checked;           \
    register<bit<32>>(ROWS) stage##_events;            \
    register<bit<32>>(ROWS) stage##_states;

/// Looks whether the flow is in a stage, or whether there is room, unless an earlier one has it.
#define VISIT(stage, row, count)                                            \
    if (visit.monitored == 0 && held == 0) {                                \
        stage##_counts.read(count, row);                                    \
        stage##_flows_low.read(low, row);                                   \
        stage##_flows_high.read(high, row);                                 \
        if (count == 0) {                                                   \
            if (segment.watched == 1) {                                     \
                visit.monitored = 1;                                        \
                visit.admitted = 1;                                         \
                ENTER(stage, row, 1)                                        \
            }                                                               \
        } else if ((high ++ low) == segment.flow) {                         \
            held = 1;                                                       \
            if (segment.watched == 1) {                                     \
                bit<32> state;                                              \
                stage##_states.read(state, row);                            \
                JUDGE(state)                                                \
                visit.monitored = 1;                                        \
                if (count != 0xffffffff) {                                  \
                    stage##_counts.write(row, count + 1);                   \
                }                                                           \
                ADD(stage##_checked, row)                                   \
                if (visit.event == 1) {                                     \
                    ADD(stage##_events, row)                                \
                }                                                           \
            }                                                               \
            stage##_states.write(row, segment.sequence);                    \
        }                                                                   \
    }

/// Adds 1 to a register, as long as that fits.
#define ADD(array, row)                          \
    {                                            \
        bit<32> old;                             \
        array.read(old, row);                    \
        if (old != 0xffffffff) {                 \
            array.write(row, old + 1);           \
        }                                        \
    }

/// Writes the flow into a record.
#define ENTER(stage, row, count)                                            \
    stage##_flows_low.write(row, segment.flow[31:0]);                       \
    stage##_flows_high.write(row, segment.flow[63:32]);                     \
    stage##_prefixes_low.write(row, segment.prefix[31:0]);                  \
    stage##_prefixes_high.write(row, segment.prefix[63:32]);                \
    stage##_counts.write(row, count);                                       \
    stage##_checked.write(row, 0);                                          \
    stage##_events.write(row, 0);                                           \
    stage##_states.write(row, segment.sequence);

/// Says what there was, then writes the flow.
#define REPLACE(stage, row)                                                 \
    stage##_prefixes_low.read(low, row);                                    \
    stage##_prefixes_high.read(high, row);                                  \
    visit.prefix = high ++ low;                                             \
    stage##_checked.read(visit.packets, row);                               \
    stage##_events.read(visit.events, row);                                 \
    ENTER(stage, row, least + 1)

struct keys_t {
    key_t    bucket;
    key_t    row;
    key_t    coin;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t bucket, key_t row, key_t coin, SECRET_PARAMETERS(s), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(bucket)
        CHECK(row)
        CHECK(coin)
        CHECK_SECRET(s)
        current = {bucket, row, coin, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(BUCKET, ROW, COIN, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control HeavyFlows(in segment_t segment, in key_t mixer, in key_t coin, inout visit_t visit) {
    STAGE(heavy0)
    STAGE(heavy1)

    bit<32> row0;
    bit<32> row1;
    bit<1> admits;

    apply {
        bit<64> mixed;
        MIX_NUMBER(mixed, segment.prefix, mixer)
        row0 = PLACE(mixed[31:0], ROWS);
        row1 = PLACE(mixed[31:0] + (mixed[63:32] | 1), ROWS);
        bit<32> low;
        bit<32> high;
        bit<32> count0 = 0;
        bit<32> count1 = 0;
        // Whether a stage has the flow.
        bit<1> held = 0;
        VISIT(heavy0, row0, count0)
        VISIT(heavy1, row1, count1)
        if (segment.watched == 1 && visit.monitored == 0) {
            bit<32> least = count0;
            if (count1 < count0) {
                least = count1;
            }
            Coin.apply(least, coin, admits);
            if (admits == 1) {
                visit.monitored = 1;
                visit.admitted = 1;
                visit.evicted = 1;
                if (count1 < count0) {
                    REPLACE(heavy1, row1)
                } else {
                    REPLACE(heavy0, row0)
                }
                if (visit.packets > 0) {
                    visit.reports = 1;
                }
            }
        }
    }
}

control Reordering(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        if (meta.packet.usable == 1 && hdr.tcp.isValid()) {
            Segments.apply(hdr, meta.packet, keys.secret, meta.segment);
            if (meta.segment.watched == 1 || meta.segment.begins == 1) {
                HeavyFlows.apply(meta.segment, keys.row, keys.coin, meta.visit);
                if (meta.visit.monitored == 0) {
                    bit<32> tick = meta.packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];
                    Samples.apply(meta.segment, tick, keys.bucket, meta.visit);
                }
            }
            Visits.apply(meta.segment, meta.visit);
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Reordering(), NoEgress(), NoChecksum(), FrameDeparser()) main;
