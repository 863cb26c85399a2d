// The digest of a packet's flow: `packets::identity::flow`. 37 bytes: addresses, ports, and 1 for TCP or 0 for UDP.

#ifndef FLOW_P4
#define FLOW_P4

#include "headers.p4"
#include "hash.p4"

control FlowName(in headers_t hdr, in packet_t packet, out bit<64> flow) {
    bit<296> id;

    /// XXH3-64 with the first 64 bytes of the secret as eight numbers.
    action name_flow(bit<64> s0, bit<64> s1, bit<64> s2, bit<64> s3, bit<64> s4, bit<64> s5, bit<64> s6, bit<64> s7) {
        bit<64> sum = 37 * PRIME;
        // From bytes 16 and 5, then from 0 and 21.
        sum = sum + mix16(id[167:40], s4, s5) + mix16(id[255:128], s6, s7);
        sum = sum + mix16(id[295:168], s0, s1) + mix16(id[127:0], s2, s3);
        flow = avalanche(sum);
    }

    table flow_key {
        actions = { name_flow; }
        default_action = name_flow(SECRET_0, SECRET_1, SECRET_2, SECRET_3, SECRET_4, SECRET_5, SECRET_6, SECRET_7);
    }

    apply {
        bit<8> protocol = 0;
        if (hdr.tcp.isValid()) {
            protocol = 1;
        }
        id = packet.source ++ packet.destination ++ packet.source_port ++ packet.destination_port ++ protocol;
        flow_key.apply();
    }
}

#endif
