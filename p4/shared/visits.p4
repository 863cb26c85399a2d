// What is counted of segments, and reported of flows that were evicted.

#ifndef VISITS_P4
#define VISITS_P4

#include "frames.p4"
#include "segment.p4"

const bit<32> REPORTS = 1024;

/// Registers:
///
/// | name | entries × bits | what |
/// | --- | --- | --- |
/// | segments, ignored, monitored, admitted | 1 × 32 each | the library's counts of the same names |
/// | evicted, reports, jumps, clock_anomalies | 1 × 32 each | likewise |
/// | report_prefixes_low, report_prefixes_high | 1024 × 32 each | prefix of the report `reports` mod 1024 |
/// | report_packets, report_events | 1024 × 32 each | packets checked of its flow, and those out of order |
control Visits(in segment_t segment, in visit_t visit) {
    register<bit<32>>(1) segments;
    register<bit<32>>(1) ignored;
    register<bit<32>>(1) monitored;
    register<bit<32>>(1) admitted;
    register<bit<32>>(1) evicted;
    register<bit<32>>(1) reports;
    register<bit<32>>(1) jumps;
    register<bit<32>>(1) clock_anomalies;
    register<bit<32>>(REPORTS) report_prefixes_low;
    register<bit<32>>(REPORTS) report_prefixes_high;
    register<bit<32>>(REPORTS) report_packets;
    register<bit<32>>(REPORTS) report_events;

    apply {
        COUNT(segments)
        if (segment.watched == 0) {
            COUNT(ignored)
        }
        if (visit.monitored == 1) {
            COUNT(monitored)
        }
        if (visit.admitted == 1) {
            COUNT(admitted)
        }
        if (visit.evicted == 1) {
            COUNT(evicted)
        }
        if (visit.jump == 1) {
            COUNT(jumps)
        }
        if (visit.back == 1) {
            COUNT(clock_anomalies)
        }
        if (visit.reports == 1) {
            bit<32> sent;
            reports.read(sent, 0);
            reports.write(0, sent + 1);
            bit<32> index = sent & (REPORTS - 1);
            report_prefixes_low.write(index, visit.prefix[31:0]);
            report_prefixes_high.write(index, visit.prefix[63:32]);
            report_packets.write(index, visit.packets);
            report_events.write(index, visit.events);
        }
    }
}

#endif
