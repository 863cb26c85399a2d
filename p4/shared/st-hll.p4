// ST-HLL, as one array of numbers that only grow. What it measures, and its registers: `st-hll/st-hll.p4`.

#ifndef ST_HLL_P4
#define ST_HLL_P4

#include "frames.p4"
#include "flow.p4"
#include "rank.p4"

/// Registers of the sketch.
const bit<32> REGISTERS = 1 << REGISTER_BITS;

control StHll(in headers_t hdr, in packet_t packet) {
    register<bit<32>>(REGISTERS) laps_and_ranks;
    register<bit<32>>(1) slot;
    register<bit<32>>(1) inserted;
    register<bit<32>>(1) late;
    register<bit<32>>(1) dropped;

    bit<64> flow;
    bit<32> position;
    bit<32> rank;

    apply {
        if (packet.usable == 1) {
            bit<64> since = packet.time_ns - ORIGIN;
            bit<32> now = since[SLOT_SHIFT + 31:SLOT_SHIFT];
            bit<32> current;
            slot.read(current, 0);
            bit<32> ahead = now - current;
            bit<1> counts = 1;
            if (ahead[31:31] == 0) {
                current = now;
                slot.write(0, now);
            } else if (ahead == 0xffffffff) {
                COUNT(late)
            } else {
                counts = 0;
                COUNT(dropped)
            }
            if (counts == 1) {
                COUNT(inserted)
                FlowName.apply(hdr, packet, flow);
                Rank.apply(flow, position, rank);
                // How often the register's turn to be reset has come. A rank of an earlier lap is a smaller number.
                bit<32> lap = current >> REGISTER_BITS;
                if ((current & (REGISTERS - 1)) >= position) {
                    lap = lap + 1;
                }
                bit<32> new = (lap << 6) | rank;
                bit<32> old;
                laps_and_ranks.read(old, position);
                if (new > old) {
                    laps_and_ranks.write(position, new);
                }
            }
        }
    }
}

#endif
