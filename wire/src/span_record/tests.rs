//! Records that are written and read, and those that are none.

use proptest::prelude::*;

use super::events::EVENT_HEAD;
use super::*;

const TRACE: NonZeroU128 = NonZeroU128::new(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10).unwrap();

fn head() -> Head {
    let span = NonZeroU64::new(7).unwrap();
    let (start, end) = (UnixNanos(5), UnixNanos(11));
    Head { trace: TRACE, span, parent: NonZeroU64::new(9), kind: 2, status: Status::Error, start, end }
}

fn read(notes: &Notes) -> Record {
    let mut words = [u64::MAX; RECORD_WORDS];
    let used = notes.span(&head(), &mut words);
    words[used..].fill(0xdead);
    Record::decode(&words).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "GET /pay");
    notes.text(Tag::Text, "user", "mäx");
    notes.integer("n", -3);
    notes.float("x", 0.5);
    notes.bool("b", true);
    notes.display(Tag::Message, "", format_args!("{} failed", 3));

    let record = read(&notes);

    assert_eq!(record.subject, Subject::Span(head()));
    assert_eq!(record.name(), "GET /pay");
    let expected = [
        Note::Name("GET /pay"),
        Note::Text("user", "mäx"),
        Note::Integer("n", -3),
        Note::Float("x", 0.5),
        Note::Bool("b", true),
        Note::Message("3 failed"),
    ];
    assert_eq!(record.notes().collect::<Vec<_>>(), expected);
}

#[test]
fn all_notes_are_added_to_others_with_what_did_not_fit_among_them() {
    let mut late = Notes::default();
    late.text(Tag::Name, "", "GET /{id}");
    late.text(Tag::Text, "user", "mäx");
    late.integer("n", -3);
    late.float("x", 0.5);
    late.bool("b", true);
    late.text(Tag::Message, "", "failed");
    late.text(Tag::State, "", "ot=th:8");
    late.integer(&"k".repeat(KEY_BYTES + 1), 1);
    late.event("passed over", UnixNanos(6));
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "GET");

    notes.add_all(&late);

    let record = read(&notes);
    let (first, rest) = (record.notes().next(), record.notes().skip(1));
    assert_eq!(first, Some(Note::Name("GET")));
    assert_eq!(rest.collect::<Vec<_>>(), late.notes().collect::<Vec<_>>());
    assert_eq!((record.notes().count(), record.events().count(), record.left_out()), (8, 0, 1));
}

/// All that a record with `notes` says.
fn told(notes: &Notes) -> String {
    let record = read(notes);
    let attributes: Vec<Vec<_>> = (0..4).map(|event| record.event_attributes(event).collect()).collect();
    let (notes, events) = (record.notes().collect::<Vec<_>>(), record.events().collect::<Vec<_>>());
    format!("{notes:?} {events:?} {attributes:?} {}", record.left_out())
}

#[test]
fn a_copy_has_what_the_original_has_and_nothing_of_what_was_there_before() {
    let mut before = Notes::default();
    before.text(Tag::Name, "", &"before".repeat(20));
    before.event("happened before", UnixNanos(5));
    describe(&mut before, &[Note::Text("of", "before")]);
    before.integer(&"k".repeat(KEY_BYTES + 1), 1);
    let mut eventful = Notes::default();
    eventful.text(Tag::Name, "", "GET /pay");
    eventful.event("retried", UnixNanos(6));
    describe(&mut eventful, &[Note::Integer("attempt", 2)]);
    eventful.event("given up", UnixNanos(7));
    let mut short = Notes::default();
    short.text(Tag::Name, "", "GET");

    for original in [before.clone(), eventful, short] {
        let (mut copy, mut original) = (before.clone(), original);
        copy.copy_from(&original);
        assert_eq!(told(&copy), told(&original));
        // Both go on alike.
        for notes in [&mut copy, &mut original] {
            notes.event("later", UnixNanos(9));
            describe(notes, &[Note::Bool("b", true)]);
            notes.integer("n", -3);
        }
        assert_eq!(told(&copy), told(&original));
    }
}

#[test]
fn long_texts_are_cut_at_a_character_and_notes_that_do_not_fit_are_counted() {
    let mut notes = Notes::default();
    let long = "ä".repeat(200);
    notes.text(Tag::Name, "", &long);
    notes.display(Tag::Text, "printed", format_args!("a{long}"));
    notes.integer(&"k".repeat(KEY_BYTES + 1), 1);
    notes.text(Tag::Message, &"k".repeat(KEY_BYTES + 1), "x");
    notes.text(Tag::Text, "no room", &long);

    let record = read(&notes);

    assert_eq!(record.name(), "ä".repeat(TEXT_BYTES / 2));
    let printed = format!("a{}", "ä".repeat((TEXT_BYTES - 1) / 2));
    assert_eq!(record.notes().nth(1), Some(Note::Text("printed", &printed)));
    assert_eq!((record.notes().count(), record.left_out()), (2, 3));
}

