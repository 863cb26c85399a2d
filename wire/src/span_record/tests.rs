//! Records that are written and read, and those that are none.

use proptest::prelude::*;

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
fn long_texts_are_cut_at_a_character_and_notes_that_do_not_fit_are_counted() {
    let mut notes = Notes::default();
    let long = "ä".repeat(200);
    notes.text(Tag::Name, "", &long);
    notes.display(Tag::Text, "printed", format_args!("a{long}"));
    notes.integer(&"k".repeat(KEY_BYTES + 1), 1);
    notes.text(Tag::Text, "no room", &long);

    let record = read(&notes);

    assert_eq!(record.name(), "ä".repeat(TEXT_BYTES / 2));
    let printed = format!("a{}", "ä".repeat((TEXT_BYTES - 1) / 2));
    assert_eq!(record.notes().nth(1), Some(Note::Text("printed", &printed)));
    assert_eq!((record.notes().count(), record.left_out()), (2, 2));
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

    let mut full = Notes::default();
    (0..9).for_each(|at| full.integer(&format!("{at}").repeat(43), at));
    full.event("no room", UnixNanos(1));
    assert_eq!((read(&full).events().count(), read(&full).notes().count(), full.left_out()), (0, 8, 2));
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
        }
    }
}
