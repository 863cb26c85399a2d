// The keys of sketches that count distinct flows: `st-hll`, `ts-pcsa`.

#ifndef ITEM_KEYS_P4
#define ITEM_KEYS_P4

#include "keys.p4"

struct keys_t {
    /// Derives register and rank from a flow's digest.
    key_t    item;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t item, SECRET_PARAMETERS(s), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(item)
        CHECK_SECRET(s)
        current = {item, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(ITEM_MIXER, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

#endif
