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
#define SECOND_SECRET SECRET_8, SECRET_9, SECRET_10, SECRET_11, SECRET_12, SECRET_13, SECRET_14, SECRET_15

/// Adds a key, or a secret, to what depends on all keys and their order. `check` begins as 0.
#define CHECK(key) check = (check[62:0] ++ check[63:63]) ^ key;
#define CHECK_SECRET(s) \
    CHECK(s##0) CHECK(s##1) CHECK(s##2) CHECK(s##3) CHECK(s##4) CHECK(s##5) CHECK(s##6) CHECK(s##7)

/// The checksum of all constants.
#define CHECKED (checksum ^ check[63:32] ^ check[31:0])

#endif
