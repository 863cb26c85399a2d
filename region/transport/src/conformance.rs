//! The conformance suite of [`RegionReader`]: tests that are generic over the reader.
//!
//! A backend implements [`Service`] for the service side of its tests, and calls
//! [`on_every_backend!`](crate::on_every_backend) in a test module: each function here becomes a test. Nothing in the
//! suite depends on one backend; a new backend passes it unchanged.

use wire::id::RegionId;
use wire::layout::{Header, RegionSize, Slot};

use crate::fetch::{Access, AttachError, FetchStatus, RegionBuffer, RegionError, RegionReader};
use crate::runs::Runs;

/// The service side: a region that is written while it is read.
pub trait Service {
    /// A new region of `size` with a header at generation 1 and zero slots.
    fn create(size: RegionSize) -> Self;
    /// Writes a slot, as a service does.
    fn store(&self, slot: Slot, value: u64);
    /// Raises the heartbeat.
    fn beat(&self);
    /// The access by which a reader attaches it. May be called more than once.
    fn access(&self) -> Access;
}

fn two_pages() -> RegionSize {
    RegionSize::new(8192).expect("two pages are a size")
}

fn buffer(region: u64, size: RegionSize) -> RegionBuffer {
    RegionBuffer::new(RegionId(region), size)
}

fn attach(reader: &mut impl RegionReader, region: u64, size: RegionSize, service: &impl Service) {
    reader.attach(RegionId(region), size, service.access()).expect("a good region is attached");
}

fn fetch(reader: &mut impl RegionReader, batch: &mut [RegionBuffer]) {
    reader.fetch(batch).expect("the transport works");
}

/// A fetch reads the whole region: header, first slot, last slot.
pub fn a_fetched_region_is_the_whole_of_it<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(two_pages());
    let last = Slot(two_pages().slots() - 1);
    service.store(Slot(0), 11);
    service.store(last, u64::MAX);
    service.beat();
    attach(&mut reader, 1, two_pages(), &service);
    let mut batch = [buffer(1, two_pages())];

    fetch(&mut reader, &mut batch);

    assert_eq!(batch[0].status, FetchStatus::Fetched);
    assert!(Header::decode(&batch[0].words).is_ok_and(|header| header.heartbeat == 1));
    assert_eq!(batch[0].words[Slot(0).word()], 11);
    assert_eq!(batch[0].words[last.word()], u64::MAX);
    let untouched = &batch[0].words[Slot(1).word()..last.word()];
    assert!(untouched.iter().all(|word| *word == 0));
}

/// A shorter buffer gets the first words of its region and does not affect other buffers of the batch.
pub fn a_region_is_fetched_as_far_as_its_buffer_is_long<S: Service>(mut reader: impl RegionReader) {
    let services = [S::create(two_pages()), S::create(two_pages())];
    for (id, service) in (1..).zip(&services) {
        (0..700).for_each(|slot| service.store(Slot(slot), id * 1000 + u64::from(slot)));
        attach(&mut reader, id, two_pages(), service);
    }
    // As far as slot 2, within the second page, and the header's first word.
    let lengths = [Slot(3).word(), Slot(600).word(), 1];
    let mut batch = [(1, lengths[0]), (2, lengths[1]), (1, lengths[2]), (2, 1024)]
        .map(|(region, words)| RegionBuffer::for_first(RegionId(region), words));

    fetch(&mut reader, &mut batch);

    for (buffer, words) in batch.iter().zip([lengths[0], lengths[1], lengths[2], 1024]) {
        assert_eq!((&buffer.status, buffer.words.len()), (&FetchStatus::Fetched, words));
        for slot in (0..700).take_while(|slot| Slot(*slot).word() < words) {
            assert_eq!(buffer.words[Slot(slot).word()], buffer.region.0 * 1000 + u64::from(slot));
        }
    }
    let mut none = [RegionBuffer::for_first(RegionId(1), 0)];
    fetch(&mut reader, &mut none);
    assert_eq!(none[0].status, FetchStatus::Failed(RegionError::Length { buffer: 0, region: 1024 }));
}

