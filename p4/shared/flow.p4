// The digest of a packet's flow: `packets::identity::flow`. 37 bytes: addresses, ports, and 1 for TCP or 0 for UDP.

#ifndef FLOW_P4
#define FLOW_P4

#include "headers.p4"
#include "hash.p4"

/// XXH3-64 with the first 64 bytes of the secret.
control FlowName(in headers_t hdr, in packet_t packet, in secret_t secret, out bit<64> flow) {
    apply {
        bit<8> protocol = 0;
        if (hdr.tcp.isValid()) {
            protocol = 1;
        }
        bit<296> id = packet.source ++ packet.destination ++ packet.source_port ++ packet.destination_port ++ protocol;
        bit<64> sum = 37 * PRIME;
        // From bytes 16 and 5, then from 0 and 21.
        sum = sum + mix16(id[167:40], secret.s4, secret.s5) + mix16(id[255:128], secret.s6, secret.s7);
        sum = sum + mix16(id[295:168], secret.s0, secret.s1) + mix16(id[127:0], secret.s2, secret.s3);
        flow = avalanche(sum);
    }
}

#endif
