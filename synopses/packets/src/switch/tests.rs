use super::programs;
use super::*;
use synopses::cardinality::{Hash, Settings as Common, StHllSettings};

fn key() -> DigestKey {
    DigestKey::new(7)
}

fn text_of(error: Result<Constants, ConstantsError>) -> String {
    error.expect_err("not possible in a switch").to_string()
}

#[test]
fn the_text_has_each_constant_and_their_checksum() {
    let settings = fridge::Settings { slots: 64, probability: 0.5, ..fridge::Settings::default() };
    let constants = programs::fridge(settings, &key()).expect("possible");
    let text = constants.text("A note.\nAnd more.");

    assert!(
        text.starts_with("// A note.\n// And more.\n\n#define TICK_SHIFT 10\nconst bit<32> SLOTS = 0x40;\n"),
        "{text}"
    );
    assert!(text.contains("const bit<33> THRESHOLD = 0x80000000;\nconst key_t MIXER = 0x"), "{text}");
    let last = constants.parameters().pop().expect("a checksum behind the keys");
    assert!(text.ends_with(&format!("const bit<32> CHECKSUM = {last:#x};\n")), "{text}");
}

#[test]
fn keys_and_the_constant_behind_them_give_the_checksum_and_no_others_do() {
    let constants = programs::fridge(fridge::Settings::default(), &key()).expect("possible");
    // What `p4/shared/keys.p4` computes.
    let shown = |parameters: &[u64]| {
        let (checksum, keys) = parameters.split_last().expect("a checksum");
        *checksum as u32 ^ folded(keys.iter().copied())
    };
    let parameters = constants.parameters();

    assert_eq!((parameters.len(), shown(&parameters)), (10, constants.checksum()));
    for at in 0..parameters.len() {
        let mut other = parameters.clone();
        other[at] ^= 1 << 7;
        assert_ne!(shown(&other), constants.checksum(), "parameter {at} is another one");
    }
    for at in 0..parameters.len() - 2 {
        let mut other = parameters.clone();
        other.swap(at, at + 1);
        assert_ne!(shown(&other), constants.checksum(), "keys {at} and {} in each other's place", at + 1);
    }
}

#[test]
fn the_checksum_depends_on_program_settings_and_secret() {
    let sender = finecomb::Settings::one_bank(64, 0.5, 8, 1);
    let of = |settings: &finecomb::Settings, receives, key: &DigestKey| {
        programs::finecomb(settings, receives, key).expect("possible").checksum()
    };
    let all = [
        of(&sender, false, &key()),
        of(&sender, true, &key()),
        of(&sender, false, &DigestKey::new(8)),
        of(&finecomb::Settings { seed: 2, ..sender.clone() }, false, &key()),
        of(&finecomb::Settings { buckets: 65, ..sender.clone() }, false, &key()),
    ];
    let different: std::collections::BTreeSet<_> = all.iter().collect();

    assert_eq!(different.len(), all.len(), "{all:?}");
    assert_eq!(of(&sender, false, &key()), all[0]);
}

#[test]
fn a_program_for_hardware_has_its_own_name_and_words_of_the_key() {
    let kind = DigestKind::Hardware;
    let hardware = DigestKey::of_kind(kind, 7);
    let settings = |seed| fridge::Settings { slots: 64, seed, ..fridge::Settings::default() };
    let constants = programs::fridge(settings(kind.seed(1)), &hardware).expect("possible");

    assert_eq!((constants.program(), constants.folder(), constants.kind()), ("fridge-hardware", "fridge", kind));
    let text = constants.text("A note.");
    assert!(text.starts_with("// A note.\n\n#define HARDWARE_DIGEST 1\n#define TICK_SHIFT 10\n"), "{text}");
    assert!(text.contains("const key_t KEY_13 = ") && !text.contains("SECRET"), "{text}");
    let other = text_of(programs::fridge(settings(1), &hardware));
    assert_eq!(other, "digests of the seed: Products, the program has Hardware, as its key");
    let other = text_of(programs::fridge(settings(kind.seed(1)), &key()));
    assert_eq!(other, "digests of the seed: Hardware, the program has Products, as its key");
    let sender = finecomb::Settings::one_bank(65, 0.5, 8, kind.seed(1));
    let other = text_of(programs::finecomb(&sender, false, &hardware));
    assert_eq!(other, "buckets: 65, a power of two is needed in a switch, such as 64");
}