/// Runs with gaps between them are fetched side by side, in whatever order the batch has its regions.
pub fn runs_of_a_region_are_fetched_without_what_is_between_them<S: Service>(mut reader: impl RegionReader) {
    let size = RegionSize::new(8 * 4096).expect("eight pages are a size");
    let services = [S::create(size), S::create(size)];
    for (id, service) in (1..).zip(&services) {
        for slot in (1499..=1503).chain([size.slots() - 2, size.slots() - 1]) {
            service.store(Slot(slot), id * 100_000 + u64::from(slot));
        }
        attach(&mut reader, id, size, service);
    }
    let word = |slot: u32| Slot(slot).word();
    let runs = Runs::covering([0..8, word(1500)..word(1503), word(size.slots() - 1)..size.words()]);
    let mut batch = [2, 1, 2].map(|region| RegionBuffer::for_runs(RegionId(region), runs.clone()));
    batch[1] = buffer(1, size);

    fetch(&mut reader, &mut batch);

    for buffer in &batch {
        assert_eq!(buffer.status, FetchStatus::Fetched);
        assert!(Header::decode(&buffer.words).is_ok());
        for slot in [1500, 1502, size.slots() - 1] {
            let at = buffer.runs.position(word(slot)).expect("it is in a run");
            assert_eq!(buffer.words[at], buffer.region.0 * 100_000 + u64::from(slot));
        }
    }
    assert_eq!((batch[0].words.len(), batch[1].words.len()), (8 + 3 + 1, size.words()));
    let mut beyond = [RegionBuffer::for_runs(RegionId(1), Runs::covering([0..8, 4095..4097]))];
    fetch(&mut reader, &mut beyond);
    assert_eq!(beyond[0].status, FetchStatus::Failed(RegionError::Length { buffer: 4097, region: 4096 }));
}

/// A fetch reads current values, not those at the time of attaching: a private copy of the memory is not enough.
pub fn a_value_written_after_attaching_is_seen<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(two_pages());
    attach(&mut reader, 1, two_pages(), &service);
    let mut batch = [buffer(1, two_pages())];

    for value in 1..=5 {
        for slot in [Slot(0), Slot(600)] {
            service.store(slot, value);
        }
        service.beat();
        fetch(&mut reader, &mut batch);

        assert!(Header::decode(&batch[0].words).is_ok_and(|header| header.heartbeat == value));
        assert_eq!([batch[0].words[Slot(0).word()], batch[0].words[Slot(600).word()]], [value; 2]);
    }
}

/// Regions of one batch do not mix, whatever their order and sizes.
pub fn each_buffer_gets_its_own_region<S: Service>(mut reader: impl RegionReader) {
    let services: Vec<S> =
        (0..16).map(|n| S::create(if n % 2 == 0 { RegionSize::ONE_PAGE } else { two_pages() })).collect();
    let mut batch = Vec::new();
    for (n, service) in (0_u64..).zip(&services) {
        let size = if n % 2 == 0 { RegionSize::ONE_PAGE } else { two_pages() };
        service.store(Slot(7), 100 + n);
        attach(&mut reader, n, size, service);
        batch.push(buffer(n, size));
    }
    batch.reverse();

    fetch(&mut reader, &mut batch);

    for buffer in &batch {
        assert_eq!(buffer.status, FetchStatus::Fetched);
        assert_eq!(buffer.words[Slot(7).word()], 100 + buffer.region.0);
    }
}

/// A region may be in a batch twice, each time with other words of it: two LMAPs watch it.
pub fn a_region_in_the_batch_twice_fills_both_buffers<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    service.store(Slot(3), 33);
    service.store(Slot(9), 99);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
    let up_to = |slot: Slot| RegionBuffer::for_first(RegionId(1), slot.word() + 1);
    let mut batch = vec![up_to(Slot(3)), up_to(Slot(9))];

    fetch(&mut reader, &mut batch);

    assert!(batch.iter().all(|buffer| buffer.status == FetchStatus::Fetched), "{batch:?}");
    assert_eq!(batch[0].words.last(), Some(&33));
    assert_eq!((batch[1].words[Slot(3).word()], batch[1].words.last()), (33, Some(&99)));
}

/// The failure of one region is in its own status only.
pub fn a_failure_of_one_region_harms_no_other<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    service.store(Slot(0), 5);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
    let mut batch = [
        buffer(9, RegionSize::ONE_PAGE),
        buffer(1, RegionSize::ONE_PAGE),
        buffer(1, two_pages()),
        buffer(1, RegionSize::ONE_PAGE),
    ];

    fetch(&mut reader, &mut batch);

    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::NotAttached));
    assert_eq!(batch[2].status, FetchStatus::Failed(RegionError::Length { buffer: 1024, region: 512 }));
    for good in [&batch[1], &batch[3]] {
        assert_eq!(good.status, FetchStatus::Fetched);
        assert_eq!(good.words[Slot(0).word()], 5);
    }
}

/// A status is set anew by every fetch.
pub fn a_status_is_of_the_last_fetch<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    let mut batch = [buffer(1, RegionSize::ONE_PAGE)];
    assert_eq!(batch[0].status, FetchStatus::Pending);

    fetch(&mut reader, &mut batch);
    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::NotAttached));
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
    fetch(&mut reader, &mut batch);
    assert_eq!(batch[0].status, FetchStatus::Fetched);
    reader.detach(RegionId(1));
    fetch(&mut reader, &mut batch);

    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::NotAttached));
}

/// Fetching an empty batch succeeds.
pub fn an_empty_batch_is_fetched<S: Service>(mut reader: impl RegionReader) {
    fetch(&mut reader, &mut []);
    let service = S::create(RegionSize::ONE_PAGE);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
    fetch(&mut reader, &mut []);
}

