//! Bytes per second that a tenant may keep, as token buckets, and which policy yields when they are short.

use wire::time::Nanos;

use crate::tracing::peers::{PeerShares, Peers};
use crate::tracing::reason::Policy;

/// Limits of one tenant's budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetRule {
    /// Encoded bytes that may be kept per second, in the long run. 1 MB by default.
    pub bytes_per_s: u64,
    /// Unused budget is saved for so long: the depth of the buckets. 10 s by default.
    pub burst: Nanos,
    /// Share of the budget that is reserved for the floor, 0 to 1. 0.2 by default.
    pub floor_share: f64,
    /// Share of the budget that is reserved for errors, 0 to 1. 0.2 by default.
    pub error_share: f64,
}

impl Default for BudgetRule {
    fn default() -> Self {
        Self { bytes_per_s: 1_000_000, burst: Nanos::from_secs(10), floor_share: 0.2, error_share: 0.2 }
    }
}

/// Share of the common bucket that other nodes may take, by their decisions and their verdicts together.
const OTHERS: f64 = 0.5;
/// Share of their part below which other nodes have a share of it each.
const SHARED: f64 = 0.5;
/// Share of the common bucket that is left to this node's own LMAPs, and errors, before verdicts of other nodes.
const BEFORE_OTHERS: f64 = 0.3;
/// Share of the common bucket above which nobody here wants it: more than any policy's own.
const UNWANTED: f64 = 0.7;

/// Share of the common bucket above which bytes are spare: more than all policies, and other nodes, leave.
const SPARE: f64 = 0.8;

/// For how long it is remembered how many late bytes follow a trace.
const MEMORY_S: f64 = 60.0;
/// Traces from which on that is known.
const KNOWN_FROM: f64 = 8.0;

/// Who pays for a trace that this node selects, and for its late spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    /// A policy of this node, by what this node has seen itself.
    Own(Policy),
    /// One of these other nodes: [`Policy::Lmap`] of this node, by their verdicts only. Decisions of other nodes are
    /// paid by [`Peers::UNKNOWN`].
    Others(Peers),
}

impl Payer {
    /// The policy that selects the trace.
    #[must_use]
    pub const fn policy(self) -> Policy {
        match self {
            Self::Own(policy) => policy,
            Self::Others(_) => Policy::Lmap,
        }
    }
}

/// Invalid settings of a budget.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The shares are negative, or exceed the whole budget together.
    #[error("shares of {floor} for the floor and {error} for errors: both must be at least 0, and together at most 1")]
    Shares {
        /// Share of the floor.
        floor: f64,
        /// Share of errors.
        error: f64,
    },
    /// The budget is zero.
    #[error("a budget of {bytes_per_s} bytes per second with a burst of {burst}: both must be above 0")]
    Nothing {
        /// Configured bytes per second.
        bytes_per_s: u64,
        /// Configured length of the burst.
        burst: Nanos,
    },
}

/// A token bucket: tokens are bytes. Below zero for bytes that were kept on credit.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    most: f64,
    per_s: f64,
}

/// Share of the common bucket that a policy leaves to those that yield later.
const fn reserve(policy: Policy) -> f64 {
    match policy {
        Policy::Floor => 0.0,
        Policy::Error => 0.1,
        Policy::Lmap => 0.2,
        Policy::Latency => 0.4,
        Policy::Trigger => 0.6,
    }
}

impl TokenBucket {
    fn full(per_s: f64, burst: Nanos) -> Self {
        let most = per_s * burst.as_secs_f64();
        Self { tokens: most, most, per_s }
    }

    /// Adds the tokens of `seconds` and `more`. Returns what did not fit.
    fn fill(&mut self, seconds: f64, more: f64) -> f64 {
        let filled = self.tokens + self.per_s * seconds + more;
        self.tokens = filled.min(self.most);
        filled - self.tokens
    }

    /// A trace of `bytes` is granted as long as there are more than `reserve` tokens, and may take more than that: in
    /// the long run the rate holds. Returns how much of `advance` it paid, too, as far as tokens were left.
    fn spend(&mut self, bytes: f64, advance: f64, reserve: f64) -> Option<f64> {
        let is_granted = self.tokens > reserve;
        is_granted.then(|| {
            self.tokens -= bytes;
            self.take_above(0.0, advance)
        })
    }

