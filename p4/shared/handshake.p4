// TCP handshakes: which segments are requests and responses, and the digest by which both have one name:
// `packets::pair::Pair::Handshake`.

#ifndef HANDSHAKE_P4
#define HANDSHAKE_P4

#include "headers.p4"
#include "hash.p4"

// Flags of TCP.
const bit<8> SYN = 0x02;
const bit<8> SYN_ACK = 0x12;
/// Those that determine a segment's role: SYN, ACK, RST, FIN.
const bit<8> KIND = 0x17;

/// XXH3-64 with the first 64 bytes of the secret, or a digest of hardware.
control HandshakeName(in headers_t hdr, in packet_t packet, in secret_t secret, out bit<1> is_request,
                      out bit<1> is_response, out bit<64> identity) {
    /// Kind of pair, ends, and sequence number of the request, as `RequestIds` has them.
    bit<360> id;

#ifdef HARDWARE_DIGEST
    /// The digest of `id` in twelve words, with its first byte in the last one.
    action name() {
        bit<32> upper;
        bit<32> lower;
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
    }
#else
    /// The digest of `id`, 45 bytes.
    action name() {
        bit<64> sum = 45 * PRIME;
        // From bytes 16 and 13, then from 0 and 29.
        sum = sum + mix16(id[231:104], secret.s4, secret.s5) + mix16(id[255:128], secret.s6, secret.s7);
        sum = sum + mix16(id[359:232], secret.s0, secret.s1) + mix16(id[127:0], secret.s2, secret.s3);
        identity = avalanche(sum);
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

    apply {
        is_request = 0;
        is_response = 0;
        identity = 0;
        if (packet.usable == 1 && hdr.tcp.isValid()) {
            bit<8> kind = hdr.tcp.flags & KIND;
            if (kind == SYN || kind == SYN_ACK) {
                if (kind == SYN) {
                    is_request = 1;
                    request_id();
                } else {
                    is_response = 1;
                    response_id();
                }
                name();
            }
        }
    }
}

#endif
