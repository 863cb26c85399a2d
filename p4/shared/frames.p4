// What every program does with every frame: counts it, and sends it on.

#ifndef FRAMES_P4
#define FRAMES_P4

#include "headers.p4"

/// Adds 1 to a register of one word.
#define COUNT(counter)                     \
    {                                      \
        bit<32> counted;                   \
        counter.read(counted, 0);          \
        counter.write(0, counted + 1);     \
    }

/// Registers:
///
/// | name | entries × bits | what |
/// | --- | --- | --- |
/// | frames | 1 × 32 | frames, refused or not |
/// | refusals | 16 × 32 | frames without a usable packet, by reason (headers.p4) |
/// | constants | 1 × 32 | checksum of the program's name, constants and keys, from the first frame on |
control Frames(in packet_t packet, in bit<32> checksum, inout standard_metadata_t standard) {
    register<bit<32>>(1) frames;
    register<bit<32>>(16) refusals;
    register<bit<32>>(1) constants;

    apply {
        COUNT(frames)
        constants.write(0, checksum);
        if (packet.usable == 0) {
            bit<32> refused;
            refusals.read(refused, (bit<32>)packet.reason);
            refusals.write((bit<32>)packet.reason, refused + 1);
        }
        // Ports are pairs of two ends of a wire. What the agent replays leaves by the first one.
        if (standard.ingress_port == AGENT_PORT) {
            standard.egress_spec = 0;
        } else {
            standard.egress_spec = standard.ingress_port ^ 1;
        }
    }
}

#endif
