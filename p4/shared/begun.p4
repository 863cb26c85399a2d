// Which interval it is. A frame of kind `SYNC` begins one. Registers that belong to an interval are there twice: the
// lowest bit of the number of intervals that began chooses one.

#ifndef BEGUN_P4
#define BEGUN_P4

#include "headers.p4"

/// Registers:
///
/// | name | entries × bits | what |
/// | --- | --- | --- |
/// | interval | 1 × 32 | number of the interval, as its first frame says |
/// | begun | 1 × 32 | intervals that began |
control Begun(in headers_t hdr, out bit<32> intervals, out bit<1> begins) {
    register<bit<32>>(1) interval;
    register<bit<32>>(1) begun;

    apply {
        begins = 0;
        begun.read(intervals, 0);
        if (hdr.sync.isValid()) {
            // Repeated and older ones are ignored, in serial numbers. One that is missing makes an interval longer.
            bit<32> current;
            interval.read(current, 0);
            bit<32> later = hdr.sync.interval - current;
            if (later != 0 && later[31:31] == 0) {
                interval.write(0, hdr.sync.interval);
                intervals = intervals + 1;
                begun.write(0, intervals);
                begins = 1;
            }
        }
    }
}

#endif
