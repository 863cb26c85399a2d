//! What two NIC agents say to each other to compare a stream.

use exchange::gathering::{End, GatheringSettings};
use exchange::{
    Answer, ClockState, Effect, Gathering, Plan, Question, Receiver, ReceiverSettings, Say, Sender, SenderSettings,
    Synopsis, Todo,
};
use prost::Message as _;
use synopses::digest::Digest;
use wire::proto::exchange as proto;

/// Of an interval.
const LENGTH: u64 = 100_000_000;
/// When the world begins, and the number of its first run.
const NOW: u64 = 1 << 60;

/// A question and an answer: read, written again alike, and put to an end that has packets of an interval. The run and the interval are also made those
/// of that end, which no fuzzer would guess.
pub fn exchange(bytes: &[u8]) {
    if let Ok(Ok(question)) = proto::Question::decode(bytes).map(Question::decode) {
        let again = Question::decode(question.encode()).expect("what was accepted survives the way");
        assert_eq!(again.encode(), question.encode());
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(8, 2)] {
            ask(&question, &synopsis);
        }
    }
    if let Ok(Ok(answer)) = proto::Answer::decode(bytes).map(Answer::decode) {
        let again = Answer::decode(answer.clone().encode()).expect("what was accepted survives the way");
        assert_eq!(again.encode(), answer.clone().encode());
        for synopsis in [Synopsis::RDA, Synopsis::finecomb(8, 2)] {
            tell(&answer, &synopsis);
        }
    }
}

/// Interval 0 of an end, with some packets.
fn gathered(plan: &Plan, end: End) -> exchange::Gathered {
    let settings = GatheringSettings { end, packets: 64, grace_ns: 0 };
    let mut gathering = Gathering::new(plan.clone(), settings).expect("a plan that holds");
    for number in 0..20 {
        gathering.insert(plan.begins_ns + number, |_| Digest(number << 40), |_| Digest(1));
    }
    gathering.poll(plan.begin_of(1)).expect("the interval is over")
}

fn ask(question: &Question, synopsis: &Synopsis) {
    let plan =
        Plan { begins_ns: NOW + LENGTH, length_ns: LENGTH, key: 1, seed: 1, synopsis: synopsis.clone(), rotates: 0 };
    let mut receiver = Receiver::new(ReceiverSettings::new(LENGTH, synopsis.clone()));
    let start = exchange::Ask::Start(plan.clone());
    let start = Question { stream: String::new(), epoch: 1, interval: 0, kept: ClockState::Unknown, ask: start };
    assert_eq!(receiver.answer(&start, NOW).say, Say::Started(0));
    let now = plan.begin_of(1);
    receiver.gathered(gathered(&plan, End::Receiver), now);
    let known = Question { epoch: 1, interval: 0, ..question.clone() };
    for question in [question, &known] {
        let answer = receiver.answer(question, now);
        assert_eq!((answer.epoch, answer.interval), (question.epoch, question.interval));
        drop(Answer::decode(answer.encode()).expect("what is said can be heard"));
    }
    receiver.poll(now + 100 * LENGTH);
    assert!(receiver.memory_bytes() == 0, "nothing is kept for ever");
}

fn tell(answer: &Answer, synopsis: &Synopsis) {
    let mut sender = Sender::new(SenderSettings::new(String::new(), LENGTH, synopsis.clone()));
    let mut random = || 7;
    let Todo::Ask { call, question } = sender.poll(NOW, &mut random) else { return };
    let reply = |epoch, interval, say| Some(Answer { epoch, interval, clock_ns: NOW, kept: ClockState::Unknown, say });
    sender.answered(call, reply(question.epoch, 0, Say::Started(36_000)), NOW, &mut random);
    let Some(Effect::Gather(plan)) = sender.take_effects().next() else { return };
    let mut now = plan.begin_of(1);
    sender.gathered(gathered(&plan, End::Sender), now, &mut random);
    // The same answer to whatever is asked, until the interval is given up.
    for _ in 0..200 {
        match sender.poll(now, &mut random) {
            Todo::Ask { call, question } => {
                let known = Answer { epoch: question.epoch, interval: question.interval, ..answer.clone() };
                sender.answered(call, Some(answer.clone()), now, &mut random);
                sender.answered(call, Some(known), now, &mut random);
                now += 1;
            }
            Todo::Wait(until) => {
                assert!(until > now, "a wait for what has come");
                now = until;
            }
        }
        if now > plan.begin_of(8) {
            break;
        }
    }
    for effect in sender.take_effects() {
        let Effect::Report(report) = effect else { continue };
        assert!(report.mean_ns.is_none_or(f64::is_finite) && report.loss.is_none_or(|loss| loss <= 1.0), "{report:?}");
    }
}
