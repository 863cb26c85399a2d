// The keys of programs with nothing but fridges: `fridge`, `fridges`.

#ifndef FRIDGE_KEYS_P4
#define FRIDGE_KEYS_P4

#include "keys.p4"

struct keys_t {
    /// Derives slot, coin and fingerprint from a request's digest.
    key_t    mixer;
    secret_t secret;
    bit<32>  checksum;
}

control Keys(out keys_t current) {
    action set(key_t mixer, SECRET_PARAMETERS(s), bit<32> checksum) {
        bit<64> check = 0;
        CHECK(mixer)
        CHECK_SECRET(s)
        current = {mixer, SECRET_OF(s), CHECKED};
    }

    table keys {
        actions = { set; }
        default_action = set(MIXER, FIRST_SECRET, CHECKSUM);
    }

    apply {
        keys.apply();
    }
}

#endif
