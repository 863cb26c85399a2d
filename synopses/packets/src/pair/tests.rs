use super::*;
use crate::packet::Transport;

const CLIENT: End = End { address: [1; 16], port: 40_000 };
const SERVER: End = End { address: [2; 16], port: 80 };

fn packet(source: End, destination: End, transport: Transport<'_>) -> Packet<'_> {
    Packet {
        time_ns: 0,
        source,
        destination,
        transport,
        vlan: None,
        network: None,
        identification: 0,
        first_fragment: false,
        segment: &[],
        header_bytes: 20,
    }
}

fn tcp(flags: u8, sequence: u32, acknowledgement: u32, payload: u32) -> Transport<'static> {
    Transport::Tcp(Tcp { sequence, acknowledgement, flags, payload })
}

fn forth(pair: Pair, transport: Transport<'_>) -> Roles {
    pair.roles(&packet(CLIENT, SERVER, transport), &DigestKey::new(1))
}

fn back(pair: Pair, transport: Transport<'_>) -> Roles {
    pair.roles(&packet(SERVER, CLIENT, transport), &DigestKey::new(1))
}

/// Whether `response` answers `request`.
fn answers(request: Roles, response: Roles) -> bool {
    request.request.is_some() && request.request == response.response
}

#[test]
fn a_handshake_is_a_syn_and_what_acknowledges_it() {
    let syn = forth(Pair::Handshake, tcp(Tcp::SYN, u32::MAX, 0, 0));
    let answer = |flags, acknowledgement| back(Pair::Handshake, tcp(flags, 5, acknowledgement, 0));

    // Sequence numbers wrap.
    assert!(answers(syn, answer(Tcp::SYN | Tcp::ACK, 0)));
    assert!(!answers(syn, answer(Tcp::SYN | Tcp::ACK, 1)));
    for flags in [Tcp::ACK, Tcp::RST | Tcp::ACK, Tcp::SYN | Tcp::ACK | Tcp::RST] {
        assert_eq!(answer(flags, 0), Roles::default());
    }
    // The same numbers the other way round are another connection.
    assert!(!answers(back(Pair::Handshake, tcp(Tcp::SYN, u32::MAX, 0, 0)), answer(Tcp::SYN | Tcp::ACK, 0)));
    // Data in a SYN is not counted: it is answered as if it were not there, or not found.
    assert_eq!(forth(Pair::Handshake, tcp(Tcp::SYN, u32::MAX, 0, 100)), syn);
}

#[test]
fn data_is_answered_by_what_acknowledges_its_last_byte() {
    let segment = forth(Pair::Data, tcp(Tcp::ACK, u32::MAX - 9, 77, 100));
    let answer = |flags, number| back(Pair::Data, tcp(flags, 77, number, 0));

    assert!(answers(segment, answer(Tcp::ACK, 90)));
    assert!(!answers(segment, answer(Tcp::ACK, 91)) && !answers(segment, answer(Tcp::ACK, 89)));
    assert_eq!(answer(Tcp::RST | Tcp::ACK, 90), Roles::default());
    assert!(answers(forth(Pair::Data, tcp(Tcp::ACK | Tcp::FIN, 0, 0, 10)), answer(Tcp::ACK, 11)));
    // A segment without payload asks for nothing; one with payload may answer, too.
    assert_eq!(forth(Pair::Data, tcp(Tcp::ACK | Tcp::FIN, 0, 0, 0)).request, None);
    let both = back(Pair::Data, tcp(Tcp::ACK, 77, 90, 5));
    assert!(answers(segment, both) && answers(both, forth(Pair::Data, tcp(Tcp::ACK, 90, 82, 0))));
}

#[test]
fn a_flow_is_ended_by_either_side() {
    let syn = forth(Pair::Flow, tcp(Tcp::SYN, 1, 0, 0));

    for flags in [Tcp::FIN | Tcp::ACK, Tcp::RST, Tcp::RST | Tcp::ACK] {
        assert!(
            answers(syn, back(Pair::Flow, tcp(flags, 9, 9, 0))) && answers(syn, forth(Pair::Flow, tcp(flags, 9, 9, 0)))
        );
    }
    assert_eq!(back(Pair::Flow, tcp(Tcp::SYN | Tcp::ACK, 1, 1, 0)), Roles::default());
    assert_eq!(forth(Pair::Flow, tcp(Tcp::ACK, 1, 1, 50)), Roles::default());
}

#[test]
fn dns_is_told_by_its_bit_and_its_transaction() {
    let message = |flags, port_from, port_to| {
        let payload: &[u8] = if flags == 0 { &[7, 8, 1, 0] } else { &[7, 8, 0x81, 0] };
        let udp = Transport::Udp(Udp { payload, length: 29 });
        let (from, to) = (End { port: port_from, ..CLIENT }, End { port: port_to, ..SERVER });
        let (from, to) =
            if flags == 0 { (from, to) } else { (End { port: port_from, ..SERVER }, End { port: port_to, ..CLIENT }) };
        Pair::Dns.roles(&packet(from, to, udp), &DigestKey::new(1))
    };

    assert!(answers(message(0, 999, 53), message(1, 53, 999)));
    assert!(!answers(message(0, 999, 53), message(1, 53, 998)));
    assert_eq!(message(0, 999, 54), Roles::default());
    assert_eq!(message(1, 54, 999), Roles::default());
    for udp in [Udp { payload: &[7, 8], length: 29 }, Udp { payload: &[7, 8, 0], length: 11 }] {
        let packet = packet(CLIENT, End { port: 53, ..SERVER }, Transport::Udp(udp));
        assert_eq!(Pair::Dns.roles(&packet, &DigestKey::new(1)), Roles::default());
    }
}

#[test]
fn ntp_is_told_by_mode_and_timestamp() {
    let (mut question, mut reply) = ([0; 48], [0; 48]);
    (question[0], reply[0]) = (0x23, 0x24);
    question[40..].fill(9);
    reply[24..32].fill(9);
    let (client, server) = (CLIENT, End { port: 123, ..SERVER });
    let roles = |from, to, payload: &[u8]| {
        let udp = Transport::Udp(Udp { payload, length: 48 });
        Pair::Ntp.roles(&packet(from, to, udp), &DigestKey::new(1))
    };

    assert!(answers(roles(client, server, &question), roles(server, client, &reply)));
    assert_eq!(roles(client, server, &question[..47]), Roles::default());
    assert_eq!(roles(server, client, &question), Roles::default());
    reply[24] = 8;
    assert!(!answers(roles(client, server, &question), roles(server, client, &reply)));
}

#[test]
fn pairs_do_not_answer_each_other_and_have_names() {
    // The number of the handshake is 0, as that of any flow.
    let syn = tcp(Tcp::SYN, u32::MAX, 0, 0);

    assert_ne!(forth(Pair::Handshake, syn).request, forth(Pair::Flow, syn).request);
    assert_eq!(forth(Pair::Dns, syn), Roles::default());
    assert!(Pair::ALL.into_iter().all(|pair| Pair::of_name(pair.name()) == Some(pair)));
    assert_eq!(Pair::of_name("nothing"), None);
}

#[test]
fn offloads_harm_the_one_pair_that_is_of_every_segment() {
    let harmed: Vec<_> = Pair::ALL.into_iter().filter(|pair| pair.is_affected_by_offloads()).collect();
    assert_eq!(harmed, [Pair::Data]);
}
