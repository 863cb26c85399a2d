//! Packets out of order, by prefix.

use synopses::digest::DigestKey;
use synopses::reordering::{
    Boundary, Control, PrefixTally, Reordering, Reports, Segment, Settings, SettingsError, Split,
};

use super::party::{Prefix, PrefixLengths};
use crate::identity;
use crate::packet::{Packet, Tcp, Transport};

/// Records of flows.
const BUCKETS: usize = 256;
/// The share of them that watches heavy flows for long. A prefix has one record of the others: where all clients are of
/// one prefix, little else is checked.
const HEAVY_FLOWS: f64 = 0.5;
/// Prefixes that are kept of an interval.
const PREFIXES: usize = 256;
/// A flow that is silent for so long gives way: at 10,000 packets/s four packet distances of a record, and soon enough
/// where there are fewer.
const TIMEOUT_NS: u64 = 100_000_000;
/// At the first end of an interval after so long, prefixes get other places: who has found out which ones share a
/// record does not know it for longer. Not after each interval, since a flow's first packet is not checked.
pub(super) const RESEED_AFTER_NS: u64 = 64_000_000_000;
/// So long after the first packet since then, places are drawn anew in an interval, too: 18 minutes. Records have ticks
/// of 32 bits, by which one that idles for 37 to 73 minutes looks fresh.
const MAX_RECORD_AGE_NS: u64 = 1 << 40;
/// Packets checked of a prefix below which it is not judged.
pub const MIN_PACKETS: u64 = 16;
/// A prefix is heavily reordered above this share of packets out of order.
const HEAVY: f64 = 0.01;

/// The synopsis, and the tally of its interval.
#[derive(Debug)]
pub(super) struct Reordered {
    synopsis: Reordering,
    tally: PrefixTally,
    lengths: PrefixLengths,
    /// First fragments of the interval.
    fragments: u64,
    seed: u64,
    /// How often places were drawn anew.
    drawings: u64,
    /// End of the interval after which the last time was; before that, end of the first one.
    drawn_ns: Option<u64>,
    /// Time of the first packet with these places. All records are of that time, or later.
    first_ns: Option<u64>,
}

/// Packets out of order in one interval. Flows are sampled: shares are of the packets that were checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ReorderingInterval {
    /// TCP packets with payload that were checked.
    pub checked: u64,
    /// Those of them that were out of order: below the sequence number before them, also because they were lost and
    /// sent again.
    pub out_of_order: u64,
    /// Prefixes that had more than a hundredth of their packets out of order, with 95 % confidence.
    pub heavy_prefixes: usize,
    /// Those with the largest shares, largest first, of the prefixes that had [`MIN_PACKETS`] packets checked.
    pub worst: Vec<PrefixShare>,
    /// Reports that were dropped, since there were more prefixes than places.
    pub dropped: u64,
    /// First fragments of TCP segments, which were not checked.
    pub fragments: u64,
}

impl ReorderingInterval {
    /// What a tally of one interval says, with at most `most` prefixes.
    pub(crate) fn of(tally: &PrefixTally, fragments: u64, most: usize) -> Self {
        let (checked, out_of_order, heavy_prefixes, worst) = (0, 0, 0, Vec::new());
        let dropped = tally.dropped();
        let mut interval = Self { checked, out_of_order, heavy_prefixes, worst, dropped, fragments };
        for estimate in tally.iter() {
            interval.checked += estimate.packets;
            interval.out_of_order += estimate.out_of_order;
            if estimate.packets < MIN_PACKETS {
                continue;
            }
            let (checked, out_of_order, least_share) = (estimate.packets, estimate.out_of_order, estimate.interval.0);
            interval.heavy_prefixes += usize::from(least_share > HEAVY);
            interval.worst.push(PrefixShare { prefix: Prefix(estimate.prefix), checked, out_of_order, least_share });
        }
        // Of equal shares, the prefix comes first about which more is known.
        let order =
            |a: &PrefixShare, b: &PrefixShare| b.least_share.total_cmp(&a.least_share).then(b.checked.cmp(&a.checked));
        interval.worst.sort_by(order);
        interval.worst.truncate(most);
        interval
    }

    /// The share of packets out of order; `None` if no packet was checked.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.checked > 0).then(|| self.out_of_order as f64 / self.checked as f64)
    }
}

/// A prefix, and its packets out of order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixShare {
    /// The prefix of its source addresses.
    pub prefix: Prefix,
    /// Packets that were checked.
    pub checked: u64,
    /// Those of them that were out of order.
    pub out_of_order: u64,
    /// The least share that agrees with that (Wilson's interval of 95 %): one packet of few is no large share.
    pub least_share: f64,
}

/// The settings of reordering by prefix.
#[must_use]
pub fn reordering_settings(seed: u64) -> Settings {
    Settings {
        buckets: BUCKETS,
        split: Split::Hybrid(HEAVY_FLOWS),
        timeout_ns: TIMEOUT_NS,
        reports: Reports::Always,
        seed,
        ..Settings::default()
    }
}

