//! Packets between two points: one interval, with displaced packets at its ends and delays of a known distribution, for
//! several settings at once.

use synopses::digest::Digest;
use synopses::finecomb::{FineComb, Interval, Receiver, Settings};

/// Nanoseconds between packets of 250 bytes at 10 Gb/s.
pub const SPACING_NS: u64 = 200;
/// Time of the first packet, so that earlier ones are not below 0.
const BASE_NS: u64 = 1 << 40;
/// Number of quantiles from which delays are drawn.
const QUANTILES: usize = 1 << 16;

/// Delays, in nanoseconds, as equally likely values.
pub struct Delays(Vec<u64>);

impl Delays {
    fn of_quantiles(quantile: impl Fn(f64) -> f64) -> Self {
        Self((0..QUANTILES).map(|at| quantile((at as f64 + 0.5) / QUANTILES as f64) as u64).collect())
    }

    /// A Weibull distribution.
    pub fn weibull(shape: f64, scale_ns: f64) -> Self {
        Self::of_quantiles(|share| scale_ns * (-(1.0 - share).ln()).powf(1.0 / shape))
    }

    /// A Pareto distribution from `least_ns` on.
    pub fn pareto(shape: f64, least_ns: f64) -> Self {
        Self::of_quantiles(|share| least_ns * (1.0 - share).powf(-1.0 / shape))
    }

    /// Draws a delay by 16 of the random bits.
    pub fn draw(&self, random: u64) -> u64 {
        self.0[(random & (QUANTILES as u64 - 1)) as usize]
    }
}

/// The finaliser of SplitMix64: random bits of a number.
pub const fn random(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Numbers of displaced packets: sent in the interval and received before it, sent before and received in it, sent
/// after and received in it, sent in and received after it.
#[derive(Clone, Copy)]
pub struct DisplacedPackets {
    pub pre_start: u64,
    pub post_start: u64,
    pub pre_end: u64,
    pub post_end: u64,
}

/// Kinds of displaced packets, as in the publication's figures.
#[derive(Clone, Copy, PartialEq)]
pub enum Reading {
    /// x of each kind.
    All,
    /// Packets are late, in this interval and the one before.
    Chained,
    /// Late ones of the interval before only.
    Forward,
    /// Early ones of the interval after only.
    Backward,
}

impl Reading {
    pub fn of(self, x: u64) -> DisplacedPackets {
        let of = |there: bool| if there { x } else { 0 };
        DisplacedPackets {
            pre_start: of(matches!(self, Self::All)),
            post_start: of(matches!(self, Self::All | Self::Chained | Self::Forward)),
            pre_end: of(matches!(self, Self::All | Self::Backward)),
            post_end: of(matches!(self, Self::All | Self::Chained)),
        }
    }
}

/// One interval of a stream.
pub struct Stream<'a> {
    pub packets: u64,
    /// Nanoseconds between two packets.
    pub spacing_ns: u64,
    pub loss: Loss,
    pub displaced: DisplacedPackets,
    pub delays: &'a dyn Fn(u64, u64) -> u64,
    pub seed: u64,
}

/// Lost packets of the interval.
#[derive(Clone, Copy)]
pub enum Loss {
    /// Each with this probability.
    Share(f64),
    /// This number of packets.
    Exactly(u64),
}

impl Loss {
    /// Whether a packet is lost, by its number and random bits of its own.
    fn lost(self, number: u64, packets: u64, random: u64) -> bool {
        match self {
            Self::Share(share) => ((random >> 11) as f64) < share * (1_u64 << 53) as f64,
            // Spread evenly, not at the ends.
            Self::Exactly(lost) => {
                number % (packets / (lost + 1)) == 1 && (1..=lost).contains(&(number / (packets / (lost + 1))))
            }
        }
    }
}

/// The true values of the interval.
#[derive(Clone, Copy, Default)]
pub struct Truth {
    pub mean_ns: f64,
    pub deviation_ns: f64,
    pub lost: u64,
    pub arrived: u64,
}

/// Both ends for one of the settings.
pub struct Ends {
    pub sender: FineComb,
    pub interval: Interval,
}

struct Play<'a, 'b> {
    stream: &'a Stream<'b>,
    receivers: Vec<Receiver>,
    senders: Vec<FineComb>,
    truth: Truth,
    squares: f64,
    sum: u128,
}

impl Play<'_, '_> {
    /// A packet, by its number, in this interval if it is from 0 to `packets`.
    fn packet(&self, number: i64) -> (Digest, u64, u64) {
        let bits = random(number as u64 ^ random(self.stream.seed));
        let sent = BASE_NS.wrapping_add_signed(number * self.stream.spacing_ns as i64);
        (Digest(bits), sent, (self.stream.delays)(number.unsigned_abs(), random(bits)))
    }

    /// A packet is sent, if it is of the interval, and arrives, if it is not lost. The order of sending does not
    /// matter.
    fn arrive(&mut self, number: i64) {
        let (digest, sent, delay) = self.packet(number);
        let packets = self.stream.packets;
        let own = (0..packets as i64).contains(&number);
        if own {
            self.senders.iter_mut().for_each(|sender| sender.insert(digest, sent));
        }
        if own && self.stream.loss.lost(number as u64, packets, random(digest.0 ^ 0x1055)) {
            self.truth.lost += 1;
            return;
        }
        if own {
            self.truth.arrived += 1;
            self.sum += u128::from(delay);
            self.squares += (delay as f64).powi(2);
        }
        for receiver in &mut self.receivers {
            receiver.insert(digest, sent + delay);
        }
    }

    fn all(&mut self, numbers: std::ops::Range<i64>) {
        numbers.for_each(|number| self.arrive(number));
    }

    fn sync(&mut self) -> Vec<Interval> {
        self.receivers.iter_mut().filter_map(Receiver::sync).collect()
    }
}

/// Plays an interval, with the packets around it, for each of the settings.
pub fn play(stream: &Stream<'_>, settings: &[Settings]) -> (Vec<Ends>, Truth) {
    let comb = |settings: &Settings| FineComb::new(settings).expect("possible");
    let receiver = |settings: &Settings| Receiver::new(settings).expect("possible");
    let mut play = Play {
        stream,
        receivers: settings.iter().map(receiver).collect(),
        senders: settings.iter().map(comb).collect(),
        truth: Truth::default(),
        squares: 0.0,
        sum: 0,
    };
    let packets = stream.packets as i64;
    let DisplacedPackets { pre_start, post_start, pre_end, post_end } = stream.displaced;
    let [pre_start, post_start, pre_end, post_end] = [pre_start, post_start, pre_end, post_end].map(|x| x as i64);
    // Enough other packets to fill a stash with packets that are not displaced.
    let around = 4 * pre_start.max(post_start).max(pre_end).max(post_end).max(100);
    play.all(-around - post_start..-post_start);
    play.all(0..pre_start);
    play.sync();
    play.all(-post_start..0);
    play.all(pre_start..packets - post_end);
    play.all(packets..packets + pre_end);
    play.sync();
    play.all(packets - post_end..packets);
    play.all(packets + pre_end..packets + pre_end + around);
    let intervals = play.sync();
    let mut truth = play.truth;
    truth.mean_ns = play.sum as f64 / truth.arrived.max(1) as f64;
    truth.deviation_ns = (play.squares / truth.arrived.max(1) as f64 - truth.mean_ns.powi(2)).max(0.0).sqrt();
    let ends = play.senders.into_iter().zip(intervals).map(|(sender, interval)| Ends { sender, interval });
    (ends.collect(), truth)
}
