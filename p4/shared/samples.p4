// The flow-sampling array: each flow is watched briefly, one flow per bucket at a time. What it measures, and its
// registers: `reordering-samples/reordering-samples.p4`.

#ifndef SAMPLES_P4
#define SAMPLES_P4

#include "segment.p4"

/// The largest number of packets and events of a record.
const bit<32> FULL = 0xffff;

control Samples(in segment_t segment, in bit<32> tick, in key_t mixer, inout visit_t visit) {
    register<bit<32>>(BUCKETS) sample_flows_low;
    register<bit<32>>(BUCKETS) sample_flows_high;
    register<bit<32>>(BUCKETS) sample_prefixes_low;
    register<bit<32>>(BUCKETS) sample_prefixes_high;
    register<bit<32>>(BUCKETS) sample_states;
    register<bit<32>>(BUCKETS) sample_ticks;
    register<bit<32>>(BUCKETS) sample_packets;
    register<bit<32>>(BUCKETS) sample_events;

    apply {
        bit<64> mixed;
        MIX_NUMBER(mixed, segment.prefix, mixer)
        bit<32> bucket = PLACE(mixed[63:32], BUCKETS);
        bit<32> low;
        bit<32> high;
        bit<32> packets;
        bit<32> events;
        sample_flows_low.read(low, bucket);
        sample_flows_high.read(high, bucket);
        sample_packets.read(packets, bucket);
        sample_events.read(events, bucket);
        bit<64> resident = high ++ low;
        if (resident == segment.flow) {
            if (segment.watched == 1) {
                bit<32> state;
                sample_states.read(state, bucket);
                JUDGE(state)
                if (visit.event == 1 && events < FULL) {
                    sample_events.write(bucket, events + 1);
                }
                if (packets < FULL) {
                    sample_packets.write(bucket, packets + 1);
                }
                sample_ticks.write(bucket, tick);
                visit.monitored = 1;
            }
            // A new connection keeps its counts.
            sample_states.write(bucket, segment.sequence);
        } else if (segment.watched == 1) {
            bit<1> enters = 1;
            if (resident != 0) {
                bit<32> then;
                sample_ticks.read(then, bucket);
                bit<32> age = tick - then;
                visit.back = age[31:31];
                if ((age[31:31] == 1 || age <= TIMEOUT) && packets <= MOST_PACKETS && events < LEAST_EVENTS) {
                    enters = 0;
                } else {
                    visit.evicted = 1;
                }
            }
            if (enters == 1) {
                sample_prefixes_low.read(low, bucket);
                sample_prefixes_high.read(high, bucket);
                visit.prefix = high ++ low;
                visit.packets = packets;
                visit.events = events;
                if (events >= LEAST_EVENTS || (REPORT_ALL == 1 && packets > 0)) {
                    visit.reports = 1;
                }
                visit.admitted = 1;
                visit.monitored = 1;
                sample_flows_low.write(bucket, segment.flow[31:0]);
                sample_flows_high.write(bucket, segment.flow[63:32]);
                sample_prefixes_low.write(bucket, segment.prefix[31:0]);
                sample_prefixes_high.write(bucket, segment.prefix[63:32]);
                sample_states.write(bucket, segment.sequence);
                sample_ticks.write(bucket, tick);
                sample_packets.write(bucket, 0);
                sample_events.write(bucket, 0);
            }
        }
    }
}

#endif