    /// What may be kept on credit: down to one burst below zero.
    fn credit(&self) -> f64 {
        (self.tokens + self.most).max(0.0)
    }

    /// Takes up to `bytes`, as far as there are tokens above `least`. Returns how many it took.
    fn take_above(&mut self, least: f64, bytes: f64) -> f64 {
        let taken = (self.tokens - least).clamp(0.0, bytes);
        self.tokens -= taken;
        taken
    }
}

/// What follows the traces that a policy selects: late bytes, and those paid for in advance.
#[derive(Clone, Copy, Debug, Default)]
struct Followers {
    traces: f64,
    bytes: f64,
    prepaid: f64,
}

impl Followers {
    /// Late bytes of a trace, in the mean of the last minute.
    fn expected(&self) -> f64 {
        if self.traces < KNOWN_FROM { 0.0 } else { self.bytes / self.traces }
    }

    /// Forgets a part after `seconds`. Returns what was paid in advance for spans that did not come.
    fn age(&mut self, seconds: f64) -> f64 {
        let stays = (-seconds / MEMORY_S).exp();
        let refund = self.prepaid * (1.0 - stays);
        (self.traces, self.bytes, self.prepaid) = (self.traces * stays, self.bytes * stays, self.prepaid - refund);
        refund
    }
}

/// What a tenant may keep.
///
/// The floor and errors have a bucket each. The rest of the budget, and what overflows from these two, is in a common
/// bucket. From that, [`Policy::Trigger`] may take only while more than 60 % of the burst are saved,
/// [`Policy::Latency`] 40 %, [`Policy::Lmap`] 20 %, [`Policy::Error`] 10 %. So they yield in this order under lasting
/// demand: the later ones get nothing unless the earlier ones leave enough.
///
/// A trace that this node selects costs what is there, and what usually follows: the mean of late bytes of the policy's
/// traces in the last minute, since they come seconds later. Late spans beyond that are owed in full: by the policy's
/// own bucket first, then by the common one. So a policy that selects traces early, by their first span, has fewer of
/// them, and not others.
///
/// Whatever arrives, and however early traces are selected, all policies but the floor keep together at most rate ×
/// time, the burst that was saved, one more that may be owed, and one trace for each of the two buckets, which may be
/// larger than what is left of it.
///
/// What other nodes decide is never refused, and charged to the common bucket up to half of it. From the same half,
/// traces are paid that only verdicts of other nodes select, as long as 30 % are saved: behind this node's own LMAPs.
/// Beyond that half they take what nobody here wants, above 70 %. So however much a peer keeps or finds anomalous, or
/// says that it does, this node's own policies have the other half, and its LMAPs come first.
///
/// Other nodes share their half: while less than half of that is left, whose verdicts have taken an equal share of it
/// within a burst gets no more. So a peer that finds everything anomalous leaves the others theirs. Decisions have one
/// share together, with late spans of what only verdicts of others selected. Beyond it neither is charged.
#[derive(Clone, Debug)]
pub struct Budget {
    floor: TokenBucket,
    error: TokenBucket,
    common: TokenBucket,
    /// What may still be charged to the common bucket for decisions and verdicts of others.
    others: TokenBucket,
    shares: Box<PeerShares>,
    followers: [Followers; Policy::ALL.len()],
    at: Nanos,
    forgiven: f64,
    refused: f64,
}

