// Headers, and what the parser finds out about a frame. A frame leaves as it came: each byte that is extracted is
// emitted again.

#ifndef HEADERS_P4
#define HEADERS_P4

/// The port of the agent. A frame from it begins with a `replay_t` and is judged by the time in there.
#ifndef AGENT_PORT
#define AGENT_PORT 64
#endif

/// Bytes of payload in a packet's name; with digests of hardware those behind the fixed part of the TCP or UDP header.
/// 0: names are not computed, and no payload is extracted.
#ifndef NAME_PAYLOAD
#define NAME_PAYLOAD 0
#endif

/// Ethernet's kind of a frame that begins an interval; one for local experiments (IEEE 802).
const bit<16> SYNC = 0x88b6;

/// In front of a frame from the agent: the time at which it was captured, in nanoseconds since 1970.
header replay_t {
    bit<64> time_ns;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

/// Behind Ethernet's header, of kind `SYNC`: an interval of this number begins.
header sync_t {
    bit<32> interval;
}

header tag_t {
    bit<16> identifier;
    bit<16> kind;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<8>  service;
    bit<16> length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment;
    bit<8>  hops;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv4_options_t {
    varbit<320> bytes;
}

header ipv6_t {
    bit<4>   version;
    bit<28>  class_and_label;
    bit<16>  length;
    bit<8>   protocol;
    bit<8>   hops;
    bit<128> source;
    bit<128> destination;
}

header tcp_t {
    bit<16> source;
    bit<16> destination;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4>  header_words;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

// The bytes behind the TCP or UDP header that count, by the binary digits of their number.
header bytes64_t { bit<512> data; }
header bytes32_t { bit<256> data; }
header bytes16_t { bit<128> data; }
header bytes8_t  { bit<64>  data; }
header bytes4_t  { bit<32>  data; }
header bytes2_t  { bit<16>  data; }
header bytes1_t  { bit<8>   data; }

struct headers_t {
    replay_t       replay;
    ethernet_t     ethernet;
    sync_t         sync;
    tag_t          tag0;
    tag_t          tag1;
    tag_t          tag2;
    tag_t          tag3;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t         ipv6;
    tcp_t          tcp;
    udp_t          udp;
    bytes64_t      bytes64;
    bytes32_t      bytes32;
    bytes16_t      bytes16;
    bytes8_t       bytes8;
    bytes4_t       bytes4;
    bytes2_t       bytes2;
    bytes1_t       bytes1;
}

// Why a frame has no usable packet: the library's reasons, in its order, and one of the program's own.
typedef bit<8> reason_t;
const reason_t CUT_LINK = 0;
const reason_t CUT_TAG = 1;
const reason_t TAGS = 2;
const reason_t OTHER_LINK = 3;
const reason_t CUT_IP = 4;
const reason_t IP_VERSION = 5;
const reason_t IP_HEADER_LENGTH = 6;
const reason_t IP_LENGTH = 7;
const reason_t FRAGMENT = 8;
const reason_t OTHER_TRANSPORT = 9;
const reason_t CUT_TCP = 10;
const reason_t TCP_HEADER_LENGTH = 11;
const reason_t CUT_UDP = 12;
const reason_t UDP_LENGTH = 13;
/// Extension headers of IPv6, which the library walks through and this parser does not.
const reason_t EXTENSION = 15;

/// What the parser says of a frame.
struct packet_t {
    /// Captured bytes behind what has been extracted, as far as they belong to the packet.
    bit<32>  left;
    /// Bytes of the IP packet behind the IP header, by its length field.
    bit<32>  length;
    /// Bytes of the TCP or UDP header.
    bit<32>  header_bytes;
    /// Bytes to extract behind the fixed part of that header.
    bit<32>  rest;
    /// Whether there is a TCP or UDP packet. If not, `reason` says why.
    bit<1>   usable;
    reason_t reason;
    /// Addresses, IPv4 as `::ffff:a.b.c.d`, and ports.
    bit<128> source;
    bit<128> destination;
    bit<16>  source_port;
    bit<16>  destination_port;
    /// Nanoseconds since 1970, or since the switch started: by its clock, which counts microseconds, or by the replay.
    bit<64>  time_ns;
}

#endif
