// The fridge of TCP handshakes. What it measures, and its registers: `fridge/fridge.p4`.

#ifndef FRIDGE_P4
#define FRIDGE_P4

#include "headers.p4"
#include "hash.p4"
#include "frames.p4"

const bit<32> REPORTS = 1024;

// Flags of TCP.
const bit<8> SYN = 0x02;
const bit<8> SYN_ACK = 0x12;
/// Those that determine a segment's role: SYN, ACK, RST, FIN.
const bit<8> KIND = 0x17;

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

    /// Kind of pair, ends, and sequence number of the request, as `RequestIds` has them.
    bit<360> id;
    bit<64> identity;
    bit<32> index;
    bit<32> print;
    bit<32> coin;
    bit<32> tick = packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];

#ifdef HARDWARE_DIGEST
    /// The digest of `id` in twelve words, with its first byte in the last one. And what is derived of it.
    action name() {
        bit<32> upper;
        bit<32> lower;
        bit<64> mixed;
        WORD(0, id[351:320], secret.k2)
        WORD(1, id[319:288], secret.k3)
        WORD(2, id[287:256], secret.k4)
        WORD(3, id[255:224], secret.k5)
        WORD(4, id[223:192], secret.k6)
        WORD(5, id[191:160], secret.k7)
        WORD(6, id[159:128], secret.k8)
        WORD(7, id[127:96], secret.k9)
        WORD(8, id[95:64], secret.k10)
        WORD(9, id[63:32], secret.k11)
        WORD(10, id[31:0], secret.k12)
        WORD(11, id[359:352] ++ 24w0, secret.k13)
        CRC(upper, upper0, upper1, upper2, upper3, upper4, upper5, upper6, upper7, upper8, upper9, upper10, upper11)
        CRC(lower, lower11, lower10, lower9, lower8, lower7, lower6, lower5, lower4, lower3, lower2, lower1, lower0)
        NAMED(identity, upper, lower, 45, secret)
        MIX(mixed, identity, mixer)
        index = PLACE(mixed[63:32], SLOTS);
        coin = mixed[31:0];
        FINGERPRINT(print, identity, mixer)
    }
#else
    /// The digest of `id`, 45 bytes: XXH3-64 with the first 64 bytes of the secret. And what is derived of it.
    action name() {
        bit<64> sum = 45 * PRIME;
        // From bytes 16 and 13, then from 0 and 29.
        sum = sum + mix16(id[231:104], secret.s4, secret.s5) + mix16(id[255:128], secret.s6, secret.s7);
        sum = sum + mix16(id[359:232], secret.s0, secret.s1) + mix16(id[127:0], secret.s2, secret.s3);
        identity = avalanche(sum);
        bit<64> mixed = finalise(identity ^ mixer);
        index = place(mixed[63:32], SLOTS);
        coin = mixed[31:0];
        print = fingerprint(identity, mixer);
    }
#endif

    action request_id() {
        id = 8w0 ++ packet.source ++ packet.destination ++ packet.source_port
            ++ packet.destination_port ++ 32w0 ++ (hdr.tcp.sequence + 1);
    }

    action response_id() {
        id = 8w0 ++ packet.destination ++ packet.source ++ packet.destination_port
            ++ packet.source_port ++ 32w0 ++ hdr.tcp.acknowledgement;
    }

    /// A fingerprint is never 0, which marks an empty slot.
    action no_empty_print() {
        print = 1;
    }

    apply {
        if (packet.usable == 1 && hdr.tcp.isValid()) {
            bit<8> kind = hdr.tcp.flags & KIND;
            if (kind == SYN || kind == SYN_ACK) {
                if (kind == SYN) {
                    request_id();
                } else {
                    response_id();
                }
                name();
                if (print == 0) {
                    no_empty_print();
                }
                bit<32> old;
                bit<32> then;
                bit<32> stamp;
                prints.read(old, index);
                if (kind == SYN) {
                    bool enters = (bit<33>)coin < THRESHOLD;
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
}

#endif
