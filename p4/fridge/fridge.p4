// Fridge: the distribution of the delay of TCP handshakes, without a bias against long ones.
//
// # Source
//
// Y. Zheng, X. Chen, M. Braverman, J. Rexford, Unbiased Delay Measurement in the Data Plane, APOCS 2022;
// `synopses/src/fridge.rs`, with `Pair::Handshake` of `synopses/packets`.
//
// # Guarantee
//
// The same frames at the same times give the slots, counts and reports of the library's `Fridge` with
// `Counter::Accepted`, `Duplicates::Overwrite` and `Coin::HashSplit`, bit for bit. What the library says of bias and
// variance holds for them.
//
// # Parameters
//
// In `constants.p4`: slots M, a power of two; p as a threshold of 33 bits; the tick, 2^10 ns; the key of digests and
// the fridge's mixer, as parameters of an action, so that the agent can change them without a new program.
//
// # Registers
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | prints | M × 32 | fingerprint of the pending request, 0 if there is none |
// | ticks | M × 32 | when it came, in ticks |
// | stamps | M × 32 | the insertion counter then |
// | insertions | 1 × 32 | requests that entered |
// | requests, duplicates, evicted | 1 × 32 each | the library's counts of the same names |
// | responses, matched, unmatched, clock_anomaly | 1 × 32 each | likewise |
// | report_ticks, report_insertions | 1024 × 32 each | delay and x of the sample `matched` mod 1024 |
//
// Each is read and written at most once for a packet, at one index, in the order of the table: digests, prints,
// insertions, then ticks and stamps side by side, then reports.
//
// # Differences from the library
//
// - Counters have 32 bits and wrap; the library's have 64. The agent adds up differences.
// - Weights are the agent's: a pipeline has no logarithm. So is the count of clamped ones.
// - Samples are in a ring; the agent loses some if it polls less often than every 1024 samples, and sees it in
//   `matched`.
// - Without the replay's time, a frame has the switch's time in microseconds.
// - Packets with extension headers of IPv6 are refused.

#include <core.p4>
#include <v1model.p4>
#include "../shared/headers.p4"
#include "../shared/hash.p4"
#include "constants.p4"

const bit<32> REPORTS = 1024;

// Flags of TCP.
const bit<8> SYN = 0x02;
const bit<8> SYN_ACK = 0x12;
/// Those that determine a segment's role: SYN, ACK, RST, FIN.
const bit<8> KIND = 0x17;

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"
#include "../shared/frames.p4"

control Fridge(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(SLOTS) prints;
    register<bit<32>>(SLOTS) ticks;
    register<bit<32>>(SLOTS) stamps;
    register<bit<32>>(1) insertions;
    register<bit<32>>(1) requests;
    register<bit<32>>(1) duplicates;
    register<bit<32>>(1) evicted;
    register<bit<32>>(1) responses;
    register<bit<32>>(1) matched;
    register<bit<32>>(1) unmatched;
    register<bit<32>>(1) clock_anomaly;
    register<bit<32>>(REPORTS) report_ticks;
    register<bit<32>>(REPORTS) report_insertions;

    /// Kind of pair, ends, and sequence number of the request, as `RequestIds` has them.
    bit<360> id;
    bit<64> identity;
    bit<32> index;
    bit<32> print;
    bit<32> coin;
    bit<32> tick = meta.packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];

    /// The digest of `id`, 45 bytes: XXH3-64 with the first 64 bytes of the secret as eight numbers.
    action name(bit<64> s0, bit<64> s1, bit<64> s2, bit<64> s3, bit<64> s4, bit<64> s5, bit<64> s6, bit<64> s7,
                bit<64> mixer) {
        bit<64> sum = 45 * PRIME;
        // From bytes 16 and 13, then from 0 and 29.
        sum = sum + mix16(id[231:104], s4, s5) + mix16(id[255:128], s6, s7);
        sum = sum + mix16(id[359:232], s0, s1) + mix16(id[127:0], s2, s3);
        identity = avalanche(sum);
        bit<64> mixed = finalise(identity ^ mixer);
        index = place(mixed[63:32], SLOTS);
        coin = mixed[31:0];
        print = fingerprint(identity, mixer);
    }

    table keys {
        actions = { name; }
        default_action = name(SECRET_0, SECRET_1, SECRET_2, SECRET_3, SECRET_4, SECRET_5, SECRET_6, SECRET_7, MIXER);
    }

    action request_id() {
        id = 8w0 ++ meta.packet.source ++ meta.packet.destination ++ meta.packet.source_port
            ++ meta.packet.destination_port ++ 32w0 ++ (hdr.tcp.sequence + 1);
    }

    action response_id() {
        id = 8w0 ++ meta.packet.destination ++ meta.packet.source ++ meta.packet.destination_port
            ++ meta.packet.source_port ++ 32w0 ++ hdr.tcp.acknowledgement;
    }

    /// A fingerprint is never 0, which marks an empty slot.
    action no_empty_print() {
        print = 1;
    }

    apply {
        Frames.apply(hdr, meta.packet, standard);
        if (meta.packet.usable == 1 && hdr.tcp.isValid()) {
            bit<8> kind = hdr.tcp.flags & KIND;
            if (kind == SYN || kind == SYN_ACK) {
                if (kind == SYN) {
                    request_id();
                } else {
                    response_id();
                }
                keys.apply();
                if (print == 0) {
                    no_empty_print();
                }
                bit<32> old;
                bit<32> then;
                bit<32> stamp;
                prints.read(old, index);
                if (kind == SYN) {
                    bool enters = (bit<33>)coin < THRESHOLD;
                    COUNT(requests)
                    insertions.read(stamp, 0);
                    if (old == print) {
                        COUNT(duplicates)
                    } else if (enters) {
                        stamp = stamp + 1;
                        insertions.write(0, stamp);
                        if (old != 0) {
                            COUNT(evicted)
                        }
                    }
                    if (enters) {
                        prints.write(index, print);
                        ticks.write(index, tick);
                        stamps.write(index, stamp);
                    } else if (old == print) {
                        // If the copy does not enter, the older one must not stay.
                        prints.write(index, 0);
                        ticks.write(index, 0);
                        stamps.write(index, 0);
                    }
                } else {
                    COUNT(responses)
                    if (old != print) {
                        COUNT(unmatched)
                    } else {
                        bit<32> inserted;
                        insertions.read(inserted, 0);
                        ticks.read(then, index);
                        stamps.read(stamp, index);
                        prints.write(index, 0);
                        ticks.write(index, 0);
                        stamps.write(index, 0);
                        bit<32> elapsed = tick - then;
                        if (elapsed[31:31] == 1) {
                            COUNT(clock_anomaly)
                        } else {
                            bit<32> sample;
                            matched.read(sample, 0);
                            matched.write(0, sample + 1);
                            report_ticks.write(sample & (REPORTS - 1), elapsed);
                            report_insertions.write(sample & (REPORTS - 1), inserted - stamp);
                        }
                    }
                }
            }
        }
    }
}

V1Switch(FrameParser(), NoChecksum(), Fridge(), NoEgress(), NoChecksum(), FrameDeparser()) main;
