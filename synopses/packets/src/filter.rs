//! Filters that select the packets of a stream: conditions joined by "and".

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use thiserror::Error;

use crate::packet::{Packet, Transport};

/// Maximum number of conditions.
const MAX: usize = 32;
/// Most addresses of one `host` condition.
pub const MAX_HOSTS: usize = 256;

/// Selects the packets that match all conditions. Conditions are joined by `and`, and each may begin with `not`. An
/// empty filter selects all packets.
///
/// | condition | matches |
/// | --- | --- |
/// | `tcp`, `udp` | this transport |
/// | `port 443`, `src port 443`, `dst port 443` | this port, as source or destination, or only one of them |
/// | `host 10.0.0.1`, `src host …`, `dst host …` | this address; of several, `host 10.0.0.1,10.0.0.7`, any of them |
/// | `net 10.0.0.0/8`, `src net …`, `dst net …` | an address in this network |
/// | `vlan 5` | this outermost tag |
/// | `vni 7` | inner packets of this VXLAN network |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<(bool, Condition)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Tcp,
    Udp,
    Port(Side, u16),
    Network(Side, [u8; 16], u32),
    /// Sorted addresses, each once.
    Hosts(Side, Box<[[u8; 16]]>),
    Vlan(u16),
    Vni(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Either,
    Source,
    Destination,
}

impl Side {
    fn any<T>(self, source: T, destination: T, matches: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Either => matches(source) || matches(destination),
            Self::Source => matches(source),
            Self::Destination => matches(destination),
        }
    }
}

/// A filter that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// An unknown condition.
    #[error(
        "unknown condition {0:?}; conditions are tcp, udp, port N, host A, net A/N, vlan N and vni N, with `src`, `dst` or `not` before them and `and` between"
    )]
    Word(String),
    /// An invalid number or address.
    #[error("invalid {what} {value:?}")]
    Value {
        /// The expected kind of value.
        what: &'static str,
        /// The text in the filter.
        value: String,
    },
    /// More conditions than the maximum.
    #[error("more than {MAX} conditions")]
    Long,
    /// More addresses of one condition than the maximum.
    #[error("{0} addresses behind `host`, at most {MAX_HOSTS} are possible")]
    Hosts(usize),
}

impl Filter {
    /// Whether `packet` belongs to the stream.
    #[inline]
    #[must_use]
    pub fn matches(&self, packet: &Packet<'_>) -> bool {
        self.conditions.iter().all(|(expected, condition)| condition.matches(packet, false) == *expected)
    }

    /// Whether `packet` is a reply within the stream: conditions apply with source and destination exchanged, so that
    /// `dst port 443` matches its source port.
    #[inline]
    #[must_use]
    pub fn matches_reply(&self, packet: &Packet<'_>) -> bool {
        self.conditions.iter().all(|(expected, condition)| condition.matches(packet, true) == *expected)
    }
}

