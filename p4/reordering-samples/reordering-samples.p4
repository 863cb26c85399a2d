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
// records are reported or those with R events; the key of digests and the mixer, as parameters of actions.
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

#include "constants.p4"
#include "../shared/frames.p4"
#include "../shared/samples.p4"
#include "../shared/visits.p4"

struct metadata_t {
    packet_t  packet;
    segment_t segment;
    visit_t   visit;
}

#include "../shared/parser.p4"

control Reordering(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        Frames.apply(hdr, meta.packet, standard);
        if (meta.packet.usable == 1 && hdr.tcp.isValid()) {
            Segments.apply(hdr, meta.packet, meta.segment);
            if (meta.segment.watched == 1 || meta.segment.begins == 1) {
                Samples.apply(meta.segment, meta.packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT], meta.visit);
            }
            Visits.apply(meta.segment, meta.visit);
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Reordering(), NoEgress(), NoChecksum(), FrameDeparser()) main;
