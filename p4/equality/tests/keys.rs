//! Keys that a control plane sets in a program that runs: the program goes on with them, and says another checksum
//! unless it was given the constant that belongs to them.

use equality::control::Local;
use equality::fragment::POSITION;
use equality::frames::{AGENT_PORT, Frames};
use equality::interpreter::Machine;
use equality::programs::Subject;
use equality::traffic::Traffic;
use equality::{finecomb, fragment, fridge, fridges, lda, precision, reordering, sthll, tspcsa};
use packets::Pair;
use packets::switch::readout::{FridgeReadout, Reading};
use packets::switch::registers::SwitchRegisters as _;
use packets::switch::{Constants, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::fridge::Fridge;

const SECOND: u64 = 1_000_000_000;

/// Another secret than that of the compiled programs.
fn key(kind: DigestKind) -> DigestKey {
    DigestKey::of_kind(kind, 5)
}

/// The constants of every program with digests of this kind and another secret.
fn others_of(kind: DigestKind) -> [Constants; 12] {
    let (key, path) = (key(kind), fragment::path(kind).expect("a path"));
    let (handshakes, flows) = (fridge::settings_of(kind), sthll::settings_of(kind));
    let buckets = finecomb::of_kind(finecomb::settings(), kind);
    [
        programs::fridge(handshakes, &key),
        programs::fridges(&fridges::settings_of(kind), &key),
        programs::finecomb(&buckets, false, &key),
        programs::finecomb(&buckets, true, &key),
        programs::st_hll(flows, &key),
        programs::fragment(fragment::settings_of(kind), &path, POSITION, &key),
        programs::samples(reordering::of_kind(reordering::sampling(), kind), &key),
        programs::heavy_flows(reordering::of_kind(reordering::hybrid(), kind), &key),
        programs::precision(precision::settings_of(kind), &key),
        programs::lda(&finecomb::of_kind(lda::settings(), kind), &key),
        programs::ts_pcsa(tspcsa::settings_of(kind), &key),
        programs::together(handshakes, &buckets, flows, &key),
    ]
    .map(|constants| constants.expect("settings of the tested program"))
}

/// Those with digests of either kind.
fn others() -> impl Iterator<Item = Constants> {
    [DigestKind::Products, DigestKind::Hardware].into_iter().flat_map(others_of)
}

/// The constants that a program was compiled with.
fn own(subject: &Subject) -> Constants {
    (subject.constants)(subject.kind).expect("settings of the tested program")
}

fn subject(constants: &Constants) -> &'static Subject {
    Subject::of_name(constants.program()).expect("a program")
}

fn machine(subject: &Subject) -> Machine {
    Machine::new(subject.load().expect("a compiled program").into())
}

/// The register `constants` after a frame that is refused: none is too short for it.
fn shown(machine: &mut Machine) -> u32 {
    machine.process(AGENT_PORT, 0, b"").expect("a frame");
    let arrays = machine.program().registers().iter();
    let name = arrays.map(|array| &array.name).find(|name| name.ends_with(".constants")).expect("every program has it");
    machine.registers(name).expect("an array of the program")[0] as u32
}

fn set(machine: &mut Machine, parameters: &[u64]) {
    machine.set_default("Keys.keys", parameters).expect("as many parameters as the program has");
}

#[test]
fn each_program_says_the_checksum_of_its_constants_and_keys() {
    for other in others() {
        let mut machine = machine(subject(&other));
        let own = own(subject(&other));
        assert_eq!(shown(&mut machine), own.checksum(), "{}", other.program());

        set(&mut machine, &other.parameters());
        assert_eq!(shown(&mut machine), other.checksum(), "{}, with other keys", other.program());
    }
}

#[test]
fn a_key_without_the_checksum_that_belongs_to_it_is_found_out_whichever_it_is() {
    for other in others() {
        let mut machine = machine(subject(&other));
        let own = own(subject(&other));
        let parameters = own.parameters();
        for at in 0..parameters.len() {
            let mut changed = parameters.clone();
            changed[at] ^= 1;
            set(&mut machine, &changed);
            assert_ne!(shown(&mut machine), own.checksum(), "{}, parameter {at}", other.program());
        }
        let mut keys = other.parameters();
        let (first, last) = parameters.last().zip(keys.last_mut()).expect("a checksum behind the keys");
        *last = *first;
        set(&mut machine, &keys);
        let shown = shown(&mut machine);
        assert!(![own.checksum(), other.checksum()].contains(&shown), "{}: {shown:#x}", other.program());
    }
}

#[test]
fn an_agent_refuses_a_switch_whose_keys_were_set_without_their_checksum_and_reads_it_with_it() {
    let [constants, ..] = others_of(DigestKind::Products);
    let mut readout = FridgeReadout::new(&constants, SECOND).expect("constants of a fridge");
    let mut machine = machine(subject(&constants));
    let mut parameters = constants.parameters();
    let mut poll = |machine: &mut Machine| {
        shown(machine);
        let mut switch = Local(machine, "fridge");
        let (fridge, frames) = (switch.fridge().expect("a fridge"), switch.frames().expect("frames"));
        readout.read(&frames, &fridge, SECOND)
    };

    let last = parameters.last_mut().expect("a checksum behind the keys");
    *last ^= 1;
    set(&mut machine, &parameters);
    let refused = poll(&mut machine).expect_err("another checksum").to_string();
    assert!(refused.contains("fridge with the agent's constants has 0x"), "{refused}");

    set(&mut machine, &constants.parameters());
    assert_eq!(poll(&mut machine), Ok(Reading::Begun));
}

#[test]
fn a_program_goes_on_with_the_keys_that_were_set() {
    let [constants, ..] = others_of(DigestKind::Products);
    let mut machine = machine(subject(&constants));
    set(&mut machine, &constants.parameters());
    let mut fridge = Fridge::new(fridge::settings()).expect("settings of the tested program");
    let mut frames = Frames::new(&constants);
    for captured in Traffic::new(41, 0.0).take(2_000) {
        machine.process(AGENT_PORT, 0, &captured.replayed()).expect("a frame");
        let Some(packet) = frames.count(&captured) else { continue };
        let roles = Pair::Handshake.roles(&packet, &key(DigestKind::Products));
        if let Some(digest) = roles.request {
            fridge.insert(digest, captured.time_ns);
        }
        if let Some(digest) = roles.response {
            let _ = fridge.match_response(digest, captured.time_ns);
        }
    }

    let counts = Local(&machine, "fridge").fridge_counts().expect("a fridge");
    let expected = fridge.tally();
    // With another key, other requests share a slot.
    assert_eq!([counts.evicted, counts.matched].map(u64::from), [expected.evicted, expected.matched]);
    assert!(counts.evicted > 20 && counts.matched > 20, "{counts:?}");
}