impl Condition {
    /// `is_reply`: with source and destination exchanged.
    fn matches(&self, packet: &Packet<'_>, is_reply: bool) -> bool {
        let (source, destination) =
            if is_reply { (&packet.destination, &packet.source) } else { (&packet.source, &packet.destination) };
        match self {
            Self::Tcp => matches!(packet.transport, Transport::Tcp(_)),
            Self::Udp => matches!(packet.transport, Transport::Udp(_)),
            Self::Port(side, port) => side.any(source.port, destination.port, |found| found == *port),
            Self::Network(side, network, bits) => {
                let within = |address: [u8; 16]| {
                    let differs = u128::from_be_bytes(address) ^ u128::from_be_bytes(*network);
                    differs.leading_zeros() >= *bits
                };
                side.any(source.address, destination.address, within)
            }
            Self::Hosts(side, hosts) => {
                side.any(source.address, destination.address, |address| hosts.binary_search(&address).is_ok())
            }
            Self::Vlan(vlan) => packet.vlan == Some(*vlan),
            Self::Vni(network) => packet.network == Some(*network),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut words = text.split_whitespace();
        let mut conditions = Vec::new();
        while let Some(word) = words.next() {
            if conditions.len() == MAX {
                return Err(FilterError::Long);
            }
            if !conditions.is_empty() && word != "and" {
                return Err(FilterError::Word(word.to_owned()));
            }
            let mut word = if conditions.is_empty() { word } else { words.next().unwrap_or_default() };
            let expected = word != "not";
            if !expected {
                word = words.next().unwrap_or_default();
            }
            let side = match word {
                "src" => Side::Source,
                "dst" => Side::Destination,
                _ => Side::Either,
            };
            if side != Side::Either {
                word = words.next().unwrap_or_default();
            }
            let mut value = || words.next().unwrap_or_default();
            let condition = match (word, side) {
                ("tcp", Side::Either) => Condition::Tcp,
                ("udp", Side::Either) => Condition::Udp,
                ("port", side) => Condition::Port(side, number("port", value())?),
                ("host" | "net", side) => {
                    let value = value();
                    let hosts = if word == "host" && value.contains(',') { hosts(value)? } else { Box::default() };
                    match &*hosts {
                        [] => {
                            let (network, bits) = network(value)?;
                            Condition::Network(side, network, bits)
                        }
                        // The same one several times.
                        [host] => Condition::Network(side, *host, 128),
                        _ => Condition::Hosts(side, hosts),
                    }
                }
                ("vlan", Side::Either) => Condition::Vlan(number("VLAN", value())?),
                ("vni", Side::Either) => Condition::Vni(number("VXLAN network", value())?),
                _ => return Err(FilterError::Word(word.to_owned())),
            };
            conditions.push((expected, condition));
        }
        Ok(Self { conditions })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: Side| match side {
            Side::Either => "",
            Side::Source => "src ",
            Side::Destination => "dst ",
        };
        for (place, (expected, condition)) in self.conditions.iter().enumerate() {
            f.write_str(if place > 0 { " and " } else { "" })?;
            f.write_str(if *expected { "" } else { "not " })?;
            match condition {
                Condition::Tcp => f.write_str("tcp")?,
                Condition::Udp => f.write_str("udp")?,
                Condition::Port(at, port) => write!(f, "{}port {port}", side(*at))?,
                Condition::Network(at, network, bits) => {
                    let network = core::net::Ipv6Addr::from(*network);
                    match (network.to_ipv4_mapped(), bits.checked_sub(96)) {
                        (Some(network), Some(bits)) => write!(f, "{}net {network}/{bits}", side(*at))?,
                        _ => write!(f, "{}net {network}/{bits}", side(*at))?,
                    }
                }
                Condition::Hosts(at, hosts) => {
                    write!(f, "{}host ", side(*at))?;
                    for (place, host) in hosts.iter().enumerate() {
                        let host = IpAddr::from(*host).to_canonical();
                        write!(f, "{}{host}", if place > 0 { "," } else { "" })?;
                    }
                }
                Condition::Vlan(vlan) => write!(f, "vlan {vlan}")?,
                Condition::Vni(network) => write!(f, "vni {network}")?,
            }
        }
        Ok(())
    }
}

fn number<T: FromStr>(what: &'static str, value: &str) -> Result<T, FilterError> {
    value.parse().map_err(|_| FilterError::Value { what, value: value.to_owned() })
}

/// An address and its prefix length, by default all bits. IPv4 is mapped to IPv6.
fn network(value: &str) -> Result<([u8; 16], u32), FilterError> {
    let wrong = || FilterError::Value { what: "address or network", value: value.to_owned() };
    let (address, bits) = value.split_once('/').map_or((value, None), |(address, bits)| (address, Some(bits)));
    let (address, all, before) = match address.parse().map_err(|_| wrong())? {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 32, 96),
        IpAddr::V6(address) => (address.octets(), 128, 0),
    };
    let bits: u32 = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| wrong()))?;
    if bits > all {
        return Err(wrong());
    }
    Ok((address, before + bits))
}

/// Addresses that are separated by commas, sorted.
fn hosts(value: &str) -> Result<Box<[[u8; 16]]>, FilterError> {
    let address = |text: &str| match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(address.to_ipv6_mapped().octets()),
        Ok(IpAddr::V6(address)) => Ok(address.octets()),
        Err(_) => Err(FilterError::Value { what: "address", value: text.to_owned() }),
    };
    let mut hosts = value.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.len() > MAX_HOSTS {
        return Err(FilterError::Hosts(hosts.len()));
    }
    Ok(hosts.into())
}

#[cfg(test)]
mod tests;
