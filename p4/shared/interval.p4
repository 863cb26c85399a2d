// Intervals, and the buckets of LDA and FineComb for one end of a stream.

#ifndef INTERVAL_P4
#define INTERVAL_P4

#include "begun.p4"
#include "name.p4"

/// What the agent sets: the key of digests, and the mixers that derive sample, row and value from a digest.
struct keys_t {
    secret_t secret;
    bit<64>  sample;
    bit<64>  row;
    bit<64>  value;
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
/// The agent empties entries after it has read them, before the next interval but one begins.
control Interval(in headers_t hdr, in packet_t packet, out sampled_t found) {
    register<bit<32>>(1) number;
    register<bit<32>>(2) packets;
    register<bit<32>>(2 * BUCKETS) sums_low;
    register<bit<32>>(2 * BUCKETS) sums_high;
    register<bit<32>>(2 * BUCKETS) counts;
    register<bit<32>>(2 * BUCKETS) values_low;
    register<bit<32>>(2 * BUCKETS) values_high;

    keys_t keys;
    bit<64> identity;

    action set(bit<64> s0, bit<64> s1, bit<64> s2, bit<64> s3, bit<64> s4, bit<64> s5, bit<64> s6, bit<64> s7,
               bit<64> s8, bit<64> s9, bit<64> s10, bit<64> s11, bit<64> s12, bit<64> s13, bit<64> s14, bit<64> s15,
               bit<64> sample, bit<64> row, bit<64> value) {
        keys = {{s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15}, sample, row, value};
    }

    table key {
        actions = { set; }
        default_action = set(SECRET_0, SECRET_1, SECRET_2, SECRET_3, SECRET_4, SECRET_5, SECRET_6, SECRET_7, SECRET_8,
                             SECRET_9, SECRET_10, SECRET_11, SECRET_12, SECRET_13, SECRET_14, SECRET_15, SAMPLE, ROW,
                             VALUE);
    }

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
            key.apply();
            PacketName.apply(hdr, packet, keys.secret, identity);
            if (finalise(identity ^ keys.sample) <= SAMPLED) {
                found.sampled = 1;
                bit<64> mixed = finalise(identity ^ keys.row);
                found.row = place(mixed[63:32], BUCKETS);
                found.value = finalise(identity ^ keys.value);
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
