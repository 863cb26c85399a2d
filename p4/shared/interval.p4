// Intervals, and the buckets of LDA and FineComb for one end of a stream.

#ifndef INTERVAL_P4
#define INTERVAL_P4

#include "begun.p4"
#ifdef HARDWARE_DIGEST
#include "hardware-name.p4"
#else
#include "name.p4"
#endif

/// The mixers that derive sample, row and value from a digest, and the secret of digests.
struct packet_keys_t {
    key_t         sample;
    key_t         row;
    key_t         value;
    secret_t      first;
    more_secret_t second;
}

/// What is known of a packet of the stream.
struct sampled_t {
    /// Intervals that began since the switch started, and whether this frame begins one.
    bit<32> begun;
    bit<1>  begins;
    /// Number of the packet, of all packets of the stream.
    bit<32> number;
    /// Whether it is in the sample, and then its row and the value that is added up by XOR.
    bit<1>  sampled;
    bit<32> row;
    bit<64> value;
}

/// Registers, beside those of `begun.p4`:
///
/// | name | entries × bits | what |
/// | --- | --- | --- |
/// | number | 1 × 32 | packets since the switch started |
/// | packets | 2 × 32 | packets of an interval, sampled or not |
/// | sums_low, sums_high | 2 M × 32 each | sum of timestamps in nanoseconds, modulo 2⁶⁴ |
/// | counts | 2 M × 32 | sampled packets |
/// | values_low, values_high | 2 M × 32 each | XOR of values |
///
/// All but `number` are those of intervals: `begun.p4` says how an interval is read.
control Interval(in headers_t hdr, in packet_t packet, in packet_keys_t keys, out sampled_t found) {
    register<bit<32>>(1) number;
    register<bit<32>>(2) packets;
    register<bit<32>>(2 * BUCKETS) sums_low;
    register<bit<32>>(2 * BUCKETS) sums_high;
    register<bit<32>>(2 * BUCKETS) counts;
    register<bit<32>>(2 * BUCKETS) values_low;
    register<bit<32>>(2 * BUCKETS) values_high;

    bit<64> identity;

    apply {
        found.sampled = 0;
        found.row = 0;
        found.value = 0;
        found.number = 0;
        Begun.apply(hdr, found.begun, found.begins);
        if (packet.usable == 1) {
            bit<32> parity = (bit<32>)found.begun[0:0];
            bit<32> counted;
            number.read(found.number, 0);
            found.number = found.number + 1;
            number.write(0, found.number);
            packets.read(counted, parity);
            packets.write(parity, counted + 1);
            PacketName.apply(hdr, packet, keys.first, keys.second, identity);
            bit<64> mixed;
            MIX(mixed, identity, keys.sample)
            if (mixed <= SAMPLED) {
                found.sampled = 1;
                MIX(mixed, identity, keys.row)
                found.row = PLACE(mixed[63:32], BUCKETS);
                MIX(found.value, identity, keys.value)
                bit<32> index = parity * BUCKETS + found.row;
                bit<32> low;
                bit<32> high;
                bit<32> count;
                sums_low.read(low, index);
                sums_high.read(high, index);
                bit<64> sum = (high ++ low) + packet.time_ns;
                sums_low.write(index, sum[31:0]);
                sums_high.write(index, sum[63:32]);
                counts.read(count, index);
                counts.write(index, count + 1);
                values_low.read(low, index);
                values_low.write(index, low ^ found.value[31:0]);
                values_high.read(high, index);
                values_high.write(index, high ^ found.value[63:32]);
            }
        }
    }
}

#endif
