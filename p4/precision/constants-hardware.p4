// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

#define HARDWARE_DIGEST 1
#define EPOCH_SHIFT 21
const bit<32> ROWS = 0x8;
const key_t ROW = 0x2afec8c7c469f4a2;
const key_t COIN = 0xa0298282d858815a;
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
const bit<32> CHECKSUM = 0x741099f0;
