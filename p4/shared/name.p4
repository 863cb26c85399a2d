// The name of a packet, by which two points recognise it: `packets::identity::digest`.
//
// 35 bytes of addresses, identification and protocol, then the TCP or UDP header without its checksum, then the first
// 32 bytes of payload: 43 to 127 bytes. XXH3 reads them from both ends, so the name is kept twice, at either end of a
// wide word.

#ifndef NAME_P4
#define NAME_P4

#include "headers.p4"
#include "hash.p4"

// Shifts go up to 256 bits in one step.

/// Appends a chunk if it is there.
#define APPEND(chunk, bits)                                   \
    if (hdr.chunk.isValid()) {                                \
        name = (name << bits) | (bit<1024>)hdr.chunk.data;    \
    }

/// Moves the name by 8 × 2^digit bits if that many bytes are missing.
#define MOVE(digit)                              \
    if (missing[digit:digit] == 1) {             \
        start = start << (8 << digit);           \
    }

/// XXH3-64 with the first 128 bytes of the secret.
control PacketName(in headers_t hdr, in packet_t packet, in secret_t first, in more_secret_t second,
                   out bit<64> identity) {
    /// The name with its last byte at the end of the word.
    bit<1024> name;
    /// The name with its first byte at the beginning of the word.
    bit<1024> start;
    bit<8> length;
    bit<8> missing;
    bit<64> sum;

    apply {
        // IPv6 has no identification, and a header that is not there is not read.
        bit<16> identification = 0;
        if (hdr.ipv4.isValid()) {
            identification = hdr.ipv4.identification;
        }
        if (hdr.tcp.isValid()) {
            name = (bit<1024>)(packet.source ++ packet.destination ++ identification ++ 8w6
                ++ hdr.tcp.source ++ hdr.tcp.destination ++ hdr.tcp.sequence ++ hdr.tcp.acknowledgement
                ++ hdr.tcp.header_words ++ hdr.tcp.reserved ++ hdr.tcp.flags ++ hdr.tcp.window ++ 16w0
                ++ hdr.tcp.urgent);
            length = 35 + 20 + packet.rest[7:0];
        } else {
            name = (bit<1024>)(packet.source ++ packet.destination ++ identification ++ 8w17
                ++ hdr.udp.source ++ hdr.udp.destination ++ hdr.udp.length ++ 16w0);
            length = 35 + 8 + packet.rest[7:0];
        }
        if (hdr.bytes64.isValid()) {
            name = name << 256;
            name = name << 256;
            name = name | (bit<1024>)hdr.bytes64.data;
        }
        APPEND(bytes32, 256)
        APPEND(bytes16, 128)
        APPEND(bytes8, 64)
        APPEND(bytes4, 32)
        APPEND(bytes2, 16)
        APPEND(bytes1, 8)

        start = name;
        missing = 128 - length;
        if (missing[6:6] == 1) {
            start = start << 256;
            start = start << 256;
        }
        MOVE(5)
        MOVE(4)
        MOVE(3)
        MOVE(2)
        MOVE(1)
        MOVE(0)

        sum = (bit<64>)length * PRIME;
        sum = sum + mix16(start[1023:896], first.s0, first.s1) + mix16(name[127:0], first.s2, first.s3);
        sum = sum + mix16(start[895:768], first.s4, first.s5) + mix16(name[255:128], first.s6, first.s7);
        if (length > 64) {
            sum = sum + mix16(start[767:640], second.s0, second.s1) + mix16(name[383:256], second.s2, second.s3);
        }
        if (length > 96) {
            sum = sum + mix16(start[639:512], second.s4, second.s5) + mix16(name[511:384], second.s6, second.s7);
        }
        identity = avalanche(sum);
    }
}

#endif
