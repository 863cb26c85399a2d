// Constants of the tested program. Written by `cargo run -p equality -- constants`, from the settings and the key in
// `equality/src`. The secret is public: take another one.

const bit<32> ROWS = 0x32;
const bit<64> ROW = 0x316756333afc585c;
const bit<64> COIN = 0x71f89ca06f8915fd;
const bit<64> SECRET_0 = 0x998aae8b5ea9b473;
const bit<64> SECRET_1 = 0xded969f9f71c121c;
const bit<64> SECRET_2 = 0x68b6b672930bf0d3;
const bit<64> SECRET_3 = 0x161de34b3d38178c;
const bit<64> SECRET_4 = 0x6daeaeb73f5a3055;
const bit<64> SECRET_5 = 0x4a389fa360cb4082;
const bit<64> SECRET_6 = 0xcf34ff4ac72763bd;
const bit<64> SECRET_7 = 0xea9bf1946ee0979e;
/// Of the program's name and all of these.
const bit<32> CHECKSUM = 0x8cc40b4b;
