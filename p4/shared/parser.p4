// The parser: what `packets::packet::parse` does on a host, with the same reasons for a refusal. It extracts nothing
// that is not there, so that it never ends in an error, and a refused frame is forwarded as it came.

#ifndef PARSER_P4
#define PARSER_P4

#include "headers.p4"

/// One of up to four VLAN tags.
#define TAG_STATE(name, header, next)            \
    state name {                                 \
        transition select(meta.packet.left) {    \
            0 .. 3: cut_tag;                     \
            default: name##_whole;               \
        }                                        \
    }                                            \
    state name##_whole {                         \
        packet.extract(hdr.header);              \
        meta.packet.left = meta.packet.left - 4; \
        transition select(hdr.header.kind) {     \
            0x8100: next;                        \
            0x88a8: next;                        \
            0x9100: next;                        \
            0x0800: ipv4;                        \
            0x86dd: ipv6;                        \
            default: other_link;                 \
        }                                        \
    }

/// Extracts one chunk if its digit of `rest` is set.
#define BYTES_STATE(size, digit, next)                   \
    state bytes##size {                                  \
        transition select(meta.packet.rest[digit:digit]) { \
            1: bytes##size##_whole;                      \
            default: next;                               \
        }                                                \
    }                                                    \
    state bytes##size##_whole {                          \
        packet.extract(hdr.bytes##size);                 \
        transition next;                                 \
    }

#define REFUSE(name, why)              \
    state name {                       \
        meta.packet.reason = why;      \
        transition accept;             \
    }

