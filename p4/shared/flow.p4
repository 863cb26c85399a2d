// The digest of a packet's flow: `packets::identity::flow`. 37 bytes: addresses, ports, and 1 for TCP or 0 for UDP.

#ifndef FLOW_P4
#define FLOW_P4

#include "headers.p4"
#include "hash.p4"

/// XXH3-64 with the first 64 bytes of the secret, or a digest of hardware.
control FlowName(in headers_t hdr, in packet_t packet, in secret_t secret, out bit<64> flow) {
    apply {
        bit<8> protocol = 0;
        if (hdr.tcp.isValid()) {
            protocol = 1;
        }
        bit<296> id = packet.source ++ packet.destination ++ packet.source_port ++ packet.destination_port ++ protocol;
#ifdef HARDWARE_DIGEST
        // In ten words.
        bit<32> upper;
        bit<32> lower;
        WORD(0, id[295:264], secret.k2)
        WORD(1, id[263:232], secret.k3)
        WORD(2, id[231:200], secret.k4)
        WORD(3, id[199:168], secret.k5)
        WORD(4, id[167:136], secret.k6)
        WORD(5, id[135:104], secret.k7)
        WORD(6, id[103:72], secret.k8)
        WORD(7, id[71:40], secret.k9)
        WORD(8, id[39:8], secret.k10)
        WORD(9, id[7:0] ++ 24w0, secret.k11)
        CRC(upper, upper0, upper1, upper2, upper3, upper4, upper5, upper6, upper7, upper8, upper9)
        CRC(lower, lower9, lower8, lower7, lower6, lower5, lower4, lower3, lower2, lower1, lower0)
        NAMED(flow, upper, lower, 37, secret)
#else
        bit<64> sum = 37 * PRIME;
        // From bytes 16 and 5, then from 0 and 21.
        sum = sum + mix16(id[167:40], secret.s4, secret.s5) + mix16(id[255:128], secret.s6, secret.s7);
        sum = sum + mix16(id[295:168], secret.s0, secret.s1) + mix16(id[127:0], secret.s2, secret.s3);
        flow = avalanche(sum);
#endif
    }
}

#endif
