use super::*;
use crate::frame::{Frame, Link};
use crate::generator::segment;
use crate::packet::{View, parse};

/// Whether the filter matches a segment from 10.0.0.1:40000 to 10.1.0.1:80.
fn matches(filter: &str) -> bool {
    let bytes = segment(b"x");
    let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
    let filter: Filter = filter.parse().expect("a filter");
    assert_eq!(filter.to_string().parse(), Ok(filter.clone()), "what is printed is the same filter");
    filter.matches(&parse(&frame, View::Outer).expect("a packet"))
}

#[test]
fn every_condition_matches_what_it_names() {
    for met in [
        "",
        "tcp",
        "not udp",
        "port 80",
        "port 40000",
        "dst port 80",
        "not src port 80",
        "host 10.0.0.1",
        "host ::ffff:10.0.0.1",
        "dst host 10.1.0.1",
        "src host 10.0.0.9,10.0.0.1,::1",
        "host 10.0.0.1,10.0.0.1",
        "not dst host 10.0.0.1,10.0.0.2",
        "net 10.0.0.0/15",
        "src net 10.0.0.0/16",
        "net 0.0.0.0/0",
        "not vlan 5 and not vni 7",
        "tcp and port 80 and not host 10.0.0.2",
    ] {
        assert!(matches(met), "{met}");
    }
    for not_met in [
        "udp",
        "port 81",
        "src port 80",
        "src host 10.1.0.1",
        "src host 10.1.0.1,10.1.0.2",
        "dst net 10.0.0.0/16",
        "net 11.0.0.0/8",
        "net ::1/128",
        "vlan 5",
        "vni 7",
        "tcp and port 81",
    ] {
        assert!(!matches(not_met), "{not_met}");
    }
}

#[test]
fn for_replies_source_and_destination_are_exchanged() {
    let frame = segment(b"hello");
    let frame = Frame { bytes: &frame, length: 0, time_ns: 0, link: Link::Ethernet };
    let packet = parse(&frame, View::Outer).expect("a packet");
    let reply = |filter: &str| filter.parse::<Filter>().expect("a filter").matches_reply(&packet);

    assert!(reply("src port 80 and dst host 10.0.0.1 and tcp") && reply("port 80") && reply("not src port 40000"));
    assert!(!reply("dst port 80") && !reply("src net 10.0.0.0/16") && !reply("udp"));
}

#[test]
fn a_filter_error_names_the_invalid_word() {
    for (filter, word) in [
        ("tpc", "\"tpc\""),
        ("tcp port 80", "\"port\""),
        ("tcp and", "\"\""),
        ("port", "invalid port \"\""),
        ("port 65536", "invalid port \"65536\""),
        ("src tcp", "\"tcp\""),
        ("net 10.0.0.0/33", "\"10.0.0.0/33\""),
        ("net fe80::/129", "invalid address or network"),
        ("host example", "\"example\""),
        ("host 10.0.0.1,", "invalid address \"\""),
        ("host 10.0.0.1,10.0.0.0/8", "invalid address \"10.0.0.0/8\""),
    ] {
        let error = filter.parse::<Filter>().expect_err(filter).to_string();
        assert!(error.contains(word), "{filter}: {error}");
    }
    assert_eq!(vec!["tcp"; 33].join(" and ").parse::<Filter>(), Err(FilterError::Long));
    let hosts = |count| (0..count).map(|host| format!("10.0.{}.{}", host / 256, host % 256)).collect::<Vec<_>>();
    assert!(format!("host {}", hosts(MAX_HOSTS).join(",")).parse::<Filter>().is_ok());
    let many = format!("host {}", hosts(MAX_HOSTS + 1).join(","));
    assert_eq!(many.parse::<Filter>(), Err(FilterError::Hosts(MAX_HOSTS + 1)));
}