/// A TCP packet as synopses of reordering take it, with a prefix of the usual length; `None` for others.
#[inline]
#[must_use]
pub fn segment(packet: &Packet<'_>, key: &DigestKey) -> Option<Segment> {
    segment_of(packet, PrefixLengths::default(), key)
}

#[inline]
fn segment_of(packet: &Packet<'_>, lengths: PrefixLengths, key: &DigestKey) -> Option<Segment> {
    let Transport::Tcp(tcp) = packet.transport else { return None };
    let control = match tcp {
        tcp if tcp.has(Tcp::RST) => Control::Reset,
        tcp if tcp.has(Tcp::SYN) => Control::Syn,
        tcp if tcp.has(Tcp::FIN) => Control::Fin,
        _ => Control::None,
    };
    Some(Segment {
        prefix: Prefix::of(&packet.source.address, lengths).0,
        flow: identity::flow(packet, key),
        sequence: tcp.sequence,
        payload: tcp.payload,
        control,
    })
}

impl Reordered {
    /// Lengths have been checked.
    pub(super) fn new(lengths: PrefixLengths, seed: u64) -> Result<Self, SettingsError> {
        Ok(Self {
            synopsis: Reordering::new(reordering_settings(seed))?,
            tally: PrefixTally::new(PREFIXES, seed)?,
            lengths,
            fragments: 0,
            seed,
            drawings: 0,
            drawn_ns: None,
            first_ns: None,
        })
    }

    #[inline]
    pub(super) fn insert(&mut self, packet: &Packet<'_>, key: &DigestKey) {
        let Some(segment) = segment_of(packet, self.lengths, key) else { return };
        // Fragments wait for each other and take paths of their own: their order is not that of segments.
        if packet.first_fragment {
            self.fragments += 1;
            return;
        }
        let now_ns = packet.time_ns;
        if self.first_ns.get_or_insert(now_ns).abs_diff(now_ns) >= MAX_RECORD_AGE_NS {
            self.give_records_up(now_ns);
        }
        if let Some(report) = self.synopsis.insert(&segment, now_ns) {
            self.tally.insert(report);
        }
    }

    /// Begins anew at a packet of `now_ns`, within an interval, which keeps what was checked.
    #[cold]
    fn give_records_up(&mut self, now_ns: u64) {
        let boundary = self.drawn_anew(now_ns);
        let Self { synopsis, tally, .. } = self;
        synopsis.close(boundary, |report| tally.insert(report));
        self.first_ns = Some(now_ns);
    }

    /// Other places than ever before, from `now_ns` on.
    fn drawn_anew(&mut self, now_ns: u64) -> Boundary {
        self.drawings += 1;
        (self.drawn_ns, self.first_ns) = (Some(now_ns), None);
        Boundary::Reseed(self.seed.wrapping_add(self.drawings << 32))
    }

    pub(super) fn end_interval(&mut self, now_ns: u64, most: usize) -> ReorderingInterval {
        let drawn_ns = *self.drawn_ns.get_or_insert(now_ns);
        let is_over = now_ns.abs_diff(drawn_ns) >= RESEED_AFTER_NS;
        let boundary = if is_over { self.drawn_anew(now_ns) } else { Boundary::KeepFlows };
        let Self { synopsis, tally, fragments, .. } = self;
        synopsis.close(boundary, |report| tally.insert(report));
        let interval = ReorderingInterval::of(tally, core::mem::take(fragments), most);
        tally.reseed(synopsis.settings().seed);
        interval
    }

    /// Forgets all flows, at a time to which the clock was set back: one of a time that is still to come would keep its
    /// place until then.
    pub(super) fn forget_flows(&mut self, now_ns: u64) {
        let boundary = self.drawn_anew(now_ns);
        self.synopsis.close(boundary, |_| {});
        self.tally.reseed(self.synopsis.settings().seed);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.synopsis.memory_bytes() + self.tally.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_never_those_of_before_also_after_the_clock_was_set_back() {
        const START: u64 = 1_700_000_000_000_000_000;
        let mut reordered = Reordered::new(PrefixLengths::default(), 3).expect("possible");
        let mut seeds = vec![reordered.synopsis.settings().seed];
        for (now_ns, is_set_back) in [
            (START, false),
            (START + RESEED_AFTER_NS - 1, false),
            (START + RESEED_AFTER_NS, false),
            (START + RESEED_AFTER_NS / 2, true),
            (START + 3 * RESEED_AFTER_NS / 2 - 1, false),
            (START + 3 * RESEED_AFTER_NS / 2, false),
        ] {
            if is_set_back {
                reordered.forget_flows(now_ns);
            } else {
                let _ = reordered.end_interval(now_ns, 1);
            }
            seeds.push(reordered.synopsis.settings().seed);
            assert_eq!(reordered.tally.seed(), reordered.synopsis.settings().seed, "one seed changes both");
        }

        let is_drawn: Vec<bool> = seeds.windows(2).map(|pair| pair[0] != pair[1]).collect();
        assert_eq!(is_drawn, [false, false, true, true, false, true]);
        seeds.dedup();
        let drawn = seeds.len();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), drawn, "places of before");
    }
}
