// Reordering by prefix, sampled: which source prefixes have TCP flows with many packets out of order. Each bucket
// watches one flow at a time, and gives it up soon.
//
// # Source
//
// Y. Zheng, H. Yu, J. Rexford, Detecting TCP Packet Reordering in the Data Plane; `synopses/src/reordering`, with the
// segments of `synopses/packets/src/flows/reordering.rs`.
//
// # Guarantee
//
// The same frames at the same times give the records, counts and reports of the library's `Reordering` with
// `Split::SamplingOnly` and `Definition::BelowPredecessor`, bit for bit.
//
// # Parameters
//
// In `constants.p4`: buckets B; T in ticks of 2^TICK_SHIFT ns, C and R, by which a record is given up; whether all
// records are reported or those with R events; and, as keys (`shared/keys.p4`), the mixer and the secret of digests.
//
// # Registers
//
// Those of `shared/frames.p4` and `shared/visits.p4`, and:
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | sample_flows_low, sample_flows_high | B × 32 each | digest of the record's flow, 0 if there is none |
// | sample_prefixes_low, sample_prefixes_high | B × 32 each | its prefix |
// | sample_states | B × 32 | sequence number of its last packet |
// | sample_ticks | B × 32 | when that came, in ticks |
// | sample_packets, sample_events | B × 32 each | packets checked, and those out of order; 65,535 at most |
//
// Each is read and written at most once for a packet, at one index. Whether a record is given up depends on four of
// them, which are then written: hardware sends the packet round a second time for that.
//
// # Differences from the library
//
// - Counters have 32 bits and wrap; the library's have 64.
// - Reports are in a ring; the agent loses some if it polls less often than every 1024, and sees it in `reports`. What
//   the library reports at the end of an interval (`Reordering::close`) the agent reads from the records.
// - Definition 1 only: below the sequence number of the packet before.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/frames.p4"
#include "../shared/samples.p4"
#include "../shared/visits.p4"

struct metadata_t {
    packet_t  packet;
    segment_t segment;
    visit_t   visit;
}

#include "../shared/parser.p4"

struct keys_t {
    key_t    bucket;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t bucket, SECRET_PARAMETERS(s), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(bucket)
        CHECK_SECRET(s)
        current = {bucket, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(BUCKET, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

control Reordering(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        if (meta.packet.usable == 1 && hdr.tcp.isValid()) {
            Segments.apply(hdr, meta.packet, keys.secret, meta.segment);
            if (meta.segment.watched == 1 || meta.segment.begins == 1) {
                bit<32> tick = meta.packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];
                Samples.apply(meta.segment, tick, keys.bucket, meta.visit);
            }
            Visits.apply(meta.segment, meta.visit);
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Reordering(), NoEgress(), NoChecksum(), FrameDeparser()) main;
