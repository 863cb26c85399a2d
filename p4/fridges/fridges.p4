// Several fridges by intervals: the distribution of the delay of TCP handshakes over a wide range, without a bias
// against long ones. A hash of a request decides which fridge it enters, if any: the interval of coins in which it is.
// A fridge that few requests enter keeps each for long.
//
// # Source
//
// Y. Zheng, X. Chen, M. Braverman, J. Rexford, Unbiased Delay Measurement in the Data Plane, APOCS 2022;
// `synopses/src/fridge/multi.rs`, with `Pair::Handshake` of `synopses/packets`.
//
// # Guarantee
//
// The same frames at the same times give the slots, counts and samples of the library's `Fridges` with
// `Stamp::Arrivals` and `Duplicates::Overwrite`, bit for bit. What the library says of bias and variance holds for
// them: each sample has the weight 1/Σ pₖ (1 − pₖ/Mₖ)ˣ, whichever fridge it was in.
//
// # Parameters
//
// In `constants.p4`: two to four FRIDGES; for each one its slots Mₖ, for digests of hardware a power of two, where they
// begin in the table, and the upper end of its interval, of 33 bits; their slots in all; the tick, 2^TICK_SHIFT ns;
// and, as keys (`shared/keys.p4`), which the control plane can set without a new program, the mixer of all fridges and
// the secret of digests.
//
// # Registers
//
// Their names are those of `fridge`, so that an agent reads either program. M is the sum of all Mₖ.
//
// | name | entries × bits | what |
// | --- | --- | --- |
// | prints | M × 32 | fingerprint of the pending request, 0 if there is none |
// | ticks | M × 32 | when it came, in ticks |
// | stamps | M × 32 | `arrivals` then |
// | arrivals | 1 × 32 | requests that were counted, whether they entered or not |
// | insertions | 1 × 32 | requests that entered: the library's `admitted` |
// | requests, duplicates, evicted | 1 × 32 each | the library's counts of the same names |
// | responses, matched, unmatched, clock_anomaly | 1 × 32 each | likewise |
// | report_ticks, report_insertions | 1024 × 32 each | delay and x of the sample `matched` mod 1024 |
//
// Each is read and written at most once for a packet, at one index, in the order of the table: digests, prints,
// arrivals, then ticks and stamps side by side, then reports. So several fridges take no access more than one does.
//
// # Why it is a program of its own
//
// In `shared/fridge.p4` each second line would depend on the number of fridges: the library's `Fridge` counts what
// enters, and looks for a request that does not enter; `Fridges` counts what comes, and touches nothing. With the other
// stamp that `Fridges` has, one counter for each fridge, every slot would have as many stamps as there are fridges, and
// a sample as many reports. That pays where copies of requests come that no fridge keeps. There are none where the
// intervals cover all coins, as those of `uview p4 constants fridges` do.
//
// # Differences from the library
//
// - Counters have 32 bits and wrap; the library's counts have 64. The agent adds up differences.
// - Weights are the agent's: a pipeline has no logarithm. So is the count of clamped ones.
// - Which fridge a sample was in is not reported: it does not change its weight.
// - Samples are in a ring; the agent loses some if it polls less often than every 1024 samples, and sees it in
//   `matched`.
// - Without the replay's time, a frame has the switch's time in microseconds.
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
#include "../shared/handshake.p4"
#include "../shared/fridge-keys.p4"

#if FRIDGES < 2 || FRIDGES > 4
#error "FRIDGES: two to four are possible"
#endif

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

const bit<32> REPORTS = 1024;

/// The slot in a fridge, if the coin is in its interval; otherwise what follows.
#define SHELF(at)                                      \
    if (coin < BELOW_##at) {                           \
        index = PLACE(mixed[63:32], SLOTS_##at);       \
        index = index + BASE_##at;                     \
    } else

control Fridge(in headers_t hdr, in packet_t packet, in key_t mixer, in secret_t secret) {
    register<bit<32>>(SLOTS) prints;
    register<bit<32>>(SLOTS) ticks;
    register<bit<32>>(SLOTS) stamps;
    register<bit<32>>(1) arrivals;
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

    bit<1> is_request;
    bit<1> is_response;
    bit<64> identity;
    bit<64> mixed;
    bit<32> index;
    bit<32> print;
    bit<32> tick = packet.time_ns[TICK_SHIFT + 31:TICK_SHIFT];

    apply {
        HandshakeName.apply(hdr, packet, secret, is_request, is_response, identity);
        if (is_request == 1 || is_response == 1) {
            MIX(mixed, identity, mixer)
            FINGERPRINT(print, identity, mixer)
            // A fingerprint is never 0, which marks an empty slot, and what is in no fridge.
            if (print == 0) {
                print = 1;
            }
            bit<33> coin = (bit<33>)mixed[31:0];
            bit<1> enters = 1;
            SHELF(0)
            SHELF(1)
#if FRIDGES > 2
            SHELF(2)
#endif
#if FRIDGES > 3
            SHELF(3)
#endif
            {
                index = 0;
                enters = 0;
            }
            bit<32> old = 0;
            bit<32> stamp;
            if (enters == 1) {
                prints.read(old, index);
            }
            if (is_request == 1) {
                COUNT(requests)
                arrivals.read(stamp, 0);
                if (old == print) {
                    // A copy evicts nobody, and is not counted.
                    COUNT(duplicates)
                } else {
                    stamp = stamp + 1;
                    arrivals.write(0, stamp);
                    if (enters == 1) {
                        COUNT(insertions)
                        if (old != 0) {
                            COUNT(evicted)
                        }
                    }
                }
                if (enters == 1) {
                    prints.write(index, print);
                    ticks.write(index, tick);
                    stamps.write(index, stamp);
                }
            } else {
                COUNT(responses)
                if (old != print) {
                    COUNT(unmatched)
                } else {
                    bit<32> arrived;
                    bit<32> then;
                    arrivals.read(arrived, 0);
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
                        report_insertions.write(sample & (REPORTS - 1), arrived - stamp);
                    }
                }
            }
        }
    }
}

control Handshakes(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Fridge.apply(hdr, meta.packet, keys.mixer, keys.secret);
    }
}

V1Switch(FrameParser(), NoChecksum(), Handshakes(), NoEgress(), NoChecksum(), FrameDeparser()) main;
