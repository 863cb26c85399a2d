// The name of a packet by digests of hardware: `packets::identity::digest` with a key for hardware.
//
// Sixteen words: eight of addresses, one of identification and protocol, five of the TCP or UDP header without options
// and checksum, and two of what is behind that, if eight bytes are there.

#ifndef HARDWARE_NAME_P4
#define HARDWARE_NAME_P4

#include "headers.p4"
#include "hash.p4"

control PacketName(in headers_t hdr, in packet_t packet, in secret_t secret, in more_secret_t more,
                   out bit<64> identity) {
    bit<16> identification;
    bit<8> protocol;
    bit<160> fixed_header;
    bit<64> behind;

    action name() {
        bit<32> upper;
        bit<32> lower;
        WORD(0, packet.source[127:96], secret.k2)
        WORD(1, packet.source[95:64], secret.k3)
        WORD(2, packet.source[63:32], secret.k4)
        WORD(3, packet.source[31:0], secret.k5)
        WORD(4, packet.destination[127:96], secret.k6)
        WORD(5, packet.destination[95:64], secret.k7)
        WORD(6, packet.destination[63:32], secret.k8)
        WORD(7, packet.destination[31:0], secret.k9)
        WORD(8, identification ++ protocol ++ 8w0, secret.k10)
        WORD(9, fixed_header[159:128], secret.k11)
        WORD(10, fixed_header[127:96], secret.k12)
        WORD(11, fixed_header[95:64], secret.k13)
        WORD(12, fixed_header[63:32], more.k14)
        WORD(13, fixed_header[31:0], more.k15)
        WORD(14, behind[63:32], more.k16)
        WORD(15, behind[31:0], more.k17)
        CRC(upper, upper0, upper1, upper2, upper3, upper4, upper5, upper6, upper7, upper8, upper9, upper10, upper11,
            upper12, upper13, upper14, upper15)
        CRC(lower, lower15, lower14, lower13, lower12, lower11, lower10, lower9, lower8, lower7, lower6, lower5,
            lower4, lower3, lower2, lower1, lower0)
        NAMED(identity, upper, lower, 64, secret)
    }

    apply {
        // IPv6 has no identification, and a header that is not there is not read.
        identification = 0;
        if (hdr.ipv4.isValid()) {
            identification = hdr.ipv4.identification;
        }
        if (hdr.tcp.isValid()) {
            protocol = 6;
            fixed_header = hdr.tcp.source ++ hdr.tcp.destination ++ hdr.tcp.sequence ++ hdr.tcp.acknowledgement
                ++ hdr.tcp.header_words ++ hdr.tcp.reserved ++ hdr.tcp.flags ++ hdr.tcp.window ++ 16w0
                ++ hdr.tcp.urgent;
        } else {
            protocol = 17;
            fixed_header = hdr.udp.source ++ hdr.udp.destination ++ hdr.udp.length ++ 112w0;
        }
        behind = 0;
        if (hdr.bytes8.isValid()) {
            behind = hdr.bytes8.data;
        }
        name();
    }
}

#endif
