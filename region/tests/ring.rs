//! The ring of records: in every order of events (loom), with real threads (Miri), against a model, and with a hostile
//! writer.
//!
//! With loom: `RUSTFLAGS="--cfg loom" cargo test -p region --test ring --release`.

/// Records of two words, the second the complement of the first: anything else is a torn record.
const WORDS: usize = 2;

fn record(n: u64) -> [u64; WORDS] {
    [n, !n]
}

fn whole(record: [u64; WORDS]) -> Option<u64> {
    (record[1] == !record[0]).then_some(record[0])
}

#[cfg(loom)]
mod every_order {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;
    use region::ring::{Cells, Tickets, Word};

    use super::{WORDS, record, whole};

    struct LoomWord(AtomicU64);

    impl Word for LoomWord {
        fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
        }

        fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_add(value, order)
        }

        fn compare_exchange(&self, from: u64, to: u64, order: Ordering) -> bool {
            self.0.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
        }

        fn fence(order: Ordering) {
            fence(order);
        }
    }

    fn model(bound: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(bound);
        builder.check(test);
    }

    fn ring(cells: usize) -> Arc<Vec<LoomWord>> {
        Arc::new((0..8 + cells * (1 + WORDS)).map(|_| LoomWord(AtomicU64::new(0))).collect())
    }

    fn cells(words: &[LoomWord]) -> Cells<'_, LoomWord, WORDS> {
        Cells::new(words).expect("it has room for a cell")
    }

    /// One cell: every record overwrites the one before, while it is read.
    #[test]
    fn no_record_is_torn_and_every_ticket_is_read_or_lost_once() {
        model(3, || {
            let ring = ring(1);
            let writer = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    for n in 1..=2 {
                        assert!(cells(&ring).push(&record(n)));
                    }
                })
            };
            let mut tickets = Tickets::new(0);
            let (mut read, mut counted) = (Vec::new(), 0);
            let polled = tickets.poll(cells(&ring), |record| read.push(whole(*record).expect("torn")));
            counted += polled.read + polled.lost.overwritten + polled.lost.unfinished;
            writer.join().unwrap();
            let polled = tickets.poll(cells(&ring), |record| read.push(whole(*record).expect("torn")));
            counted += polled.read + polled.lost.overwritten + polled.lost.unfinished + tickets.give_up();
            assert_eq!(counted, 2);
            assert!(read.is_sorted() && read.len() <= 2);
            assert!(read.ends_with(&[2]), "the newest is there when nobody writes any more");
        });
    }

    /// Two writers meet in one cell: one of them may give up, and what is read is of one of them.
    #[test]
    fn writers_that_meet_in_a_cell_do_not_mix() {
        model(3, || {
            let ring = ring(1);
            let writers: Vec<_> = (1..=2)
                .map(|n| {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || cells(&ring).push(&record(n)))
                })
                .collect();
            let mut tickets = Tickets::new(0);
            let mut read = Vec::new();
            let mut counted = 0;
            let polled = tickets.poll(cells(&ring), |record| read.push(whole(*record).expect("torn")));
            counted += polled.read + polled.lost.overwritten + polled.lost.unfinished;
            let pushed = writers.into_iter().map(|writer| writer.join().unwrap());
            let pushed = pushed.filter(|pushed| *pushed).count();
            let polled = tickets.poll(cells(&ring), |record| read.push(whole(*record).expect("torn")));
            counted += polled.read + polled.lost.overwritten + polled.lost.unfinished + tickets.give_up();
            assert_eq!(counted, 2);
            assert!(pushed >= 1 && read.len() <= pushed);
        });
    }
}

#[cfg(not(loom))]
mod threads {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use proptest::prelude::*;
    use region::ring::{Cells, PollSummary, Tickets};

    use super::{WORDS, record, whole};

    fn words(cells: usize) -> Vec<AtomicU64> {
        (0..8 + cells * (1 + WORDS)).map(|_| AtomicU64::new(0)).collect()
    }

