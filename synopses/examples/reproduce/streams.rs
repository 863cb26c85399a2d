//! Packets between two points: one interval, with displaced packets at its ends and delays of a known distribution, for
//! several settings at once.

use std::ops::Range;

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

/// Which packets are displaced, x of each kind. The publication names forward and backward as its main types; a tuple
/// is ⟨pre-start, post-start, pre-end, post-end⟩.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// ⟨0, x, 0, 0⟩: packets of the interval before arrive in this one.
    Forward,
    /// ⟨x, 0, 0, 0⟩: packets of this interval arrive in the one before.
    Backward,
    /// ⟨0, x, 0, x⟩: forward in this interval and in the next one.
    Chained,
    /// ⟨x, x, x, x⟩.
    All,
    /// ⟨0, 0, x, 0⟩: packets of the interval after arrive in this one, the other end of a backward one.
    Early,
}

impl Reading {
    /// The readings with rows of their own.
    pub const ROWS: [Self; 4] = [Self::Forward, Self::Backward, Self::Chained, Self::All];

    /// The word for it in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Chained => "chained",
            Self::All => "all sides",
            Self::Early => "early",
        }
    }

    pub fn of(self, x: u64) -> DisplacedPackets {
        let of = |there: bool| if there { x } else { 0 };
        DisplacedPackets {
            pre_start: of(matches!(self, Self::All | Self::Backward)),
            post_start: of(matches!(self, Self::All | Self::Chained | Self::Forward)),
            pre_end: of(matches!(self, Self::All | Self::Early)),
            post_end: of(matches!(self, Self::All | Self::Chained)),
        }
    }
}

/// The rows of a claim in all readings. The first is the caption's, so that it has the claim's own id.
macro_rules! rows {
    ($id:literal) => {
        [$id, concat!($id, "-backward"), concat!($id, "-chained"), concat!($id, "-all")]
            .into_iter()
            .zip($crate::streams::Reading::ROWS)
    };
}
pub(crate) use rows;

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

impl Stream<'_> {
    /// The digest of a packet, by its number, when it was sent, and when it arrives, unless it is lost. It is of this
    /// interval if its number is from 0 to `packets`.
    fn packet(&self, number: i64) -> (Digest, u64, Option<u64>) {
        let digest = Digest(random(number as u64 ^ random(self.seed)));
        let sent = BASE_NS.wrapping_add_signed(number * self.spacing_ns as i64);
        let own = (0..self.packets as i64).contains(&number);
        if own && self.loss.lost(number as u64, self.packets, random(digest.0 ^ 0x1055)) {
            return (digest, sent, None);
        }
        (digest, sent, Some(sent + (self.delays)(number.unsigned_abs(), random(digest.0))))
    }
}

/// The receivers of one reading.
struct Arrivals<'a, 'b> {
    stream: &'a Stream<'b>,
    displaced: DisplacedPackets,
    receivers: Vec<Receiver>,
}

impl Arrivals<'_, '_> {
    fn arrive(&mut self, digest: Digest, at: u64) {
        self.receivers.iter_mut().for_each(|receiver| receiver.insert(digest, at));
    }

    fn all(&mut self, numbers: Range<i64>) {
        for number in numbers {
            if let (digest, _, Some(at)) = self.stream.packet(number) {
                self.arrive(digest, at);
            }
        }
    }

    fn sync(&mut self) -> Vec<Interval> {
        self.receivers.iter_mut().filter_map(Receiver::sync).collect()
    }

    /// Enough other packets to fill a stash with packets that are not displaced.
    fn around(&self) -> i64 {
        let DisplacedPackets { pre_start, post_start, pre_end, post_end } = self.displaced;
        4 * pre_start.max(post_start).max(pre_end).max(post_end).max(100) as i64
    }

    /// What arrives until the packet `to` of the interval.
    fn begin(&mut self, to: i64) {
        let [pre, post] = [self.displaced.pre_start, self.displaced.post_start].map(|x| x as i64);
        self.all(-self.around() - post..-post);
        self.all(0..pre);
        self.sync();
        self.all(-post..0);
        self.all(pre..to);
    }

    /// What arrives from the packet `from` of the interval on.
    fn end(&mut self, from: i64) -> Vec<Interval> {
        let (packets, around) = (self.stream.packets as i64, self.around());
        let [pre, post] = [self.displaced.pre_end, self.displaced.post_end].map(|x| x as i64);
        self.all(from..packets - post);
        self.all(packets..packets + pre);
        self.sync();
        self.all(packets - post..packets);
        self.all(packets + pre..packets + pre + around);
        self.sync()
    }
}

/// Sums of the delays of the packets that arrive.
#[derive(Default)]
struct Sums {
    lost: u64,
    arrived: u64,
    delays: u128,
    squares: f64,
}

impl Sums {
    fn add(&mut self, delay: u64) {
        self.arrived += 1;
        self.delays += u128::from(delay);
        self.squares += (delay as f64).powi(2);
    }

    fn truth(&self) -> Truth {
        let arrived = self.arrived.max(1) as f64;
        let mean_ns = self.delays as f64 / arrived;
        let deviation_ns = (self.squares / arrived - mean_ns.powi(2)).max(0.0).sqrt();
        Truth { mean_ns, deviation_ns, lost: self.lost, arrived: self.arrived }
    }
}

/// Plays an interval, with the packets around it, for each of the settings.
pub fn play(stream: &Stream<'_>, settings: &[Settings]) -> (Vec<Ends>, Truth) {
    let (mut ends, truth) = play_each(stream, &[stream.displaced], settings);
    (ends.pop().expect("as many as there are displacements"), truth)
}

/// The same for each of several displacements, instead of the stream's own.
pub fn play_each(stream: &Stream<'_>, each: &[DisplacedPackets], settings: &[Settings]) -> (Vec<Vec<Ends>>, Truth) {
    let receiver = |settings: &Settings| Receiver::new(settings).expect("possible");
    let arrivals = |displaced: &DisplacedPackets| Arrivals {
        stream,
        displaced: *displaced,
        receivers: settings.iter().map(receiver).collect(),
    };
    let mut each: Vec<Arrivals<'_, '_>> = each.iter().map(arrivals).collect();
    let most =
        |of: fn(&DisplacedPackets) -> u64| each.iter().map(|arrivals| of(&arrivals.displaced)).max().unwrap_or(0);
    let packets = stream.packets as i64;
    // Packets of the interval that none of them displaces, in the order of sending.
    let common = most(|displaced| displaced.pre_start) as i64..packets - most(|displaced| displaced.post_end) as i64;
    let mut senders: Vec<FineComb> =
        settings.iter().map(|settings| FineComb::new(settings).expect("possible")).collect();
    let mut sums = Sums::default();
    for arrivals in &mut each {
        arrivals.begin(common.start);
    }
    for number in 0..packets {
        let (digest, sent, at) = stream.packet(number);
        for sender in &mut senders {
            sender.insert(digest, sent);
        }
        let Some(at) = at else {
            sums.lost += 1;
            continue;
        };
        sums.add(at - sent);
        if common.contains(&number) {
            for arrivals in &mut each {
                arrivals.arrive(digest, at);
            }
        }
    }
    let ends = each.iter_mut().map(|arrivals| {
        let both = senders.iter().cloned().zip(arrivals.end(common.end));
        both.map(|(sender, interval)| Ends { sender, interval }).collect()
    });
    (ends.collect(), sums.truth())
}
