// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

const bit<32> COUNTERS = 0x32;
const bit<32> UPDATED = 0x2;
const bit<32> OTHERS = 0x2;
const bit<32> BEFORE = 0x1;
const key_t CHOICE = 0x134ea7f92e47c82d;
const key_t OTHER_0 = 0xc9d2e1264fc2a2a7;
const key_t OTHER_1 = 0x40151aec754126d9;
const key_t OTHER_2 = 0x0;
const key_t ROW_0 = 0xcfc88b911d5f6934;
const key_t ROW_1 = 0xc2bdab977c70b3aa;
const key_t SECRET_0 = 0x998aae8b5ea9b473;
const key_t SECRET_1 = 0xded969f9f71c121c;
const key_t SECRET_2 = 0x68b6b672930bf0d3;
const key_t SECRET_3 = 0x161de34b3d38178c;
const key_t SECRET_4 = 0x6daeaeb73f5a3055;
const key_t SECRET_5 = 0x4a389fa360cb4082;
const key_t SECRET_6 = 0xcf34ff4ac72763bd;
const key_t SECRET_7 = 0xea9bf1946ee0979e;
/// With the keys, the checksum of the program's name and all of these.
const bit<32> CHECKSUM = 0xa6ca923c;
