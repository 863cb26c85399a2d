// Keys: what the control plane may set while the program runs. A program has one table for all of its keys,
// `Keys.keys`, so that no frame meets only some of those that are set.
//
// The last parameter of its action, `Keys.set`, is the constant CHECKSUM. With the keys it gives the checksum of all
// constants, which the register `constants` has. So whoever sets keys has to give the CHECKSUM that belongs to them
// (`Constants::parameters` in `synopses/packets/src/switch.rs`); with another one the agent refuses the switch.

#ifndef KEYS_P4
#define KEYS_P4

/// A key. The action's parameters are the constants of this type, in the order of `constants.p4`.
typedef bit<64> key_t;

#ifdef HARDWARE_DIGEST

/// The key of digests of hardware: two words for the rounds, and one for each of up to twelve words of a name.
struct secret_t {
    key_t k0;
    key_t k1;
    key_t k2;
    key_t k3;
    key_t k4;
    key_t k5;
    key_t k6;
    key_t k7;
    key_t k8;
    key_t k9;
    key_t k10;
    key_t k11;
    key_t k12;
    key_t k13;
}

/// One for each further word of a packet's name.
struct more_secret_t {
    key_t k14;
    key_t k15;
    key_t k16;
    key_t k17;
}

/// They as parameters of an action, as what these are, and those of a program.
#define SECRET_PARAMETERS(s) \
    key_t s##0, key_t s##1, key_t s##2, key_t s##3, key_t s##4, key_t s##5, key_t s##6, key_t s##7, key_t s##8, \
    key_t s##9, key_t s##10, key_t s##11, key_t s##12, key_t s##13
#define SECRET_OF(s) \
    {s##0, s##1, s##2, s##3, s##4, s##5, s##6, s##7, s##8, s##9, s##10, s##11, s##12, s##13}
#define FIRST_SECRET \
    KEY_0, KEY_1, KEY_2, KEY_3, KEY_4, KEY_5, KEY_6, KEY_7, KEY_8, KEY_9, KEY_10, KEY_11, KEY_12, KEY_13
#define MORE_PARAMETERS(s) key_t s##14, key_t s##15, key_t s##16, key_t s##17
#define MORE_OF(s) {s##14, s##15, s##16, s##17}
#define MORE_SECRET KEY_14, KEY_15, KEY_16, KEY_17

#define CHECK_SECRET(s) \
    CHECK(s##0) CHECK(s##1) CHECK(s##2) CHECK(s##3) CHECK(s##4) CHECK(s##5) CHECK(s##6) CHECK(s##7) CHECK(s##8) \
    CHECK(s##9) CHECK(s##10) CHECK(s##11) CHECK(s##12) CHECK(s##13)
#define CHECK_MORE(s) CHECK(s##14) CHECK(s##15) CHECK(s##16) CHECK(s##17)

#else

/// Eight numbers of the secret of XXH3, little-endian.
struct secret_t {
    key_t s0;
    key_t s1;
    key_t s2;
    key_t s3;
    key_t s4;
    key_t s5;
    key_t s6;
    key_t s7;
}

/// Eight numbers as parameters of an action, the secret that they are, and those of a program.
#define SECRET_PARAMETERS(s) \
    key_t s##0, key_t s##1, key_t s##2, key_t s##3, key_t s##4, key_t s##5, key_t s##6, key_t s##7
#define SECRET_OF(s) {s##0, s##1, s##2, s##3, s##4, s##5, s##6, s##7}
#define FIRST_SECRET SECRET_0, SECRET_1, SECRET_2, SECRET_3, SECRET_4, SECRET_5, SECRET_6, SECRET_7

/// Eight more, for names of packets.
#define more_secret_t secret_t
#define MORE_PARAMETERS(s) SECRET_PARAMETERS(s)
#define MORE_OF(s) SECRET_OF(s)
#define MORE_SECRET SECRET_8, SECRET_9, SECRET_10, SECRET_11, SECRET_12, SECRET_13, SECRET_14, SECRET_15

#define CHECK_SECRET(s) \
    CHECK(s##0) CHECK(s##1) CHECK(s##2) CHECK(s##3) CHECK(s##4) CHECK(s##5) CHECK(s##6) CHECK(s##7)
#define CHECK_MORE(s) CHECK_SECRET(s)

#endif

/// Adds a key to what depends on all keys and their order, as `CHECK_SECRET` adds a secret. `check` begins as 0.
#define CHECK(key) check = (check[62:0] ++ check[63:63]) ^ key;

/// The checksum of all constants.
#define CHECKED (checksum ^ check[63:32] ^ check[31:0])

#endif
