// The keys of FineComb's ends: `finecomb-sender`, `finecomb-receiver`.

#ifndef PACKET_KEYS_P4
#define PACKET_KEYS_P4

#include "interval.p4"

struct keys_t {
    packet_keys_t packets;
    bit<32>       checksum;
}

control Keys(out keys_t current) {
    action set(key_t sample, key_t row, key_t value, SECRET_PARAMETERS(s), MORE_PARAMETERS(t), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(sample)
        CHECK(row)
        CHECK(value)
        CHECK_SECRET(s)
        CHECK_MORE(t)
        current = {{sample, row, value, SECRET_OF(s), MORE_OF(t)}, CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(SAMPLE, ROW, VALUE, FIRST_SECRET, MORE_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

#endif