/// An id that is attached cannot be attached again before it is detached.
pub fn an_attached_region_is_not_attached_again<S: Service>(mut reader: impl RegionReader) {
    let (first, second) = (S::create(RegionSize::ONE_PAGE), S::create(RegionSize::ONE_PAGE));
    first.store(Slot(0), 1);
    second.store(Slot(0), 2);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &first);
    let mut batch = [buffer(1, RegionSize::ONE_PAGE)];

    let again = reader.attach(RegionId(1), RegionSize::ONE_PAGE, second.access());

    assert!(matches!(again, Err(AttachError::Attached(RegionId(1)))));
    fetch(&mut reader, &mut batch);
    assert_eq!(batch[0].words[Slot(0).word()], 1);
    reader.detach(RegionId(1));
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &second);
    fetch(&mut reader, &mut batch);
    assert_eq!(batch[0].words[Slot(0).word()], 2);
}

/// A region of another size than announced is not attached, and a good one can be afterwards.
pub fn a_region_of_another_size_is_refused<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);

    let error = reader.attach(RegionId(1), two_pages(), service.access());

    assert!(matches!(error, Err(AttachError::Size { found: 4096, .. })));
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
}

/// Access for another transport is an error.
pub fn access_of_another_transport_is_refused<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    let foreign = match service.access() {
        Access::Remote { .. } => Access::Memory(crate::local::Region::new(RegionSize::ONE_PAGE)),
        Access::Descriptor(_) | Access::Memory(_) => Access::Remote { address: 0, rkey: 0, bytes: 4096 },
    };

    let error = reader.attach(RegionId(1), RegionSize::ONE_PAGE, foreign);

    assert!(matches!(error, Err(AttachError::Access { .. })));
}

/// Detaching a region that is not attached does nothing.
pub fn detaching_twice_or_never_attached_is_nothing<S: Service>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);

    reader.detach(RegionId(2));
    reader.detach(RegionId(1));
    reader.detach(RegionId(1));

    let mut batch = [buffer(1, RegionSize::ONE_PAGE)];
    fetch(&mut reader, &mut batch);
    assert_eq!(batch[0].status, FetchStatus::Failed(RegionError::NotAttached));
}

/// Each fetched word is one that the service wrote, while it goes on writing. This depends on the copier, which has to
/// move aligned words in one access: a soft RDMA device on an emulated processor may not (docs/rdma-spike.md, 10).
pub fn no_word_is_torn<S: Service + Sync>(mut reader: impl RegionReader) {
    let service = S::create(RegionSize::ONE_PAGE);
    attach(&mut reader, 1, RegionSize::ONE_PAGE, &service);
    let mut batch = [buffer(1, RegionSize::ONE_PAGE)];
    let done = std::sync::atomic::AtomicBool::new(false);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                byte = (byte + 1) % 256;
                service.store(Slot(3), byte * 0x0101_0101_0101_0101);
            }
        });
        // Under Miri every load takes its time.
        let fetches = if cfg!(miri) { 3 } else { 2000 };
        let torn = (0..fetches).find_map(|_| {
            fetch(&mut reader, &mut batch);
            let word = batch[0].words[Slot(3).word()];
            (word != (word & 0xff) * 0x0101_0101_0101_0101).then_some(word)
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(torn, None);
    });
}

/// A reader has a name, for configuration and output.
#[expect(clippy::needless_pass_by_value, reason = "the signature of all of them")]
pub fn it_has_a_name<S: Service>(reader: impl RegionReader) {
    assert!(!reader.name().is_empty());
}

/// Turns each function of this module into a test: `on_every_backend!(SERVICE, READER)`, where SERVICE implements
/// [`Service`] and READER is an expression for a reader without regions.
#[macro_export]
macro_rules! on_every_backend {
    ($service:ty, $reader:expr) => {
        $crate::on_every_backend!(@ $service, $reader;
            a_fetched_region_is_the_whole_of_it,
            a_region_is_fetched_as_far_as_its_buffer_is_long,
            runs_of_a_region_are_fetched_without_what_is_between_them,
            a_value_written_after_attaching_is_seen,
            each_buffer_gets_its_own_region,
            a_region_in_the_batch_twice_fills_both_buffers,
            a_failure_of_one_region_harms_no_other,
            a_status_is_of_the_last_fetch,
            an_empty_batch_is_fetched,
            an_attached_region_is_not_attached_again,
            a_region_of_another_size_is_refused,
            access_of_another_transport_is_refused,
            detaching_twice_or_never_attached_is_nothing,
            no_word_is_torn,
            it_has_a_name,
        );
    };
    (@ $service:ty, $reader:expr; $($test:ident,)+) => {$(
        #[test]
        fn $test() {
            $crate::conformance::$test::<$service>($reader);
        }
    )+};
}