impl Budget {
    /// A full budget, at `now`.
    ///
    /// # Errors
    ///
    /// [`BudgetError`], for shares that are not shares and for a budget of nothing.
    pub fn new(rule: BudgetRule, now: Nanos) -> Result<Self, BudgetError> {
        let BudgetRule { bytes_per_s, burst, floor_share: floor, error_share: error } = rule;
        if !(floor >= 0.0 && error >= 0.0 && floor + error <= 1.0) {
            return Err(BudgetError::Shares { floor, error });
        }
        if bytes_per_s == 0 || burst == Nanos::ZERO {
            return Err(BudgetError::Nothing { bytes_per_s, burst });
        }
        let bucket = |share: f64| TokenBucket::full(bytes_per_s as f64 * share, burst);
        let others = bucket((1.0 - floor - error) * OTHERS);
        Ok(Self {
            floor: bucket(floor),
            error: bucket(error),
            common: bucket(1.0 - floor - error),
            shares: Box::new(PeerShares::new(others.most, burst, now)),
            others,
            followers: Default::default(),
            at: now,
            forgiven: 0.0,
            refused: 0.0,
        })
    }

    /// Whether `payer` may keep a trace of `bytes` at `now`; if so, the bytes are taken from the budget. The floor
    /// always may, because its share is a promise to every reader of `ot=th`: what it needs beyond its buckets is owed.
    pub fn spend(&mut self, payer: Payer, bytes: u64, now: Nanos) -> bool {
        self.fill(now);
        let bytes = bytes as f64;
        match payer {
            Payer::Own(policy) => self.spend_own(policy, bytes),
            Payer::Others(peers) => self.spend_for_others(peers, bytes, now),
        }
    }

    /// Like [`spend`](Self::spend), for something that nothing follows: a log record.
    #[must_use = "what is refused is not to be exported"]
    pub fn spend_alone(&mut self, payer: Payer, bytes: u64, now: Nanos) -> bool {
        self.fill(now);
        let bytes = bytes as f64;
        let policy = match payer {
            Payer::Own(policy) => policy,
            Payer::Others(peers) => return self.spend_for_others(peers, bytes, now),
        };
        let reserve = reserve(policy) * self.common.most;
        let own = self.bucket_of(policy).and_then(|bucket| bucket.spend(bytes, 0.0, 0.0));
        if own.or_else(|| self.common.spend(bytes, 0.0, reserve)).is_some() {
            return true;
        }
        if policy == Policy::Floor {
            self.owe(bytes);
        }
        policy == Policy::Floor
    }

    /// Like [`spend`](Self::spend) with [`Policy::Trigger`], for a trace that nobody needs: only while more than 80 %
    /// of the burst are saved.
    pub fn spend_spare(&mut self, bytes: u64, now: Nanos) -> bool {
        self.fill(now);
        self.common.tokens > SPARE * self.common.most && self.spend_own(Policy::Trigger, bytes as f64)
    }

    fn spend_own(&mut self, policy: Policy, bytes: f64) -> bool {
        let advance = self.followers[policy as usize].expected();
        let reserve = reserve(policy) * self.common.most;
        let own = self.bucket_of(policy).and_then(|bucket| bucket.spend(bytes, advance, 0.0));
        if let Some(prepaid) = own.or_else(|| self.common.spend(bytes, advance, reserve)) {
            let followers = &mut self.followers[policy as usize];
            followers.traces += 1.0;
            followers.prepaid += prepaid;
            return true;
        }
        if policy == Policy::Floor {
            self.owe(bytes);
        }
        policy == Policy::Floor
    }

    /// The place of the one of `peers` that pays, and whether it may take of what is theirs.
    fn part_of(&mut self, peers: Peers, now: Nanos) -> (usize, bool) {
        let (place, has_share) = self.shares.wants(peers, now);
        let least = if has_share { 0.0 } else { SHARED * self.others.most };
        (place, self.others.tokens > least)
    }

    fn spend_for_others(&mut self, peers: Peers, bytes: f64, now: Nanos) -> bool {
        let (place, has_part) = self.part_of(peers, now);
        let reserve = if has_part { BEFORE_OTHERS } else { UNWANTED } * self.common.most;
        let granted = self.common.spend(bytes, 0.0, reserve).is_some();
        if granted && has_part {
            self.others.tokens -= bytes;
            self.shares.take(place, bytes);
        }
        granted
    }

