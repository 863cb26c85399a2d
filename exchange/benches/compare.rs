//! What it costs to gather a packet, by each synopsis and beside sending all ids and times (Direct), and what one exchange costs with 20,000 packets of which 1 %
//! are lost: both ends' work, and bytes. `cargo bench -p exchange --bench compare`; the bytes come first, in two lines.
#![expect(clippy::panic, reason = "a bench that measures something else is none")]

use std::cell::RefCell;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use exchange::gathering::{End, GatheringSettings};
use exchange::{
    Answer, Effect, Gathered, Gathering, Plan, Question, Receiver, ReceiverSettings, Report, Say, Sender,
    SenderSettings, Synopsis, Todo,
};
use prost::Message as _;
use synopses::digest::DigestKey;

/// Packets of an interval.
const PACKETS: u64 = 20_000;
/// One of so many is lost.
const LOST: u64 = 100;
/// Nanoseconds of an interval.
const LENGTH: u64 = 1_000_000_000;
/// From sending to arriving.
const DELAY: u64 = 100_000;
const NOW: u64 = 1_700_000_000 * LENGTH;

fn main() {
    for (name, synopsis) in synopses() {
        let mut exchange = Exchange::begin(&synopsis);
        let (mut told, mut bytes) = (Vec::new(), 0);
        for interval in 0..3 {
            let gathered = exchange.gather(interval);
            let (reports, said) = exchange.say(interval, gathered);
            told.extend(reports);
            bytes = said;
        }
        let report = told.get(1).expect("an interval is final when the next was compared");
        println!(
            "{name}: {bytes} bytes said of an interval, {:.2} of the {} of Direct; {} lost of {}, mean delay {:?} ns",
            bytes as f64 / direct_bytes() as f64,
            direct_bytes(),
            report.lost,
            report.sent.unwrap_or(0),
            report.mean_ns,
        );
    }
    divan::main();
}

fn synopses() -> [(&'static str, Synopsis); 3] {
    [("rda", Synopsis::RDA), ("finecomb", Synopsis::finecomb(2_000, 125)), ("lda", Synopsis::lda(2_000))]
}

fn synopsis(name: &str) -> Synopsis {
    synopses().into_iter().find(|(known, _)| *known == name).expect("one of those").1
}

/// What stands for a packet: as many bytes as of a TCP segment with options.
fn packet(number: u64) -> [u8; 96] {
    let mut bytes = [7; 96];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Digest included.
#[divan::bench(args = ["rda", "finecomb", "lda"], sample_count = 20, sample_size = 1)]
fn gather(bencher: Bencher<'_, '_>, name: &str) {
    let plan = plan(&synopsis(name));
    let gathering = || Gathering::new(plan.clone(), settings(End::Sender)).expect("possible");
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(gathering).bench_local_refs(|gathering| {
        for number in 0..PACKETS {
            let bytes = packet(number);
            gathering.insert(plan.begins_ns + number, |key| key.digest(&bytes), |key| key.digest(&bytes));
        }
        gathering.due_ns()
    });
}

/// Direct: ids and times one after the other.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn gather_direct(bencher: Bencher<'_, '_>) {
    let key = DigestKey::new(1);
    let list = || Vec::with_capacity(PACKETS as usize);
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(list).bench_local_refs(|list| {
        for number in 0..PACKETS {
            list.push((key.digest(&packet(number)).0, number));
        }
        black_box(list.len())
    });
}

/// Both ends, from the interval's packets to its report, with all that is said in between as bytes.
#[divan::bench(args = ["rda", "finecomb", "lda"], sample_count = 20, sample_size = 1)]
fn exchange(bencher: Bencher<'_, '_>, name: &str) {
    let exchange = RefCell::new(Exchange::begin(&synopsis(name)));
    let mut interval = 0;
    let mut gathered = || {
        interval += 1;
        (interval - 1, exchange.borrow_mut().gather(interval - 1))
    };
    bencher
        .with_inputs(&mut gathered)
        .bench_local_values(|(interval, gathered)| exchange.borrow_mut().say(interval, gathered));
}

/// Direct: the receiver's list as bytes, and each of the sender's packets looked up in it.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn exchange_direct(bencher: Bencher<'_, '_>) {
    let all = |end: End| -> Vec<(u64, u64)> {
        let key = DigestKey::new(1);
        passing(0, NOW, end).map(|(number, at)| (key.digest(&packet(number)).0, at)).collect()
    };
    let (sent, received) = (all(End::Sender), all(End::Receiver));
    bencher.bench_local(|| {
        let say = Say::All(exchange::Seen::default(), black_box(&received).clone());
        let answer = Answer { epoch: 1, interval: 0, clock_ns: 0, kept: exchange::ClockState::Unknown, say };
        let bytes = answer.encode().encode_to_vec();
        let answer = wire::proto::exchange::Answer::decode(&*bytes).map(Answer::decode);
        let Ok(Ok(Answer { say: Say::All(_, packets), .. })) = answer else { panic!("what was said is heard") };
        let arrived: std::collections::HashMap<u64, u64> = packets.into_iter().collect();
        sent.iter().filter_map(|(id, at)| arrived.get(id).map(|arrived| arrived - at)).sum::<u64>()
    });
}

