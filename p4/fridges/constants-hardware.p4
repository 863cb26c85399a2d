// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

#define HARDWARE_DIGEST 1
#define TICK_SHIFT 10
#define FRIDGES 3
const bit<32> SLOTS = 0x140;
const bit<32> SLOTS_0 = 0x80;
const bit<32> BASE_0 = 0x0;
const bit<33> BELOW_0 = 0x80000000;
const bit<32> SLOTS_1 = 0x80;
const bit<32> BASE_1 = 0x80;
const bit<33> BELOW_1 = 0xc0000000;
const bit<32> SLOTS_2 = 0x40;
const bit<32> BASE_2 = 0x100;
const bit<33> BELOW_2 = 0xe0000000;
const key_t MIXER = 0x74b252178423abe1;
const key_t KEY_0 = 0x998aae8b5ea9b473;
const key_t KEY_1 = 0xded969f9f71c121c;
const key_t KEY_2 = 0x68b6b672930bf0d3;
const key_t KEY_3 = 0x161de34b3d38178c;
const key_t KEY_4 = 0x6daeaeb73f5a3055;
const key_t KEY_5 = 0x4a389fa360cb4082;
const key_t KEY_6 = 0xcf34ff4ac72763bd;
const key_t KEY_7 = 0xea9bf1946ee0979e;
const key_t KEY_8 = 0x1fb35e6b9a3eea5;
const key_t KEY_9 = 0x21718067ae35a537;
const key_t KEY_10 = 0x9a46c22397bd87ea;
const key_t KEY_11 = 0x76fe9811bb8e581e;
const key_t KEY_12 = 0x800e7ce51a33bee3;
const key_t KEY_13 = 0xc2a648edaea59ecd;
/// With the keys, the checksum of the program's name and all of these.
const bit<32> CHECKSUM = 0x6bf22c4f;
