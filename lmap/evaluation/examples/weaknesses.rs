//! Writes the recordings of `tests/weaknesses` anew, after their model was changed.
//! `cargo run -p evaluation --example weaknesses`.

use std::error::Error;
use std::path::Path;

#[path = "../tests/weaknesses/cases.rs"]
mod cases;
#[path = "../tests/weaknesses/model.rs"]
mod model;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weaknesses/recorded");
    std::fs::create_dir_all(&folder)?;
    for of in cases::ALL {
        std::fs::write(folder.join(format!("{}.uvrec", of.name)), of.recorded())?;
    }
    Ok(())
}
