// Which interval it is. A frame of kind `SYNC` begins one. Registers that belong to an interval are there twice: the
// lowest bit of the number of intervals that began chooses the set that is written. The other set is at rest.
//
// Nobody empties a set. It has what all of its intervals have together, every other one since the switch started:
// counts are added up modulo 2³², sums modulo 2⁶⁴ in their two halves, values by XOR. An interval is the difference of
// two polls of its set, and a reader has to do this:
//
// - It polls once within each interval, and then the set at rest: in interval n (`begun` is n) that of n − 1.
// - It reads `begun` before and after the set. If it is another one, the set may have been written meanwhile, and the
//   reader begins anew.
// - It subtracts, modulo the same powers, what the set had in interval n − 2, and combines values by XOR. Before the
//   switch started, all was 0.
// - If it polled the set last in interval n − 2j, the difference is the sum of j intervals, n − 1, n − 3 and so on. No
//   single one is known, and only the same sum of another switch can be compared with it.

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
