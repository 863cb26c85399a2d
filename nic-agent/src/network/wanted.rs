//! A stream that the host agent asks for, as a stream of the configuration: the same names, checks and parts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;

use wire::proto::control as proto;

use super::routes::Routes;
use crate::config::{
    CardinalityConfig, HeavyHittersConfig, KeyName, PairName, ReorderingConfig, StreamConfig, SynopsesConfig,
    WeightName,
};

/// A stream that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedStream {
    pub(super) name: String,
    /// Who asks for it.
    pub(super) by: String,
    /// The stream, or why it makes no sense here.
    pub(super) config: Result<StreamConfig, String>,
}

impl WantedStream {
    /// What `stream` asks for, on a machine with these `routes`.
    pub(super) fn of(stream: &proto::Stream, routes: &Routes) -> Self {
        let (name, by) = (stream.name.clone(), stream.by.clone());
        Self { name, by, config: config(stream, routes) }
    }
}

fn config(stream: &proto::Stream, routes: &Routes) -> Result<StreamConfig, String> {
    let addresses = stream.addresses.iter().map(|bytes| address(bytes)).collect::<Result<BTreeSet<_>, _>>()?;
    let synopses = SynopsesConfig {
        reordering: stream.reordering.then(ReorderingConfig::default),
        heavy_hitters: stream.heavy_hitters.as_ref().map(heavy_hitters).transpose()?,
        cardinality: stream
            .cardinality
            .as_ref()
            .map(|cardinality| CardinalityConfig { window_ms: NonZeroU32::new(cardinality.window_ms) }),
    };
    let interval_ms = NonZeroU32::new(stream.interval_ms).ok_or("interval_ms is 0: 100 to 60000 are possible")?;
    Ok(StreamConfig {
        name: stream.name.clone(),
        interface: match &*stream.interface {
            "" => routed(&addresses, routes)?,
            named => named.to_owned(),
        },
        switch: None,
        pair: if stream.pair.is_empty() { None } else { Some(pair(&stream.pair)?) },
        one_way: None,
        synopses: (synopses != SynopsesConfig::default()).then_some(synopses),
        filter: filter(&addresses, &stream.side, stream.port)?,
        inner: false,
        memory_bytes: None,
        interval_ms,
    })
}

fn address(bytes: &[u8]) -> Result<IpAddr, String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let any = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    any.map_err(|_| format!("an address has {} bytes: 4 or 16 are possible", bytes.len()))
}

/// The one interface to which all `addresses` are routed.
fn routed(addresses: &BTreeSet<IpAddr>, routes: &Routes) -> Result<String, String> {
    let mut interfaces = BTreeSet::new();
    for address in addresses {
        let interface = routes.interface(*address);
        interfaces.insert(interface.ok_or_else(|| format!("no route leads to {address}: name the interface"))?);
    }
    let all: Vec<&str> = interfaces.into_iter().collect();
    match all[..] {
        [interface] => Ok(interface.to_owned()),
        [] => Err("without addresses, the interface has to be named".to_owned()),
        [one, other, ..] => Err(format!(
            "the addresses are routed to {} interfaces ({one}, {other}{}), and a stream is of one: name an interface that \
             all of its traffic passes, such as the node's",
            all.len(),
            if all.len() > 2 { ", …" } else { "" }
        )),
    }
}

fn filter(addresses: &BTreeSet<IpAddr>, side: &str, port: u32) -> Result<String, String> {
    let side = match side {
        "" => "",
        "src" => "src ",
        "dst" => "dst ",
        other => return Err(format!("side is {other}: this NIC agent knows src and dst")),
    };
    let port = u16::try_from(port).map_err(|_| format!("port is {port}: 1 to 65535 are possible"))?;
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let hosts = (!addresses.is_empty()).then(|| format!("{side}host {}", addresses.join(",")));
    let port = (port > 0).then(|| format!("dst port {port}"));
    Ok(hosts.into_iter().chain(port).collect::<Vec<_>>().join(" and "))
}

