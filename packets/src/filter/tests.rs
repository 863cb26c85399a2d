use super::*;
use crate::frame::{Frame, Link};
use crate::generator::segment;
use crate::packet::{View, parse};

/// Whether a segment from 10.0.0.1:40000 to 10.1.0.1:80 meets it.
fn meets(filter: &str) -> bool {
    let bytes = segment(b"x");
    let frame = Frame { bytes: &bytes, length: bytes.len() as u32, time_ns: 0, link: Link::Ethernet };
    let filter: Filter = filter.parse().expect("a filter");
    assert_eq!(filter.to_string().parse(), Ok(filter.clone()), "what is printed is the same filter");
    filter.meets(&parse(&frame, View::Outer).expect("a packet"))
}

#[test]
fn every_condition_says_what_it_says() {
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
        "net 10.0.0.0/15",
        "src net 10.0.0.0/16",
        "net 0.0.0.0/0",
        "not vlan 5 and not vni 7",
        "tcp and port 80 and not host 10.0.0.2",
    ] {
        assert!(meets(met), "{met}");
    }
    for not_met in [
        "udp",
        "port 81",
        "src port 80",
        "src host 10.1.0.1",
        "dst net 10.0.0.0/16",
        "net 11.0.0.0/8",
        "net ::1/128",
        "vlan 5",
        "vni 7",
        "tcp and port 81",
    ] {
        assert!(!meets(not_met), "{not_met}");
    }
}

#[test]
fn of_an_answer_the_sides_are_the_other_way_round() {
    let frame = segment(b"hello");
    let frame = Frame { bytes: &frame, length: 0, time_ns: 0, link: Link::Ethernet };
    let packet = parse(&frame, View::Outer).expect("a packet");
    let back = |filter: &str| filter.parse::<Filter>().expect("a filter").meets_back(&packet);

    assert!(back("src port 80 and dst host 10.0.0.1 and tcp") && back("port 80") && back("not src port 40000"));
    assert!(!back("dst port 80") && !back("src net 10.0.0.0/16") && !back("udp"));
}

#[test]
fn what_is_not_understood_is_said() {
    for (filter, word) in [
        ("tpc", "\"tpc\""),
        ("tcp port 80", "\"port\""),
        ("tcp and", "\"\""),
        ("port", "no port"),
        ("port 65536", "\"65536\" is no port"),
        ("src tcp", "\"tcp\""),
        ("net 10.0.0.0/33", "\"10.0.0.0/33\""),
        ("net fe80::/129", "no address"),
        ("host example", "\"example\""),
    ] {
        let error = filter.parse::<Filter>().expect_err(filter).to_string();
        assert!(error.contains(word), "{filter}: {error}");
    }
    assert_eq!(vec!["tcp"; 33].join(" and ").parse::<Filter>(), Err(FilterError::Long));
}
