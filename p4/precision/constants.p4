// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

#define EPOCH_SHIFT 21
const bit<32> ROWS = 0x6;
const key_t ROW = 0x316756333afc585c;
const key_t COIN = 0x71f89ca06f8915fd;
const key_t SECRET_0 = 0x998aae8b5ea9b473;
const key_t SECRET_1 = 0xded969f9f71c121c;
const key_t SECRET_2 = 0x68b6b672930bf0d3;
const key_t SECRET_3 = 0x161de34b3d38178c;
const key_t SECRET_4 = 0x6daeaeb73f5a3055;
const key_t SECRET_5 = 0x4a389fa360cb4082;
const key_t SECRET_6 = 0xcf34ff4ac72763bd;
const key_t SECRET_7 = 0xea9bf1946ee0979e;
/// With the keys, the checksum of the program's name and all of these.
const bit<32> CHECKSUM = 0x2323dbc;