#[test]
fn events_are_read_in_their_order_whatever_is_noted_between_them() {
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "GET /pay");
    notes.event("cache miss", UnixNanos(6));
    notes.integer("n", -3);
    notes.event("", UnixNanos(7));
    notes.event("wiederholt: mäx", UnixNanos(u64::MAX));
    notes.bool("b", true);

    let record = read(&notes);

    let expected = [(6, "cache miss"), (7, ""), (u64::MAX, "wiederholt: mäx")];
    let expected = expected.map(|(at, name)| Event { at: UnixNanos(at), name });
    assert_eq!(record.events().collect::<Vec<_>>(), expected);
    assert_eq!((record.notes().count(), record.left_out()), (3, 0));
    notes.clear();
    assert_eq!((read(&notes).events().count(), read(&notes).notes().count()), (0, 0));
}

#[test]
fn events_leave_half_of_the_room_to_notes_and_what_does_not_fit_is_counted() {
    let mut notes = Notes::default();
    for at in 0..40 {
        notes.event("something happened", UnixNanos(at));
    }
    notes.text(Tag::Text, "long", &"ä".repeat(200));
    notes.text(Tag::Text, "short", &"x".repeat(35));
    notes.text(Tag::Text, "too long", &"x".repeat(10));
    notes.event("x", UnixNanos(1));

    let record = read(&notes);

    // 27 bytes each.
    assert_eq!((record.events().count(), record.notes().count(), record.left_out()), (8, 2, 34));
    assert!(record.events().map(|event| event.at.0).eq(0..8));

    assert!(notes.is_full());
    notes.clear();
    assert!(!notes.is_full());

    let mut full = Notes::default();
    (0..9).for_each(|at| full.integer(&format!("{at}").repeat(43), at));
    full.event("no room", UnixNanos(1));
    assert_eq!((read(&full).events().count(), read(&full).notes().count(), full.left_out()), (0, 8, 2));
}

/// Adds `attributes` to the event that came last.
fn describe(notes: &mut Notes, attributes: &[Note<'_>]) {
    let mut event = notes.last_event().expect("the event was not left out");
    for attribute in attributes {
        event.add(*attribute);
    }
}

#[test]
fn attributes_of_events_are_read_with_their_event_whatever_comes_between_them() {
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "GET /pay");
    assert!(notes.last_event().is_none(), "nothing has happened yet");
    notes.event("cache miss", UnixNanos(6));
    let first = [Note::Text("key", "mäx"), Note::Integer("size", -3)];
    describe(&mut notes, &first[..1]);
    notes.bool("b", true);
    describe(&mut notes, &first[1..]);
    notes.event("retried", UnixNanos(7));
    notes.event("given up", UnixNanos(8));
    let last = [Note::Float("after", 0.5), Note::Bool("late", true), Note::Bool("", false)];
    describe(&mut notes, &last);

    let record = read(&notes);

    let names: Vec<_> = record.events().map(|event| event.name).collect();
    assert_eq!(names, ["cache miss", "retried", "given up"]);
    let of = |event| record.event_attributes(event).collect::<Vec<_>>();
    assert_eq!([of(0), of(1), of(2), of(3)], [first.to_vec(), vec![], last.to_vec(), vec![]]);
    assert_eq!((record.notes().count(), record.left_out()), (2, 0));
    notes.clear();
    assert!(notes.last_event().is_none());
    assert_eq!(read(&notes).event_attributes(0).count(), 0);
}

/// The events as a reader of before finds them, which knows no attributes of theirs; `None` if it refuses the record.
fn read_before(words: &[u64; RECORD_WORDS]) -> Option<Vec<(u64, String)>> {
    let [_, _, _, event_words, low, high, ..] = words[0].to_le_bytes();
    let begin = HEAD_WORDS + usize::from(u16::from_le_bytes([low, high])).div_ceil(8);
    let of_events = words.get(begin..begin + usize::from(event_words))?;
    let bytes: Vec<u8> = of_events.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while rest.len() >= 9 {
        let (head, after) = rest.split_at(9);
        let (name, after) = after.split_at_checked(head[0].into())?;
        events.push((u64::from_le_bytes(head[1..].try_into().ok()?), String::from_utf8(name.to_vec()).ok()?));
        rest = after;
    }
    Some(events)
}