parser FrameParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    state start {
        meta.packet.left = standard.packet_length;
        transition select(standard.ingress_port, standard.packet_length) {
            (AGENT_PORT, 0 .. 7): cut_link;
            (AGENT_PORT, _): replay;
            default: live;
        }
    }

    state replay {
        packet.extract(hdr.replay);
        meta.packet.left = meta.packet.left - 8;
        meta.packet.time_ns = hdr.replay.time_ns;
        transition ethernet;
    }

    state live {
        meta.packet.time_ns = (bit<64>)standard.ingress_global_timestamp * 1000;
        transition ethernet;
    }

    state ethernet {
        transition select(meta.packet.left) {
            0 .. 13: cut_link;
            default: ethernet_whole;
        }
    }

    state ethernet_whole {
        packet.extract(hdr.ethernet);
        meta.packet.left = meta.packet.left - 14;
        transition select(hdr.ethernet.kind) {
            0x8100: first_tag;
            0x88a8: first_tag;
            0x9100: first_tag;
            0x0800: ipv4;
            0x86dd: ipv6;
            SYNC: sync;
            default: other_link;
        }
    }

    state sync {
        transition select(meta.packet.left) {
            0 .. 3: other_link;
            default: sync_whole;
        }
    }

    state sync_whole {
        packet.extract(hdr.sync);
        transition other_link;
    }

    TAG_STATE(first_tag, tag0, second_tag)
    TAG_STATE(second_tag, tag1, third_tag)
    TAG_STATE(third_tag, tag2, fourth_tag)
    TAG_STATE(fourth_tag, tag3, fifth_tag)

    state fifth_tag {
        transition select(meta.packet.left) {
            0 .. 3: cut_tag;
            default: tags;
        }
    }

    state ipv4 {
        transition select(meta.packet.left) {
            0 .. 19: cut_ip;
            default: ipv4_fixed;
        }
    }

    state ipv4_fixed {
        packet.extract(hdr.ipv4);
        meta.packet.left = meta.packet.left - 20;
        transition select(hdr.ipv4.version, hdr.ipv4.header_words) {
            (4, 0 .. 4): ip_header_length;
            (4, _): ipv4_checked;
            default: ip_version;
        }
    }

    state ipv4_checked {
        // Bytes of options, for now.
        meta.packet.length = ((bit<32>)hdr.ipv4.header_words << 2) - 20;
        transition select(meta.packet.left < meta.packet.length) {
            true: cut_ip;
            default: ipv4_options;
        }
    }

    state ipv4_options {
        packet.extract(hdr.ipv4_options, meta.packet.length << 3);
        meta.packet.left = meta.packet.left - meta.packet.length;
        meta.packet.length = (bit<32>)hdr.ipv4.length - ((bit<32>)hdr.ipv4.header_words << 2);
        meta.packet.source = (bit<128>)(16w0xffff ++ hdr.ipv4.source);
        meta.packet.destination = (bit<128>)(16w0xffff ++ hdr.ipv4.destination);
        // A length below that of the headers became a negative number.
        transition select(meta.packet.length[31:31], hdr.ipv4.fragment) {
            (1, _): ip_length;
            (0, 0): ipv4_bounds;
            default: fragment;
        }
    }

    state ipv4_bounds {
        // Ethernet's padding does not belong to the packet.
        transition select(meta.packet.length < meta.packet.left) {
            true: ipv4_padded;
            default: ipv4_transport;
        }
    }

    state ipv4_padded {
        meta.packet.left = meta.packet.length;
        transition ipv4_transport;
    }

    state ipv4_transport {
        transition select(hdr.ipv4.protocol) {
            6: tcp;
            17: udp;
            default: other_transport;
        }
    }

    state ipv6 {
        transition select(meta.packet.left) {
            0 .. 39: cut_ip;
            default: ipv6_fixed;
        }
    }

    state ipv6_fixed {
        packet.extract(hdr.ipv6);
        meta.packet.left = meta.packet.left - 40;
        meta.packet.length = (bit<32>)hdr.ipv6.length;
        meta.packet.source = hdr.ipv6.source;
        meta.packet.destination = hdr.ipv6.destination;
        transition select(hdr.ipv6.version) {
            6: ipv6_bounds;
            default: ip_version;
        }
    }

    state ipv6_bounds {
        transition select(meta.packet.length < meta.packet.left) {
            true: ipv6_padded;
            default: ipv6_transport;
        }
    }

    state ipv6_padded {
        meta.packet.left = meta.packet.length;
        transition ipv6_transport;
    }

    state ipv6_transport {
        transition select(hdr.ipv6.protocol) {
            6: tcp;
            17: udp;
            // Hop by hop, routing, fragment, authentication, destination options.
            0: extension;
            43: extension;
            44: extension;
            51: extension;
            60: extension;
            default: other_transport;
        }
    }

    state tcp {
        transition select(meta.packet.left, meta.packet.length) {
            (0 .. 19, 0 .. 19): tcp_header_length;
            (0 .. 19, _): cut_tcp;
            default: tcp_fixed;
        }
    }

    state tcp_fixed {
        packet.extract(hdr.tcp);
        meta.packet.source_port = hdr.tcp.source;
        meta.packet.destination_port = hdr.tcp.destination;
        meta.packet.header_bytes = (bit<32>)hdr.tcp.header_words << 2;
#ifdef HARDWARE_DIGEST
        meta.packet.rest = NAME_PAYLOAD;
#else
        meta.packet.rest = meta.packet.header_bytes + NAME_PAYLOAD - 20;
#endif
        transition select(hdr.tcp.header_words) {
            0 .. 4: tcp_header_length;
            default: tcp_checked;
        }
    }

    state tcp_checked {
        transition select(meta.packet.left < meta.packet.header_bytes,
                          meta.packet.length < meta.packet.header_bytes) {
            (true, true): tcp_header_length;
            (true, false): cut_tcp;
            default: tcp_whole;
        }
    }

    state tcp_whole {
        meta.packet.left = meta.packet.left - 20;
        transition rest;
    }

    state udp {
        transition select(meta.packet.left, meta.packet.length) {
            (0 .. 7, 0 .. 7): udp_length;
            (0 .. 7, _): cut_udp;
            default: udp_fixed;
        }
    }

    state udp_fixed {
        packet.extract(hdr.udp);
        meta.packet.source_port = hdr.udp.source;
        meta.packet.destination_port = hdr.udp.destination;
        meta.packet.header_bytes = 8;
        meta.packet.rest = NAME_PAYLOAD;
        meta.packet.left = meta.packet.left - 8;
        transition select(hdr.udp.length, meta.packet.length < (bit<32>)hdr.udp.length) {
            (0 .. 7, _): udp_length;
            (_, true): udp_length;
            default: rest;
        }
    }

    state rest {
        meta.packet.usable = 1;
        transition select(meta.packet.left < meta.packet.rest) {
            true: rest_cut;
            default: bytes64;
        }
    }

    state rest_cut {
        meta.packet.rest = meta.packet.left;
        transition bytes64;
    }

    BYTES_STATE(64, 6, bytes32)
    BYTES_STATE(32, 5, bytes16)
    BYTES_STATE(16, 4, bytes8)
    BYTES_STATE(8, 3, bytes4)
    BYTES_STATE(4, 2, bytes2)
    BYTES_STATE(2, 1, bytes1)
    BYTES_STATE(1, 0, accept)

    REFUSE(cut_link, CUT_LINK)
    REFUSE(cut_tag, CUT_TAG)
    REFUSE(tags, TAGS)
    REFUSE(other_link, OTHER_LINK)
    REFUSE(cut_ip, CUT_IP)
    REFUSE(ip_version, IP_VERSION)
    REFUSE(ip_header_length, IP_HEADER_LENGTH)
    REFUSE(ip_length, IP_LENGTH)
    REFUSE(fragment, FRAGMENT)
    REFUSE(other_transport, OTHER_TRANSPORT)
    REFUSE(cut_tcp, CUT_TCP)
    REFUSE(tcp_header_length, TCP_HEADER_LENGTH)
    REFUSE(cut_udp, CUT_UDP)
    REFUSE(udp_length, UDP_LENGTH)
    REFUSE(extension, EXTENSION)
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        // Without the replay header: the frame that was captured.
        packet.emit(hdr.ethernet);
        packet.emit(hdr.sync);
        packet.emit(hdr.tag0);
        packet.emit(hdr.tag1);
        packet.emit(hdr.tag2);
        packet.emit(hdr.tag3);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.bytes64);
        packet.emit(hdr.bytes32);
        packet.emit(hdr.bytes16);
        packet.emit(hdr.bytes8);
        packet.emit(hdr.bytes4);
        packet.emit(hdr.bytes2);
        packet.emit(hdr.bytes1);
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

#endif
