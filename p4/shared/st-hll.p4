// ST-HLL, as one array of ranks with the laps to which they belong. What it measures, and its registers:
// `st-hll/st-hll.p4`.

#ifndef ST_HLL_P4
#define ST_HLL_P4

#include "frames.p4"
#include "flow.p4"
#include "rank.p4"

/// Registers of the sketch.
const bit<32> REGISTERS = 1 << REGISTER_BITS;

control StHll(in headers_t hdr, in packet_t packet, in key_t mixer, in secret_t secret) {
    register<bit<32>>(REGISTERS) laps_and_ranks;
    register<bit<32>>(1) slot_low;
    register<bit<32>>(1) slot_high;
    register<bit<32>>(1) inserted;
    register<bit<32>>(1) late;
    register<bit<32>>(1) dropped;

    bit<64> flow;
    bit<32> position;
    bit<32> rank;

    apply {
        if (packet.usable == 1) {
            bit<64> now = packet.time_ns >> SLOT_SHIFT;
            bit<32> low;
            bit<32> high;
            slot_low.read(low, 0);
            slot_high.read(high, 0);
            bit<64> current = high ++ low;
            bit<1> counts = 1;
            if (now >= current) {
                current = now;
                slot_low.write(0, now[31:0]);
                slot_high.write(0, now[63:32]);
            } else if (current - now == 1) {
                COUNT(late)
            } else {
                counts = 0;
                COUNT(dropped)
            }
            if (counts == 1) {
                COUNT(inserted)
                FlowName.apply(hdr, packet, secret, flow);
                Rank.apply(flow, mixer, position, rank);
                // The register was reset last in the latest slot whose lowest bits are its number. The other bits are
                // its lap; the rank is in place of the lowest ones. A rank of another lap was reset since.
                bit<32> lap = (current[31:0] - position) & ~(REGISTERS - 1);
                bit<32> new = lap | rank;
                bit<32> old;
                laps_and_ranks.read(old, position);
                if ((new ^ old) >= REGISTERS || new > old) {
                    laps_and_ranks.write(position, new);
                }
            }
        }
    }
}

#endif
