//! What the API server has said about tokens lately. Pure: times are arguments.
//!
//! Tokens themselves are not kept, but their digests. Good and bad ones have room of their own, so that whoever sends
//! many bad ones displaces no good one.

use core::time::Duration;
use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::account::Account;
use super::refusal::TokenRefusal;
use super::right::Right;

/// How long an account is known by its token, and that it may.
pub(super) const ALLOWED_FOR: Duration = Duration::from_secs(30);
/// How long a token is refused, and that an account may not.
pub(super) const DENIED_FOR: Duration = Duration::from_secs(5);
/// Most accounts that are known.
pub(super) const MAX_ACCOUNTS: usize = 256;
/// Most tokens of which it is known that they are refused.
pub(super) const MAX_REFUSED: usize = 512;
/// Most bytes of one account.
pub(super) const MAX_ACCOUNT_BYTES: usize = 16 << 10;
/// Most bytes of all that is known.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Most bytes of all accounts; what is left is for refused tokens.
const MAX_ACCOUNTS_BYTES: usize = MAX_BYTES / 2;
/// What an entry takes beside its account.
const ENTRY_BYTES: usize = 512;
/// Most questions in one second.
pub(super) const MAX_PER_S: u32 = 32;

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// That of `token`.
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// What is known of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownToken {
    /// Whose it is.
    Account(Account),
    /// Why it is refused.
    Refused(TokenRefusal),
}

#[derive(Debug)]
struct Holder {
    account: Account,
    until: Duration,
    decisions: BTreeMap<Right, (bool, Duration)>,
}

impl Holder {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.account.bytes()
    }
}

/// What is known of all tokens.
#[derive(Debug, Default)]
pub(super) struct Answers {
    accounts: BTreeMap<Digest, Holder>,
    account_bytes: usize,
    refused: BTreeMap<Digest, (TokenRefusal, Duration)>,
    /// A second, and the questions in it.
    asked: (u64, u32),
}

impl Answers {
    /// Whether one more question may be asked now. It counts as asked.
    pub(super) fn may_ask(&mut self, now: Duration) -> bool {
        let (second, questions) = self.asked;
        let questions = if second == now.as_secs() { questions } else { 0 };
        self.asked = (now.as_secs(), questions.saturating_add(1).min(MAX_PER_S));
        questions < MAX_PER_S
    }

    /// What is known of a token.
    pub(super) fn token(&self, digest: &Digest, now: Duration) -> Option<KnownToken> {
        let account = self.accounts.get(digest).filter(|holder| now < holder.until);
        let refused = || self.refused.get(digest).filter(|(_, until)| now < *until);
        let account = account.map(|holder| KnownToken::Account(holder.account.clone()));
        account.or_else(|| refused().map(|(refusal, _)| KnownToken::Refused(refusal.clone())))
    }

    /// Whether the holder of a token may use `right`, if that is known.
    pub(super) fn allowed(&self, digest: &Digest, right: Right, now: Duration) -> Option<bool> {
        let (is_allowed, until) = self.accounts.get(digest)?.decisions.get(&right)?;
        (now < *until).then_some(*is_allowed)
    }

    /// The token is of `account`, as asked at `asked`.
    pub(super) fn add_account(&mut self, digest: Digest, account: Account, asked: Duration) {
        self.forget(&digest);
        self.refused.remove(&digest);
        let holder = Holder { account, until: asked + ALLOWED_FOR, decisions: BTreeMap::new() };
        let bytes = holder.bytes();
        while self.accounts.len() >= MAX_ACCOUNTS || self.account_bytes + bytes > MAX_ACCOUNTS_BYTES {
            let first = self.accounts.iter().min_by_key(|(_, holder)| holder.until).map(|(digest, _)| *digest);
            let Some(first) = first else { return };
            self.forget(&first);
        }
        self.account_bytes += bytes;
        self.accounts.insert(digest, holder);
    }

    /// The token is refused, as asked at `asked`.
    pub(super) fn add_refused(&mut self, digest: Digest, refusal: TokenRefusal, asked: Duration) {
        self.forget(&digest);
        if self.refused.len() >= MAX_REFUSED
            && let Some(first) = self.refused.iter().min_by_key(|(_, (_, until))| *until).map(|(digest, _)| *digest)
        {
            self.refused.remove(&first);
        }
        self.refused.insert(digest, (refusal, asked + DENIED_FOR));
    }

