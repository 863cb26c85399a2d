// A TCP segment as synopses of reordering take it: `packets::flows::segment`.

#ifndef SEGMENT_P4
#define SEGMENT_P4

#include "flow.p4"

/// What is known of a segment.
struct segment_t {
    /// Whether it has payload, and neither begins nor aborts a connection.
    bit<1>  watched;
    /// Whether it begins a connection.
    bit<1>  begins;
    /// 24 bits of an IPv4 source behind a bit that marks it, or 48 of an IPv6 one.
    bit<64> prefix;
    /// Digest of addresses and ports; never 0, which marks an empty record.
    bit<64> flow;
    bit<32> sequence;
}

control Segments(in headers_t hdr, in packet_t packet, in secret_t secret, out segment_t segment) {
    apply {
        segment.watched = 0;
        segment.begins = 0;
        segment.sequence = hdr.tcp.sequence;
        segment.flow = 0;
        if (packet.source[127:32] == 96w0xffff) {
            segment.prefix = 1w1 ++ 39w0 ++ packet.source[31:8];
        } else {
            segment.prefix = 16w0 ++ packet.source[127:80];
        }
        // RST, then SYN.
        if (hdr.tcp.flags[2:2] == 0) {
            segment.begins = hdr.tcp.flags[1:1];
            if (hdr.tcp.flags[1:1] == 0 && packet.length > packet.header_bytes) {
                segment.watched = 1;
            }
        }
        if (segment.watched == 1 || segment.begins == 1) {
            FlowName.apply(hdr, packet, secret, segment.flow);
            if (segment.flow == 0) {
                segment.flow = 1;
            }
        }
    }
}

/// What became of a segment.
struct visit_t {
    /// Its flow has a record, got one, or took that of another flow.
    bit<1>  monitored;
    bit<1>  admitted;
    bit<1>  evicted;
    /// It is out of order, or a jump of more than the largest window.
    bit<1>  event;
    bit<1>  jump;
    /// Its time is before the last one of the record.
    bit<1>  back;
    /// What is reported of the flow that was evicted.
    bit<1>  reports;
    bit<64> prefix;
    bit<32> packets;
    bit<32> events;
}

/// Whether a segment behind another one of its flow is out of order: below it, by no more than the largest window.
#define JUDGE(state)                                          \
    {                                                         \
        bit<32> ahead = segment.sequence - state;             \
        bit<32> distance = ahead;                             \
        if (ahead[31:31] == 1) {                              \
            distance = 0 - ahead;                             \
        }                                                     \
        if (distance > 0x40000000) {                          \
            visit.jump = 1;                                   \
        } else {                                              \
            visit.event = ahead[31:31];                       \
        }                                                     \
    }

#endif