    fn cells(words: &[AtomicU64]) -> Cells<'_, AtomicU64, WORDS> {
        Cells::new(words).expect("it has room for a cell")
    }

    fn counted(polled: PollSummary) -> u64 {
        polled.read + polled.lost.overwritten + polled.lost.unfinished
    }

    #[test]
    fn four_threads_write_and_every_record_is_read_once_or_counted_as_lost() {
        const WRITERS: u64 = 4;
        let each = if cfg!(miri) { 40 } else { 20_000 };
        let words = words(8);
        let done = AtomicBool::new(false);
        let (mut read, mut total) = (BTreeSet::new(), 0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let ring = cells(&words);
                    scope.spawn(move || (0..each).filter(|n| ring.push(&record(n * WRITERS + writer))).count())
                })
                .collect();
            let (ring, done) = (cells(&words), &done);
            let reader = scope.spawn(move || {
                let (mut tickets, mut read, mut total) = (Tickets::new(0), Vec::new(), 0);
                loop {
                    let last = done.load(Ordering::Acquire);
                    total += counted(tickets.poll(ring, |record| read.push(whole(*record).expect("torn"))));
                    if last {
                        return (read, total + tickets.give_up());
                    }
                    std::thread::yield_now();
                }
            });
            let pushed: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            done.store(true, Ordering::Release);
            let (came, counted) = reader.join().unwrap();
            assert!(came.len() <= pushed, "{} were read of {pushed}", came.len());
            total += counted;
            for n in came {
                assert!(read.insert(n), "{n} was read twice");
            }
        });
        assert_eq!(total, WRITERS * each);
        assert!(!read.is_empty());
    }

    #[test]
    fn a_full_ring_loses_the_oldest_and_says_how_many() {
        let words = words(4);
        (0..10).for_each(|n| assert!(cells(&words).push(&record(n))));

        let (mut tickets, mut read) = (Tickets::new(0), Vec::new());
        let polled = tickets.poll(cells(&words), |record| read.extend(whole(*record)));

        assert_eq!(read, [6, 7, 8, 9]);
        assert_eq!((polled.read, polled.lost.overwritten, polled.lost.unfinished), (4, 6, 0));
    }

    #[test]
    fn a_writer_that_is_ended_in_the_middle_costs_its_record_and_its_cell() {
        let words = words(4);
        assert!(cells(&words).push(&record(0)));
        // Ticket 1 is drawn and its cell claimed, and then its process is killed.
        words[0].fetch_add(1, Ordering::Relaxed);
        words[8 + 3].store(3, Ordering::Relaxed);
        assert!(cells(&words).push(&record(2)));
        let (mut tickets, mut read) = (Tickets::new(0), Vec::new());

        let polled = tickets.poll(cells(&words), |record| read.extend(whole(*record)));
        assert_eq!((counted(polled), &read[..]), (2, &[0, 2][..]));

        // Others go on, but for that cell.
        let pushed: Vec<_> = (3..9).map(|n| cells(&words).push(&record(n))).collect();
        assert_eq!(pushed, [true, true, false, true, true, true]);
        read.clear();
        let polled = tickets.poll(cells(&words), |record| read.extend(whole(*record)));
        assert_eq!((read, polled.lost.overwritten, polled.lost.unfinished), (vec![6, 7, 8], 2, 1));
        assert_eq!(tickets.give_up(), 1);
    }

    #[test]
    fn a_writer_that_makes_its_record_while_others_write_a_whole_lap_gives_it_up() {
        let words = words(4);
        let ring = cells(&words);
        let slow = |laps: u64| {
            ring.push_with(|made| {
                (0..4 * laps).for_each(|n| assert!(ring.push(&record(10 + n))));
                *made = record(1);
                WORDS
            })
        };
        let (mut tickets, mut read) = (Tickets::new(0), Vec::new());

        assert_eq!((slow(0), slow(1)), (true, false));

        let polled = tickets.poll(ring, |record| read.extend(whole(*record)));
        // Tickets 0 and 1 were overwritten, the latter before it was claimed.
        assert_eq!((read, polled.lost.overwritten, polled.lost.unfinished), (vec![10, 11, 12, 13], 2, 0));
    }

    #[test]
    fn a_reader_that_comes_later_begins_where_it_is_told() {
        let words = words(8);
        (0..6).for_each(|n| assert!(cells(&words).push(&record(n))));
        let mut read = Vec::new();

        let polled = Tickets::new(4).poll(cells(&words), |record| read.extend(whole(*record)));

        assert_eq!((read, counted(polled)), (vec![4, 5], 2));
    }

    proptest! {
        /// One thread, any pace: the reader sees exactly what a queue of the same length would have left.
        #[test]
        fn a_ring_is_a_queue_that_forgets_its_oldest(steps in prop::collection::vec(0_u64..12, 1..30), size in 0_u32..4) {
            let words = words(1 << size);
            let (mut tickets, mut written, mut seen) = (Tickets::new(0), 0, 0);
            for step in steps {
                (written..written + step).for_each(|n| assert!(cells(&words).push(&record(n))));
                written += step;
                let mut read = Vec::new();
                let polled = tickets.poll(cells(&words), |record| read.extend(whole(*record)));
                let oldest = written.saturating_sub(1 << size).max(seen);
                prop_assert_eq!(read, (oldest..written).collect::<Vec<_>>());
                prop_assert_eq!(polled.lost.overwritten, oldest - seen);
                seen = written;
            }
        }

        #[test]
        fn whatever_a_hostile_writer_stores_a_look_is_bounded(looks in prop::collection::vec(prop::collection::vec(any::<u64>(), 8 + 4 * (1 + WORDS)), 1..20)) {
            let words = words(4);
            let mut tickets = Tickets::new(0);
            for look in looks {
                words.iter().zip(look).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
                // Half of the time a plausible next ticket.
                if words[1].load(Ordering::Relaxed).is_multiple_of(2) {
                    words[0].fetch_and(15, Ordering::Relaxed);
                }
                let mut read = 0;
                let _any = tickets.poll(cells(&words), |_| read += 1);
                prop_assert!(read <= 4 + 256);
            }
        }
    }
}

#[cfg(all(not(loom), not(miri)))]
mod mapped {
    use std::os::fd::AsFd as _;

    use region::ReadMapping;
    use region::ring::{RingReader, RingWriter, size_for};

    #[test]
    fn what_one_process_writes_another_reads_from_the_same_memory() {
        let writer = RingWriter::create("test", size_for(100).unwrap()).unwrap();
        let memory = ReadMapping::map(writer.region().as_fd(), writer.region().size()).unwrap();
        let mut reader = RingReader::new(memory, 0);
        assert_eq!((writer.records(), reader.records()), (128, 128));

        assert!(writer.push(&[1, 2, 3]));
        assert!(writer.push(&[7; 80]));
        let make = |words: &mut [u64; 63]| {
            *words = [9; 63];
            2
        };
        assert!(writer.push_with(make));
        writer.count_dropped();
        let mut read = Vec::new();
        let polled = reader.poll(|record| read.push((record[0], record[1], record[2], record[62])));

        assert_eq!(read, [(1, 2, 3, 0), (7, 7, 7, 7), (9, 9, 0, 0)]);
        assert_eq!((polled.read, writer.written(), reader.dropped()), (3, 3, 1));
        assert_eq!((writer.reserve_ids(2), writer.reserve_ids(1)), (0, 2));
    }
}
