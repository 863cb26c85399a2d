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
// In `constants.p4`: slots M, a power of two; p as a threshold of 33 bits; the tick, 2^10 ns; and, as keys
// (`shared/keys.p4`), which the control plane can set without a new program, the fridge's mixer and the secret of
// digests.
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

#include "../shared/keys.p4"
#ifdef HARDWARE_DIGEST
#include "constants-hardware.p4"
#else
#include "constants.p4"
#endif
#include "../shared/frames.p4"
#include "../shared/fridge.p4"
#include "../shared/fridge-keys.p4"

struct metadata_t {
    packet_t packet;
}

#include "../shared/parser.p4"

control Handshakes(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    keys_t keys;

    apply {
        Keys.apply(keys);
        Frames.apply(meta.packet, keys.checksum, standard);
        Fridge.apply(hdr, meta.packet, keys.mixer, keys.secret);
    }
}

V1Switch(FrameParser(), NoChecksum(), Handshakes(), NoEgress(), NoChecksum(), FrameDeparser()) main;
