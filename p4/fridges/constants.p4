// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

#define TICK_SHIFT 10
#define FRIDGES 3
const bit<32> SLOTS = 0x124;
const bit<32> SLOTS_0 = 0x80;
const bit<32> BASE_0 = 0x0;
const bit<33> BELOW_0 = 0x80000000;
const bit<32> SLOTS_1 = 0x64;
const bit<32> BASE_1 = 0x80;
const bit<33> BELOW_1 = 0xc0000000;
const bit<32> SLOTS_2 = 0x40;
const bit<32> BASE_2 = 0xe4;
const bit<33> BELOW_2 = 0xe0000000;
const key_t MIXER = 0xd1e3a83bc1319098;
const key_t SECRET_0 = 0x998aae8b5ea9b473;
const key_t SECRET_1 = 0xded969f9f71c121c;
const key_t SECRET_2 = 0x68b6b672930bf0d3;
const key_t SECRET_3 = 0x161de34b3d38178c;
const key_t SECRET_4 = 0x6daeaeb73f5a3055;
const key_t SECRET_5 = 0x4a389fa360cb4082;
const key_t SECRET_6 = 0xcf34ff4ac72763bd;
const key_t SECRET_7 = 0xea9bf1946ee0979e;
/// With the keys, the checksum of the program's name and all of these.
const bit<32> CHECKSUM = 0x2e180111;