#[test]
fn a_reader_of_before_passes_over_attributes_of_events_and_they_are_found_wherever_a_word_ends() {
    for length in 0..24 {
        let mut notes = Notes::default();
        notes.text(Tag::Name, "", "GET /pay");
        notes.event(&"n".repeat(length), UnixNanos(6));
        notes.event("b", UnixNanos(7));
        let attribute = Note::Text("why", &"a reason that has several words"[..length]);
        describe(&mut notes, &[attribute]);
        let mut words = [u64::MAX; RECORD_WORDS];
        let used = notes.span(&head(), &mut words);

        let record = Record::decode(&words).unwrap();

        let expected = vec![(6, "n".repeat(length)), (7, "b".to_owned())];
        assert_eq!(record.events().map(|event| (event.at.0, event.name.to_owned())).collect::<Vec<_>>(), expected);
        assert_eq!(record.event_attributes(1).collect::<Vec<_>>(), [attribute], "{length}");
        assert_eq!(read_before(&words), Some(expected), "{length}");
        // Name, two events with the byte after them, the attribute.
        assert_eq!(used, HEAD_WORDS + 2 + (9 + length + 10 + 1).div_ceil(8) + (4 + 3 + length).div_ceil(8));
    }
}

#[test]
fn attributes_of_events_share_their_half_and_go_with_an_event_that_is_left_out() {
    let mut notes = Notes::default();
    for at in 0..40 {
        notes.event("e", UnixNanos(at));
        if let Some(mut event) = notes.last_event() {
            event.add(Note::Integer("n", at as i64));
        }
    }
    let mut printed = Notes::default();
    printed.integer("n", 7);
    printed.integer(&"k".repeat(KEY_BYTES + 1), 7);
    printed.text(Tag::Message, "", "no attribute");

    let record = read(&notes);

    // 10 and 13 bytes: of the tenth event only its name fits, and nothing of the others.
    assert_eq!((record.events().count(), record.left_out()), (10, 31));
    for event in 0..9 {
        assert_eq!(record.event_attributes(event).collect::<Vec<_>>(), [Note::Integer("n", event as i64)]);
    }
    assert_eq!(record.event_attributes(9).count(), 0);
    let mut notes = Notes::default();
    notes.event("e", UnixNanos(1));
    notes.last_event().expect("there is room").add_all(&printed);
    assert_eq!((read(&notes).event_attributes(0).count(), notes.left_out()), (1, 1));
}

