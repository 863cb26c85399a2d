//! To which interface an address is routed, from the kernel's tables as text (`/proc/net/route`,
//! `/proc/net/ipv6_route`). Pure: any text gives routes or none. Tables of policy routing are not in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Flags of a route: in use; refused; to this machine itself.
const UP: u64 = 0x1;
const REJECT: u64 = 0x200;
const LOCAL: u64 = 0x8000_0000;

/// A route to the addresses of a network. IPv4 is mapped to IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    network: u128,
    bits: u32,
    metric: u64,
    interface: String,
}

/// All routes of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Routes(Vec<Route>);

impl Routes {
    /// The routes in the two tables. Lines that are not understood are left out.
    pub(super) fn of(v4: &str, v6: &str) -> Self {
        Self(v4.lines().filter_map(of_v4).chain(v6.lines().filter_map(of_v6)).collect())
    }

    /// The interface of the longest route to `address`; of two, that with the lesser metric.
    pub(super) fn interface(&self, address: IpAddr) -> Option<&str> {
        let address = u128::from(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        });
        let is_within = |route: &&Route| (address ^ route.network).leading_zeros() >= route.bits;
        let best = self.0.iter().filter(is_within).max_by_key(|route| (route.bits, core::cmp::Reverse(route.metric)));
        best.map(|route| &*route.interface)
    }
}

/// `eth0 0000A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0`: words of the machine's byte order.
fn of_v4(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [interface, destination, _gateway, flags, _, _, metric, mask, ..] = fields[..] else { return None };
    let address = |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    let flags = u64::from_str_radix(flags, 16).ok()?;
    let mask = u32::from(address(mask)?);
    (flags & UP != 0 && flags & REJECT == 0 && mask.leading_ones() == mask.count_ones()).then_some(())?;
    Some(Route {
        network: u128::from(address(destination)?.to_ipv6_mapped()),
        bits: 96 + mask.count_ones(),
        metric: metric.parse().ok()?,
        interface: interface.to_owned(),
    })
}

/// `fd00…00 40 00…00 00 00…00 00000100 00000001 00000000 00000001 eth0`.
fn of_v6(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [destination, bits, _, _, _, metric, _, _, flags, interface] = fields[..] else { return None };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let flags = hex(flags)?;
    (flags & UP != 0 && flags & (REJECT | LOCAL) == 0).then_some(())?;
    let network = Ipv6Addr::from(u128::from_str_radix(destination, 16).ok()?);
    let bits = u32::try_from(hex(bits)?).ok().filter(|bits| *bits <= 128)?;
    Some(Route { network: network.into(), bits, metric: hex(metric)?, interface: interface.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
cni0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
cali7\t0901F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
*\t0002F40A\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const V6: &str = "\
fd000000000000010000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     cni0
fd000000000000010000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
";

    #[test]
    fn the_longest_route_counts_and_of_two_that_with_the_lesser_metric() {
        let routes = Routes::of(V4, V6);
        for (address, interface) in [
            ("10.244.1.7", Some("cni0")),
            ("10.244.1.9", Some("cali7")),
            ("10.244.2.1", Some("eth0")),
            ("8.8.8.8", Some("eth0")),
            ("fd00:0:0:1::7", Some("cni0")),
            ("fd00:0:0:1::1", Some("cni0")),
            ("fd00:0:0:2::1", None),
        ] {
            assert_eq!(routes.interface(address.parse().unwrap()), interface, "{address}");
        }
        assert_eq!(Routes::default().interface("10.0.0.1".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_text_gives_routes_or_none(v4 in "[ -~\n]{0,200}", v6 in "[0-9a-f \n]{0,300}") {
            drop(Routes::of(&v4, &v6));
        }
    }
}
