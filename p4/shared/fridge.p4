// The fridge of TCP handshakes. What it measures, and its registers: `fridge/fridge.p4`.

#ifndef FRIDGE_P4
#define FRIDGE_P4

#include "frames.p4"
#include "handshake.p4"

const bit<32> REPORTS = 1024;

control Fridge(in headers_t hdr, in packet_t packet, in key_t mixer, in secret_t secret) {
    register<bit<32>>(SLOTS) prints;
    register<bit<32>>(SLOTS) ticks;
    register<bit<32>>(SLOTS) stamps;
    register<bit<32>>(1) insertions;
    register<bit<32>>(1) requests;
    register<bit<32>>(1) duplicates;
    register<bit<32>>(1) evicted;
    register<bit<32>>(1) responses;
    register<bit<32>>(1) matched;
    register<bit<32>>(1) unmatched;
    register<bit<32>>(1) clock_anomaly;
    register<bit<32>>(REPORTS) report_ticks;
    register<bit<32>>(REPORTS) report_insertions;

    bit<1> is_request;
    bit<1> is_response;
    bit<64> identity;
    bit<64> mixed;
    bit<32> index;
    bit<32> print;
    bit<32> tick = packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];

    apply {
        HandshakeName.apply(hdr, packet, secret, is_request, is_response, identity);
        if (is_request == 1 || is_response == 1) {
            MIX(mixed, identity, mixer)
            index = PLACE(mixed[63:32], SLOTS);
            FINGERPRINT(print, identity, mixer)
            // A fingerprint is never 0, which marks an empty slot.
            if (print == 0) {
                print = 1;
            }
            bit<32> old;
            bit<32> then;
            bit<32> stamp;
            prints.read(old, index);
            if (is_request == 1) {
                bool enters = (bit<33>)mixed[31:0] < THRESHOLD;
                COUNT(requests)
                insertions.read(stamp, 0);
                if (old == print) {
                    COUNT(duplicates)
                } else if (enters) {
                    stamp = stamp + 1;
                    insertions.write(0, stamp);
                    if (old != 0) {
                        COUNT(evicted)
                    }
                }
                if (enters) {
                    prints.write(index, print);
                    ticks.write(index, tick);
                    stamps.write(index, stamp);
                } else if (old == print) {
                    // If the copy does not enter, the older one must not stay.
                    prints.write(index, 0);
                    ticks.write(index, 0);
                    stamps.write(index, 0);
                }
            } else {
                COUNT(responses)
                if (old != print) {
                    COUNT(unmatched)
                } else {
                    bit<32> inserted;
                    insertions.read(inserted, 0);
                    ticks.read(then, index);
                    stamps.read(stamp, index);
                    prints.write(index, 0);
                    ticks.write(index, 0);
                    stamps.write(index, 0);
                    bit<32> elapsed = tick - then;
                    if (elapsed[31:31] == 1) {
                        COUNT(clock_anomaly)
                    } else {
                        bit<32> sample;
                        matched.read(sample, 0);
                        matched.write(0, sample + 1);
                        report_ticks.write(sample & (REPORTS - 1), elapsed);
                        report_insertions.write(sample & (REPORTS - 1), inserted - stamp);
                    }
                }
            }
        }
    }
}

#endif