    /// Whether late spans of `bytes` may be kept, of a trace that was selected before; if so, they are taken. A policy
    /// owes them in full: what its own bucket has goes first, then what it may take of the common one, then both are in
    /// debt, its own first. It selects no further trace before they are paid, and what others have is untouched until
    /// then. Debts end at one burst of each bucket: what would go beyond is refused, since a trace that was selected by
    /// its first span may be followed by any number. Those of [`Payer::Others`] are charged as their decisions are, and
    /// never refused; nor are those of the floor.
    #[must_use = "what is refused is not to be exported"]
    pub fn late(&mut self, payer: Payer, bytes: u64, now: Nanos) -> bool {
        let policy = match payer {
            Payer::Own(policy) => policy,
            Payer::Others(peers) => {
                self.charge_to(peers, bytes, now);
                return true;
            }
        };
        self.fill(now);
        let bytes = bytes as f64;
        let credit = self.bucket_of(policy).map_or(0.0, |own| own.credit()) + self.common.credit();
        let followers = &mut self.followers[policy as usize];
        if policy != Policy::Floor && bytes > credit + followers.prepaid {
            self.refused += bytes;
            return false;
        }
        followers.bytes += bytes;
        let prepaid = followers.prepaid.min(bytes);
        followers.prepaid -= prepaid;
        let mut owed = bytes - prepaid;
        if let Some(own) = self.bucket_of(policy) {
            owed -= own.take_above(0.0, owed);
        }
        let reserve = reserve(policy) * self.common.most;
        owed -= self.common.take_above(reserve, owed);
        if let Some(own) = self.bucket_of(policy) {
            owed -= own.take_above(-own.most, owed);
        }
        self.owe(owed);
        true
    }

    /// The bucket that is reserved for a policy.
    const fn bucket_of(&mut self, policy: Policy) -> Option<&mut TokenBucket> {
        match policy {
            Policy::Floor => Some(&mut self.floor),
            Policy::Error => Some(&mut self.error),
            Policy::Lmap | Policy::Latency | Policy::Trigger => None,
        }
    }

    /// Takes `bytes` that another node decided to keep, late spans included. They are kept whatever is left. More than
    /// half of the common bucket in the long run, more than the share of all decisions, and debts beyond one burst, are
    /// forgiven and counted.
    pub fn charge(&mut self, bytes: u64, now: Nanos) {
        self.charge_to(Peers::UNKNOWN, bytes, now);
    }

    fn charge_to(&mut self, peers: Peers, bytes: u64, now: Nanos) {
        self.fill(now);
        let (place, has_part) = self.part_of(peers, now);
        let charged = if has_part { (bytes as f64).min(self.others.tokens) } else { 0.0 };
        self.others.tokens -= charged;
        self.shares.take(place, charged);
        self.forgiven += bytes as f64 - charged;
        self.owe(charged);
    }

    fn owe(&mut self, bytes: f64) {
        // A large trace may have left a debt of more than a burst: that is not forgiven.
        let least = self.common.tokens.min(-self.common.most);
        self.common.tokens -= bytes;
        let beyond = least - self.common.tokens;
        if beyond > 0.0 {
            self.common.tokens += beyond;
            self.forgiven += beyond;
        }
    }

    /// The level of the common bucket: 1 if nothing was used for the time of a burst, below 0 while it is in debt.
    #[must_use]
    pub fn left(&self) -> f64 {
        if self.common.most > 0.0 { self.common.tokens / self.common.most } else { 0.0 }
    }

    /// Bytes that were kept beyond the budget and never paid for: of the floor, and of other nodes' decisions.
    #[must_use]
    pub const fn forgiven(&self) -> f64 {
        self.forgiven
    }

    /// Bytes of late spans that were refused.
    #[must_use]
    pub const fn refused(&self) -> f64 {
        self.refused
    }

    fn fill(&mut self, now: Nanos) {
        let Some(passed) = now.since(self.at) else { return };
        self.at = now;
        let seconds = passed.as_secs_f64();
        let spilled = self.floor.fill(seconds, 0.0) + self.error.fill(seconds, 0.0);
        let refunds: f64 = self.followers.iter_mut().map(|followers| followers.age(seconds)).sum();
        self.common.fill(seconds, spilled + refunds);
        self.others.fill(seconds, 0.0);
    }
}

#[cfg(test)]
mod tests;