fn direct_bytes() -> usize {
    let say = Say::All(exchange::Seen::default(), passing(0, NOW, End::Receiver).collect());
    let answer = Answer { epoch: NOW, interval: 1, clock_ns: NOW, kept: exchange::ClockState::Unknown, say };
    answer.encode().encoded_len()
}

fn settings(end: End) -> GatheringSettings {
    GatheringSettings { end, packets: 2 * PACKETS as usize, grace_ns: 0 }
}

fn plan(synopsis: &Synopsis) -> Plan {
    Plan { begins_ns: NOW, length_ns: LENGTH, key: 1, seed: 2, synopsis: synopsis.clone(), rotates: 3_600 }
}

/// Numbers and times of what passes an end in an interval that begins then: some of the last packets arrive in the next.
fn passing(interval: u64, begins_ns: u64, end: End) -> impl Iterator<Item = (u64, u64)> {
    let numbers = interval * PACKETS..(interval + 1) * PACKETS;
    let sent = move |number: u64| begins_ns + (number % PACKETS) * (LENGTH / PACKETS);
    let (is_receiver, before) = (end == End::Receiver, u64::from(interval > 0) * 2);
    let numbers = numbers.start - if is_receiver { before } else { 0 }..numbers.end - if is_receiver { 2 } else { 0 };
    numbers.filter(move |number| !is_receiver || number % LOST != 0).map(move |number| {
        let at = if number < interval * PACKETS { sent(number) - LENGTH } else { sent(number) };
        (number, at + if is_receiver { DELAY } else { 0 })
    })
}

/// Two ends in the midst of a run.
struct Exchange {
    sender: Sender,
    receiver: Receiver,
    gathering: [Gathering; 2],
    random: u64,
    plan: Plan,
}

impl Exchange {
    fn begin(synopsis: &Synopsis) -> Self {
        let mut sender = Sender::new(SenderSettings::new("way".to_owned(), LENGTH, synopsis.clone()));
        let mut receiver = Receiver::new(ReceiverSettings::new(LENGTH, synopsis.clone()));
        let Todo::Ask { call, question } = sender.poll(NOW, &mut || 7) else { panic!("it begins") };
        let answer = receiver.answer(&question, NOW);
        sender.answered(call, Some(answer), NOW, &mut || 7);
        let Some(Effect::Gather(plan)) = sender.take_effects().next() else { panic!("a run begins") };
        let gathering =
            [End::Sender, End::Receiver].map(|end| Gathering::new(plan.clone(), settings(end)).expect("possible"));
        receiver.take_effects().for_each(drop);
        Self { sender, receiver, gathering, random: 1, plan }
    }

    /// Both ends' packets of an interval.
    fn gather(&mut self, interval: u64) -> [Gathered; 2] {
        let begins_ns = self.plan.begin_of(interval);
        [End::Sender, End::Receiver].map(|end| {
            let gathering = &mut self.gathering[usize::from(end == End::Receiver)];
            for (number, at) in passing(interval, begins_ns, end) {
                gathering.insert(at, |key| key.digest(&packet(number)), |key| key.digest(&packet(number)));
            }
            gathering.poll(begins_ns + LENGTH).expect("it is over")
        })
    }

    /// From packets to reports: what was told, and the bytes of all that was said.
    fn say(&mut self, interval: u64, [ours, theirs]: [Gathered; 2]) -> (Vec<Report>, usize) {
        let now = self.plan.begin_of(interval + 1) + 1;
        let seed = &mut self.random;
        let mut random = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *seed
        };
        self.receiver.gathered(theirs, now);
        self.sender.gathered(ours, now, &mut random);
        let mut bytes = 0;
        while let Todo::Ask { call, question } = self.sender.poll(now, &mut random) {
            let asked = question.encode().encode_to_vec();
            let question = wire::proto::exchange::Question::decode(&*asked).map(Question::decode);
            let answer = self.receiver.answer(&question.expect("bytes").expect("a question"), now);
            let said = answer.encode().encode_to_vec();
            let answer = wire::proto::exchange::Answer::decode(&*said).map(Answer::decode);
            self.sender.answered(call, Some(answer.expect("bytes").expect("an answer")), now, &mut random);
            bytes += asked.len() + said.len();
        }
        let mut reports = Vec::new();
        for effect in self.sender.take_effects() {
            match effect {
                Effect::Report(report) => reports.push(report),
                Effect::GiveBack(cache) => self.gathering[0].give_back(cache),
                other => panic!("{other:?}"),
            }
        }
        for effect in self.receiver.take_effects() {
            if let Effect::GiveBack(cache) = effect {
                self.gathering[1].give_back(cache);
            }
        }
        (reports, bytes)
    }
}
