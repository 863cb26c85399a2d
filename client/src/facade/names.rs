//! Units of the facade, as a registration takes them.

use metrics::Unit;

/// The unit in UCUM; `None` for a plain number.
pub fn unit(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::Count => None,
        Unit::Percent => Some("%"),
        Unit::Seconds => Some("s"),
        Unit::Milliseconds => Some("ms"),
        Unit::Microseconds => Some("us"),
        Unit::Nanoseconds => Some("ns"),
        Unit::Tebibytes => Some("TiBy"),
        Unit::Gibibytes => Some("GiBy"),
        Unit::Mebibytes => Some("MiBy"),
        Unit::Kibibytes => Some("KiBy"),
        Unit::Bytes => Some("By"),
        Unit::TerabitsPerSecond => Some("Tbit/s"),
        Unit::GigabitsPerSecond => Some("Gbit/s"),
        Unit::MegabitsPerSecond => Some("Mbit/s"),
        Unit::KilobitsPerSecond => Some("kbit/s"),
        Unit::BitsPerSecond => Some("bit/s"),
        Unit::CountPerSecond => Some("1/s"),
    }
}

/// Parts of a unit in which a histogram counts: fine enough for what is usually measured in it.
pub fn parts_per_unit(unit: Option<Unit>) -> u32 {
    match unit {
        None | Some(Unit::Seconds | Unit::Tebibytes | Unit::Gibibytes | Unit::Mebibytes) => 1_000_000,
        Some(Unit::Milliseconds | Unit::Kibibytes | Unit::Percent) => 1_000,
        Some(_) => 1,
    }
}