#[test]
fn several_fridges_are_parts_of_a_table_and_intervals_of_coins() {
    let part = |slots, probability| fridge::FridgeSpec { slots, probability };
    let of = |fridges: &[fridge::FridgeSpec]| {
        let settings = fridge::FridgesSettings { fridges: fridges.to_vec(), ..fridge::FridgesSettings::default() };
        programs::fridges(&settings, &key())
    };
    let text = of(&[part(64, 0.75), part(100, 0.25)]).expect("possible").text("");

    assert!(text.contains("#define FRIDGES 2\nconst bit<32> SLOTS = 0xa4;\nconst bit<32> SLOTS_0 = 0x40;\n"), "{text}");
    let second = "SLOTS_1 = 0x64;\nconst bit<32> BASE_1 = 0x40;\nconst bit<33> BELOW_1 = 0x100000000;\n";
    assert!(text.contains("const bit<33> BELOW_0 = 0xc0000000;\n") && text.contains(second), "{text}");
    assert_eq!(text_of(of(&[part(64, 1.0)])), "fridges: 1, the program has 2 to 4");
    assert_eq!(text_of(of(&[part(64, 0.2); 5])), "fridges: 5, the program has 2 to 4");
    let many = "slots of all fridges: 131073 entries, at most 131072 are possible in a switch";
    assert_eq!(text_of(of(&[part(1 << 16, 0.5), part((1 << 16) + 1, 0.5)])), many);
    let accepted = fridge::FridgesSettings { stamp: fridge::Stamp::Accepted, ..fridge::FridgesSettings::default() };
    let other = text_of(programs::fridges(&accepted, &key()));
    assert_eq!(other, "the stamp of a request: Accepted, the program has Arrivals");
}

#[test]
fn constants_do_not_show_their_secret() {
    let constants = programs::fridge(fridge::Settings { slots: 64, ..fridge::Settings::default() }, &key());
    let shown = format!("{:?}", constants.expect("possible"));

    assert!(shown.starts_with("Constants { program: \"fridge\", checksum: ") && shown.ends_with(", .. }"), "{shown}");
}

#[test]
fn what_does_not_fit_is_refused_with_what_is_possible() {
    let slots = |slots| text_of(programs::fridge(fridge::Settings { slots, ..fridge::Settings::default() }, &key()));
    let many = "slots of a fridge: 262144 entries, at most 131072 are possible in a switch";
    assert_eq!(slots(1 << 18), many);
    assert_eq!(slots(1000), "slots of a fridge: 1000, a power of two is needed in a switch, such as 512");
    assert_eq!(slots(1), "1 slots, from 2 to 16777216 are possible");

    let banks = vec![finecomb::Bank { probability: 0.3, stash: 0, loss: 0.0 }; 2];
    let two = finecomb::Settings { banks, ..finecomb::Settings::one_bank(8, 0.3, 0, 1) };
    assert_eq!(text_of(programs::finecomb(&two, false, &key())), "banks: 2, the program has 1");
    assert_eq!(text_of(programs::lda(&two, &key())), "banks: Nested, the program has Disjoint");

    let common = Common { registers: 64, window_ns: 1 << 25, start_ns: 0, hash: Hash::Seeded(1) };
    let st_hll = |common| text_of(programs::st_hll(StHllSettings::plain(common), &key()));
    let slot = st_hll(Common { window_ns: 1_000_000_000, ..common });
    assert_eq!(slot, "nanoseconds of a slot: 31250000, a power of two is needed in a switch, such as 16777216");
    let few = st_hll(Common { registers: 32, ..common });
    assert_eq!(few, "registers: 32, the program has 64 at least");
    assert_eq!(st_hll(Common { hash: Hash::Ready32, ..common }), "the hash: Ready32, the program has Seeded");
    let later = st_hll(Common { start_ns: 5, ..common });
    assert_eq!(later, "origin and start: [0, 5], the program has both at 0 of the packets' clock");
}
