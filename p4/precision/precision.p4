// PRECISION with two stages: the flows with most packets of each epoch. A flow that has no place takes that of the
// lighter one of two others, the less often the heavier it is. What is of another epoch is empty.
//
// # Source
//
// R. Ben Basat, X. Chen, G. Einziger, O. Rottenstreich, Designing Heavy-Hitter Detection Algorithms for Programmable
// Switches, for RAP on a switch; `synopses/src/rap/epochs.rs` and `ways.rs`, with the flows of
// `synopses/packets/src/identity.rs`.
//
// # Guarantee
//
// The same frames at the same times give the entries, coins and counts of the library's `EpochPrecision` with two ways
// and `Admission::PowerOfTwo`, for packets of weight 1, bit for bit, once entries of other epochs are read as empty.
//
// # Parameters
//
// In `constants.p4`: W rows of each stage in an epoch; an epoch of 2^EPOCH_SHIFT nanoseconds; and, as keys
// (`shared/keys.p4`), the mixers and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/coin.p4`. Then, of even epochs and behind them of odd ones:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | epochs_low, epochs_high | 2 × 32 each | the latest epoch: packets' time in nanoseconds, divided by 2^EPOCH_SHIFT |
// | epoch_inserted, epoch_rejected | 2 × 32 each | the library's counts of that epoch |
//
// for the stages 0 and 1:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | stage0_flows_low, stage0_flows_high | 2 W × 32 each | digest of the flow |
// | stage0_counts | 2 W × 32 | estimated packets, partly inherited; 0 if there was never a flow |
// | stage0_since | 2 W × 32 | packets since its admission |
// | stage0_epochs | 2 W × 32 | the epoch of these, modulo 2³² |
//
// and `dropped`, 1 × 32: packets of an epoch before both.
//
// Each is read and written at most once for a packet, at one index. Which stage gives a flow up is known behind the
// second one: hardware sends the packet round a second time to write the first.
//
// While an epoch goes on, what is of the one before it is at rest, but for packets that are late. A reader takes that
// one by the switch's time, and looks at `epochs_low` behind the entries: if it is another one, the set has made room.
//
// # Differences from the library
//
// - An entry is not emptied with its epoch: it then belongs to an earlier one. The library resets a table.
// - Epochs of entries come round after 2^32 of them, in 146 years with epochs of 2^30 ns: an entry that no packet has
//   met for just so long counts again.
// - Counts have 32 bits and wrap; the library's have 64 and stay at the largest one.
// - A packet weighs 1, not its bytes.
// - Coins are the library's, from a counter. Hardware has a random number, and compares its upper bits.
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
#include "../shared/flow.p4"
#include "../shared/coin.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

/// Registers of one stage.
#define STAGE(stage)                                   \
    register<bit<32>>(2 * ROWS) stage##_flows_low;     \
    register<bit<32>>(2 * ROWS) stage##_flows_high;    \
    register<bit<32>>(2 * ROWS) stage##_counts;        \
    register<bit<32>>(2 * ROWS) stage##_since;         \
    register<bit<32>>(2 * ROWS) stage##_epochs;

/// Writes the flow into an entry.
#define ENTER(stage, row, count)                       \
    stage##_flows_low.write(row, flow[31:0]);          \
    stage##_flows_high.write(row, flow[63:32]);        \
    stage##_counts.write(row, count);                  \
    stage##_since.write(row, 1);                       \
    stage##_epochs.write(row, epoch[31:0]);

/// Counts the packet in a stage that has its flow, or room for it, unless an earlier one has.
#define VISIT(stage, row, count)                       \
    if (held == 0) {                                   \
        stage##_counts.read(count, row);               \
        stage##_flows_low.read(low, row);              \
        stage##_flows_high.read(high, row);            \
        stage##_epochs.read(written, row);             \
        if (written != epoch[31:0]) {                  \
            count = 0;                                 \
        }                                              \
        if (count == 0) {                              \
            held = 1;                                  \
            ENTER(stage, row, 1)                       \
        } else if ((high ++ low) == flow) {            \
            bit<32> since;                             \
            held = 1;                                  \
            stage##_counts.write(row, count + 1);      \
            stage##_since.read(since, row);            \
            stage##_since.write(row, since + 1);       \
        }                                              \
    }

struct keys_t {
    key_t    row;
    key_t    coin;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t row, key_t coin, SECRET_PARAMETERS(s), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(row)
        CHECK(coin)
        CHECK_SECRET(s)
        current = {row, coin, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(ROW, COIN, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control Precision(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    STAGE(stage0)
    STAGE(stage1)
    register<bit<32>>(2) epochs_low;
    register<bit<32>>(2) epochs_high;
    register<bit<32>>(2) epoch_inserted;
    register<bit<32>>(2) epoch_rejected;
    register<bit<32>>(1) dropped;

    keys_t keys;
    bit<64> flow;
    bit<32> row0;
    bit<32> row1;
    bit<1> admits;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        if (meta.packet.usable == 1) {
            bit<64> epoch = meta.packet.time_ns >> EPOCH_SHIFT;
            bit<32> parity = (bit<32>)epoch[0:0];
            bit<32> low;
            bit<32> high;
            epochs_low.read(low, parity);
            epochs_high.read(high, parity);
            bit<64> latest = high ++ low;
            if (epoch < latest) {
                COUNT(dropped)
            } else {
                bit<32> counted;
                epoch_inserted.read(counted, parity);
                bit<1> begins = 0;
                if (epoch != latest) {
                    begins = 1;
                    epochs_low.write(parity, epoch[31:0]);
                    epochs_high.write(parity, epoch[63:32]);
                    counted = 0;
                }
                epoch_inserted.write(parity, counted + 1);
                FlowName.apply(hdr, meta.packet, keys.secret, flow);
                bit<64> mixed;
                MIX(mixed, flow, keys.row)
                bit<32> base = parity * ROWS;
                row0 = PLACE(mixed[31:0], ROWS);
                row0 = base + row0;
                row1 = PLACE(mixed[31:0] + (mixed[63:32] | 1), ROWS);
                row1 = base + row1;
                bit<32> written;
                bit<32> count0 = 0;
                bit<32> count1 = 0;
                bit<1> held = 0;
                VISIT(stage0, row0, count0)
                VISIT(stage1, row1, count1)
                bit<1> rejects = 0;
                if (held == 0) {
                    bit<32> least = count0;
                    if (count1 < count0) {
                        least = count1;
                    }
                    Coin.apply(least, keys.coin, admits);
                    if (admits == 0) {
                        rejects = 1;
                    } else if (count1 < count0) {
                        ENTER(stage1, row1, least + 1)
                    } else {
                        ENTER(stage0, row0, least + 1)
                    }
                }
                // The first packet of an epoch finds all empty, and is not rejected.
                if (begins == 1) {
                    epoch_rejected.write(parity, 0);
                } else if (rejects == 1) {
                    epoch_rejected.read(counted, parity);
                    epoch_rejected.write(parity, counted + 1);
                }
            }
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Precision(), NoEgress(), NoChecksum(), FrameDeparser()) main;
