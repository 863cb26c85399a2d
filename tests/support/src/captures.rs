//! Captures of packets that others have published.

/// What Debian's packages bring: of python3-dpkt, HTTP and DNS, and of golang-github-google-gopacket-dev, DNS from many
/// servers.
pub const OF_DEBIAN: [&str; 3] = [
    "/usr/share/doc/python3-dpkt/examples/data/http.pcap",
    "/usr/share/doc/python3-dpkt/examples/data/dns_icmp.pcap",
    "/usr/share/gocode/src/github.com/google/gopacket/pcap/test_dns.pcap",
];