fn pair(word: &str) -> Result<PairName, String> {
    Ok(match word {
        "handshake" => PairName::Handshake,
        "data" => PairName::Data,
        "flow" => PairName::Flow,
        "dns" => PairName::Dns,
        "ntp" => PairName::Ntp,
        _ => return Err(format!("pair is {word}: this NIC agent knows handshake, data, flow, dns and ntp")),
    })
}

fn heavy_hitters(of: &proto::HeavyHitters) -> Result<HeavyHittersConfig, String> {
    let by = match &*of.by {
        "source" => KeyName::Source,
        "destination" => KeyName::Destination,
        "flow" => KeyName::Flow,
        "port" => KeyName::Port,
        other => {
            return Err(format!(
                "heavy_hitters.by is {other}: this NIC agent knows source, destination, flow and port"
            ));
        }
    };
    let weight = match &*of.weight {
        "packets" => WeightName::Packets,
        "bytes" => WeightName::Bytes,
        other => return Err(format!("heavy_hitters.weight is {other}: this NIC agent knows packets and bytes")),
    };
    Ok(HeavyHittersConfig { by, weight })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "cni0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
cali7\t0902F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
";

    fn stream(addresses: &[&str]) -> proto::Stream {
        let bytes = |text: &&str| match text.parse().unwrap() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        proto::Stream {
            name: "shop.cart".to_owned(),
            addresses: addresses.iter().map(bytes).collect(),
            side: "dst".to_owned(),
            interval_ms: 1000,
            pair: "handshake".to_owned(),
            ..proto::Stream::default()
        }
    }

    fn config_of(stream: &proto::Stream) -> Result<StreamConfig, String> {
        WantedStream::of(stream, &Routes::of(ROUTES, "")).config
    }

    #[test]
    fn addresses_become_a_filter_and_say_which_interface_is_read() {
        let config = config_of(&proto::Stream { port: 443, ..stream(&["10.244.1.7", "10.244.1.8"]) }).unwrap();
        assert_eq!((&*config.interface, &*config.filter), ("cni0", "dst host 10.244.1.7,10.244.1.8 and dst port 443"));
        assert!(config.filter.parse::<packets::Filter>().is_ok());

        let named = proto::Stream { interface: "eth0".to_owned(), ..stream(&["10.244.1.7", "10.244.2.9", "fd00::1"]) };
        assert_eq!(config_of(&named).unwrap().interface, "eth0");
        for (stream, why) in [
            (stream(&["10.244.1.7", "10.244.2.9"]), "the addresses are routed to 2 interfaces (cali7, cni0)"),
            (stream(&["8.8.8.8"]), "no route leads to 8.8.8.8: name the interface"),
            (stream(&[]), "without addresses, the interface has to be named"),
        ] {
            let error = config_of(&stream).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_word_of_a_later_release_is_refused_with_those_that_are_known() {
        let of = || stream(&["10.244.1.7"]);
        let heavy = |by: &str, weight: &str| proto::Stream {
            heavy_hitters: Some(proto::HeavyHitters { by: by.to_owned(), weight: weight.to_owned() }),
            ..of()
        };
        assert!(config_of(&heavy("flow", "packets")).unwrap().synopses.is_some());
        for (stream, why) in [
            (heavy("client", "bytes"), "heavy_hitters.by is client: this NIC agent knows source,"),
            (heavy("flow", "joules"), "heavy_hitters.weight is joules"),
            (proto::Stream { pair: "quic".to_owned(), ..of() }, "pair is quic: this NIC agent knows handshake,"),
            (proto::Stream { side: "both".to_owned(), ..of() }, "side is both: this NIC agent knows src and dst"),
            (proto::Stream { port: 65_536, ..of() }, "port is 65536: 1 to 65535 are possible"),
            (proto::Stream { interval_ms: 0, ..of() }, "interval_ms is 0"),
            (proto::Stream { addresses: vec![vec![1; 5]], ..of() }, "an address has 5 bytes"),
        ] {
            let error = config_of(&stream).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