    /// Whether the holder of a token may use `right`, as asked at `asked`. Nothing, if the token was displaced
    /// meanwhile.
    pub(super) fn add_decision(&mut self, digest: &Digest, right: Right, is_allowed: bool, asked: Duration) {
        let until = asked + if is_allowed { ALLOWED_FOR } else { DENIED_FOR };
        if let Some(holder) = self.accounts.get_mut(digest) {
            holder.decisions.insert(right, (is_allowed, until));
        }
    }

    fn forget(&mut self, digest: &Digest) {
        self.account_bytes -= self.accounts.remove(digest).map_or(0, |gone| gone.bytes());
    }

    /// Accounts, refused tokens, and bytes of accounts.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.accounts.len(), self.refused.len(), self.account_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_string())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_answer_is_good_for_seconds_from_the_question_on_and_a_refusal_for_fewer() {
        let mut answers = Answers::default();
        answers.add_account(digest(1), Account::named("a"), at(10));
        answers.add_decision(&digest(1), Right::Read, true, at(10));
        answers.add_decision(&digest(1), Right::Hook, false, at(10));
        answers.add_refused(digest(2), TokenRefusal::Malformed, at(10));

        assert_eq!(answers.token(&digest(1), at(39)), Some(KnownToken::Account(Account::named("a"))));
        assert_eq!(answers.token(&digest(1), at(40)), None);
        assert_eq!([39, 40].map(|s| answers.allowed(&digest(1), Right::Read, at(s))), [Some(true), None]);
        assert_eq!([14, 15].map(|s| answers.allowed(&digest(1), Right::Hook, at(s))), [Some(false), None]);
        assert_eq!(answers.token(&digest(2), at(14)), Some(KnownToken::Refused(TokenRefusal::Malformed)));
        assert_eq!(answers.token(&digest(2), at(15)), None);
        assert_eq!(answers.allowed(&digest(1), Right::CreateLmap, at(11)), None, "one right says nothing of another");
    }

    #[test]
    fn bad_tokens_displace_bad_ones_and_never_a_good_one() {
        let mut answers = Answers::default();
        answers.add_account(digest(0), Account::named("good"), at(0));
        for number in 1..=2 * MAX_REFUSED {
            answers.add_refused(digest(number), TokenRefusal::Malformed, at(0) + Duration::from_millis(number as u64));
        }

        assert!(answers.token(&digest(0), at(1)).is_some());
        assert_eq!(answers.sizes().1, MAX_REFUSED);
        assert_eq!(answers.token(&digest(1), at(1)), None, "the oldest is gone");
        assert!(answers.token(&digest(2 * MAX_REFUSED), at(1)).is_some());
    }

    #[test]
    fn accounts_are_bounded_in_number_and_in_bytes() {
        let mut answers = Answers::default();
        for number in 0..2 * MAX_ACCOUNTS {
            answers.add_account(digest(number), Account::named("a"), Duration::from_millis(number as u64));
        }
        assert_eq!(answers.sizes().0, MAX_ACCOUNTS);
        let long = Account::named(&"x".repeat(MAX_ACCOUNT_BYTES - 1_000));
        for number in 0..2 * MAX_ACCOUNTS {
            answers.add_account(digest(number), long.clone(), at(1) + Duration::from_millis(number as u64));
        }

        let (accounts, _, bytes) = answers.sizes();
        assert!((32..=72).contains(&accounts) && bytes <= MAX_ACCOUNTS_BYTES, "{accounts} accounts of {bytes} bytes");
        assert_eq!(bytes, answers.accounts.values().map(Holder::bytes).sum::<usize>());
        answers.add_refused(digest(2 * MAX_ACCOUNTS - 1), TokenRefusal::Malformed, at(2));
        assert_eq!(answers.sizes().0, accounts - 1, "what was good is not any more");
    }

    #[test]
    fn questions_of_one_second_are_bounded() {
        let mut answers = Answers::default();

        let asked = (0..100).filter(|_| answers.may_ask(at(7))).count();

        assert_eq!(asked, MAX_PER_S as usize);
        assert!(answers.may_ask(at(8)));
    }
}