#[test]
fn the_last_events_give_way_to_a_name_a_message_and_a_state_but_not_to_attributes() {
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "GET /pay");
    notes.text(Tag::Text, "user", &"x".repeat(160));
    for at in 0..40 {
        notes.event("something happened", UnixNanos(at));
        if let Some(mut event) = notes.last_event() {
            event.add(Note::Integer("n", at as i64));
        }
    }
    notes.text(Tag::State, "", "ot=rv:0123456789abcd");
    // 27 and 13 bytes each, and 204 of notes.
    assert_eq!((read(&notes).events().count(), notes.left_out()), (5, 35));

    notes.text(Tag::Message, "", &"m".repeat(60));
    assert_eq!((read(&notes).events().count(), notes.left_out()), (4, 37), "one, and its attribute");
    assert!(notes.last_event().is_none());
    notes.text(Tag::Text, "late", &"x".repeat(100));
    assert_eq!((read(&notes).events().count(), notes.left_out()), (4, 38));
    notes.text(Tag::Name, "", "GET /{id}");
    notes.event("later", UnixNanos(3));
    describe(&mut notes, &[Note::Integer("n", 3)]);

    let record = read(&notes);
    assert_eq!((record.name(), record.notes().count(), record.left_out()), ("GET /{id}", 5, 40));
    assert_eq!(record.events().map(|event| event.at.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(record.events().last().map(|event| event.name), Some("later"));
    for event in 0..4 {
        assert_eq!(record.event_attributes(event).collect::<Vec<_>>(), [Note::Integer("n", event as i64)]);
    }
}

#[test]
fn events_stay_where_a_message_would_not_fit_without_them() {
    let mut notes = Notes::default();
    for key in ["a", "b"] {
        notes.text(Tag::Text, key, &"x".repeat(160));
    }
    notes.event("e", UnixNanos(1));

    notes.text(Tag::Message, "", &"m".repeat(160));

    assert_eq!((read(&notes).events().count(), read(&notes).notes().count(), notes.left_out()), (1, 2, 1));
    notes.text(Tag::Message, "", &"m".repeat(110));
    assert_eq!((read(&notes).events().count(), read(&notes).notes().count(), notes.left_out()), (0, 3, 2));
}

#[test]
fn attributes_of_events_that_are_none_are_refused() {
    let mut notes = Notes::default();
    notes.event("name", UnixNanos(5));
    describe(&mut notes, &[Note::Bool("b", true)]);
    let mut words = [0; RECORD_WORDS];
    notes.span(&head(), &mut words);
    let changed = |word: usize, to: u64| {
        let mut words = words;
        words[word] = to;
        Record::decode(&words).map(|record| record.event_attributes(0).count())
    };
    let (last, attribute) = (HEAD_WORDS + 1, HEAD_WORDS + 2);

    assert_eq!(changed(last, words[last]), Ok(1));
    assert_eq!(changed(attribute, 0), Ok(0), "zeros are none");
    // A tag that only notes have, a key and a value that reach beyond, and more words than there are.
    assert_eq!(changed(attribute, words[attribute] | 0x01 << 8), Err(RecordError::Note(16)));
    assert_eq!(changed(attribute, words[attribute] | 0xff << 16), Err(RecordError::Note(16)));
    assert_eq!(changed(attribute, words[attribute] | 0xff << 24), Err(RecordError::Note(16)));
    assert_eq!(changed(last, words[last] | 0xff << 56), Err(RecordError::Length(16 + 8 * 255)));
}

#[test]
fn events_that_are_none_are_refused() {
    let mut notes = Notes::default();
    notes.text(Tag::Name, "", "abc");
    notes.event("a name", UnixNanos(5));
    let mut words = [0; RECORD_WORDS];
    notes.span(&head(), &mut words);
    let changed = |word: usize, to: u64| {
        let mut words = words;
        words[word] = to;
        Record::decode(&words).map(|record| record.events().count())
    };

    assert_eq!(changed(HEAD_WORDS, words[HEAD_WORDS]), Ok(1));
    // Its length, its text, and more words of events than there are.
    assert_eq!(changed(HEAD_WORDS + 1, words[HEAD_WORDS + 1] | 0xff), Err(RecordError::Note(8)));
    assert_eq!(changed(HEAD_WORDS + 2, u64::MAX), Err(RecordError::Note(8)));
    assert_eq!(changed(0, words[0] | 0xff << 24), Err(RecordError::Length(8 + 8 * 255)));
}

#[test]
fn a_request_to_keep_a_trace_has_its_id_and_the_reason() {
    let (mut notes, mut words) = (Notes::default(), [0; RECORD_WORDS]);
    notes.text(Tag::Name, "", "a refund");
    notes.keep(TRACE, &mut words);

    let record = Record::decode(&words).unwrap();

    assert_eq!((record.subject, record.name()), (Subject::Keep(TRACE), "a refund"));
}

#[test]
fn what_is_no_record_is_named() {
    let mut words = [0; RECORD_WORDS];
    Notes::default().span(&head(), &mut words);
    let changed = |word: usize, to: u64| {
        let mut words = words;
        words[word] = to;
        Record::decode(&words).unwrap_err()
    };

    assert_eq!(changed(0, 9), RecordError::Kind(9, 0, 0));
    assert_eq!(changed(0, 0x06_01), RecordError::Kind(1, 6, 0));
    assert_eq!(changed(0, 0x03_00_01), RecordError::Kind(1, 0, 3));
    assert_eq!(changed(3, 0), RecordError::Id);
    assert_eq!(changed(0, 1 | (449 << 32)), RecordError::Length(449));
    assert_eq!(changed(0, 1 | (3 << 32)), RecordError::Note(0));
}

proptest! {
    #[test]
    fn any_words_are_a_record_or_an_error(
        kind in 0_u64..4,
        length in 0_u64..460,
        events in 0_u64..60,
        words in prop::collection::vec(any::<u64>(), RECORD_WORDS),
    ) {
        let mut words: [u64; RECORD_WORDS] = words.try_into().unwrap();
        words[0] = (words[0] & 0xff00) | kind | (events << 24) | (length << 32);
        if let Ok(record) = Record::decode(&words) {
            prop_assert!(record.notes().count() <= NOTES_BYTES / NOTE_HEAD);
            prop_assert!(record.events().count() <= NOTES_BYTES / EVENT_HEAD);
            let attributes = (0..=255).map(|event| record.event_attributes(event).count());
            prop_assert!(attributes.sum::<usize>() <= NOTES_BYTES / NOTE_HEAD);
        }
    }
}
