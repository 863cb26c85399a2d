//! Who may read the page. A viewer asks the agent for a token over the operators' API, where the kernel or a
//! certificate says who it is. A browser exchanges the token, once, for a session's cookie.
//!
//! Tokens and cookies are 32 random bytes. They are compared in constant time, and with all that are known, so that the
//! time says nothing about how close a guess was.

use std::collections::VecDeque;

use subtle::ConstantTimeEq as _;
use wire::time::Nanos;

/// How long a token can be exchanged.
pub const TOKEN_LIFETIME: Nanos = Nanos::from_secs(300);
/// How long a session lasts.
pub const SESSION_LIFETIME: Nanos = Nanos::from_secs(12 * 3600);
/// Tokens that wait to be exchanged: of all viewers, and of one.
pub const MAX_TOKENS: (usize, usize) = (64, 8);
/// Sessions: of all viewers, and of one.
pub const MAX_SESSIONS: (usize, usize) = (128, 16);

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// A token, or the value of a cookie: 32 bytes that nobody can guess, 64 hexadecimal digits as text.
#[derive(Clone, Copy)]
pub struct Secret([u8; SECRET_BYTES]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret of `random` bytes, drawn by a generator for cryptography.
    #[must_use]
    pub const fn new(random: [u8; SECRET_BYTES]) -> Self {
        Self(random)
    }

    /// The secret that `text` is; `None` unless it has exactly 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * SECRET_BYTES {
            return None;
        }
        let mut bytes = [0; SECRET_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(Self(bytes))
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.iter().fold(String::with_capacity(2 * SECRET_BYTES), |text, byte| text + &format!("{byte:02x}"))
    }
}

/// No token can be given out: those of others wait to be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting} addresses of the page wait to be opened: open one, or wait {} s", TOKEN_LIFETIME.0 / 1_000_000_000)]
pub struct TooManyTokens {
    /// Tokens that wait.
    pub waiting: usize,
}

/// A token or a session, and whose it is.
#[derive(Debug)]
struct Entry<O> {
    secret: Secret,
    owner: O,
    until: Nanos,
}

/// Entries in the order of their making, so that the oldest ends first.
#[derive(Debug)]
struct Entries<O> {
    entries: VecDeque<Entry<O>>,
    most: (usize, usize),
}

impl<O: PartialEq> Entries<O> {
    const fn new(most: (usize, usize)) -> Self {
        Self { entries: VecDeque::new(), most }
    }

    fn expire(&mut self, now: Nanos) {
        self.entries.retain(|entry| now < entry.until);
    }

    /// Adds one. The oldest of the same owner makes room if it has its share. False if those of others fill it.
    #[must_use]
    fn add(&mut self, entry: Entry<O>) -> bool {
        let (all, of_one) = self.most;
        if self.entries.iter().filter(|other| other.owner == entry.owner).count() >= of_one
            && let Some(oldest) = self.entries.iter().position(|other| other.owner == entry.owner)
        {
            self.entries.remove(oldest);
        }
        let has_room = self.entries.len() < all;
        if has_room {
            self.entries.push_back(entry);
        }
        has_room
    }

    /// Where `secret` is. Looks at all entries, whichever it is.
    fn position(&self, secret: &Secret) -> Option<usize> {
        let mut position = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if bool::from(entry.secret.0.ct_eq(&secret.0)) {
                position = Some(at);
            }
        }
        position
    }
}

/// Tokens and sessions of owners `O`, in bounded number. Time is monotonic.
#[derive(Debug)]
pub struct Sessions<O> {
    tokens: Entries<O>,
    sessions: Entries<O>,
}

impl<O: PartialEq> Default for Sessions<O> {
    fn default() -> Self {
        Self { tokens: Entries::new(MAX_TOKENS), sessions: Entries::new(MAX_SESSIONS) }
    }
}

impl<O: PartialEq> Sessions<O> {
    /// Gives `token` to `owner`, for [`TOKEN_LIFETIME`]. Of nine that one owner asked for, the first is void.
    ///
    /// # Errors
    ///
    /// [`TooManyTokens`] if 64 wait, those of others included.
    pub fn grant(&mut self, now: Nanos, token: Secret, owner: O) -> Result<(), TooManyTokens> {
        self.tokens.expire(now);
        let until = now.plus(TOKEN_LIFETIME);
        let has_room = self.tokens.add(Entry { secret: token, owner, until });
        if has_room { Ok(()) } else { Err(TooManyTokens { waiting: self.tokens.entries.len() }) }
    }

    /// Exchanges `token` for a session that `cookie` is the secret of. The token is void from now on. Returns the
    /// owner; `None` if the token is unknown, was used or is too old, or if there are 128 sessions of others. Of 17
    /// sessions of one owner the first ends.
    pub fn exchange(&mut self, now: Nanos, token: &Secret, cookie: Secret) -> Option<&O> {
        self.tokens.expire(now);
        self.sessions.expire(now);
        let Entry { owner, .. } = self.tokens.entries.remove(self.tokens.position(token)?)?;
        let until = now.plus(SESSION_LIFETIME);
        let opened = self.sessions.add(Entry { secret: cookie, owner, until });
        self.sessions.entries.back().filter(|_| opened).map(|entry| &entry.owner)
    }

    /// Whose session `cookie` is of; `None` if it is unknown or has ended.
    #[must_use]
    pub fn owner(&self, now: Nanos, cookie: &Secret) -> Option<&O> {
        let entry = self.sessions.entries.get(self.sessions.position(cookie)?)?;
        (now < entry.until).then_some(&entry.owner)
    }

    /// Numbers of tokens that wait, and of sessions; those that have ended since the last change count.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.tokens.entries.len(), self.sessions.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1_000);

    fn secret(number: u8) -> Secret {
        Secret::new([number; SECRET_BYTES])
    }

    #[test]
    fn a_token_opens_one_session_and_no_second_one() {
        let mut sessions = Sessions::default();
        sessions.grant(NOW, secret(1), "alice").unwrap();

        assert_eq!(sessions.exchange(NOW, &secret(9), secret(2)), None);
        assert_eq!(sessions.exchange(NOW, &secret(1), secret(2)), Some(&"alice"));
        assert_eq!(sessions.exchange(NOW, &secret(1), secret(3)), None);

        assert_eq!(sessions.owner(NOW, &secret(2)), Some(&"alice"));
        assert_eq!(sessions.owner(NOW, &secret(3)), None);
        assert_eq!(sessions.owner(NOW, &secret(1)), None, "a token is no cookie");
    }

    #[test]
    fn tokens_and_sessions_end() {
        let mut sessions = Sessions::default();
        sessions.grant(NOW, secret(1), "alice").unwrap();
        sessions.grant(NOW, secret(2), "alice").unwrap();
        let late = NOW.plus(TOKEN_LIFETIME);

        assert!(sessions.exchange(Nanos(late.0 - 1), &secret(1), secret(11)).is_some());
        assert!(sessions.exchange(late, &secret(2), secret(12)).is_none());

        let ends = Nanos(late.0 - 1).plus(SESSION_LIFETIME);
        assert!(sessions.owner(Nanos(ends.0 - 1), &secret(11)).is_some());
        assert!(sessions.owner(ends, &secret(11)).is_none());
    }

    #[test]
    fn one_viewer_takes_its_own_share_only() {
        let mut sessions = Sessions::default();
        sessions.grant(NOW, secret(200), "bob").unwrap();
        for number in 0..100 {
            sessions.grant(NOW, secret(number), "alice").unwrap();
        }
        assert_eq!(sessions.counts(), (1 + MAX_TOKENS.1, 0));
        assert!(sessions.exchange(NOW, &secret(91), secret(1)).is_none(), "the oldest is void");
        assert!(sessions.exchange(NOW, &secret(92), secret(1)).is_some());
        assert!(sessions.exchange(NOW, &secret(200), secret(2)).is_some());
        for number in 3..100 {
            sessions.grant(NOW, secret(number), "alice").unwrap();
            assert!(sessions.exchange(NOW, &secret(number), secret(number)).is_some());
        }
        assert_eq!(sessions.counts().1, 1 + MAX_SESSIONS.1);
        assert!(sessions.owner(NOW, &secret(2)).is_some() && sessions.owner(NOW, &secret(1)).is_none());
    }

    #[test]
    fn when_others_fill_it_nothing_is_given_out_until_theirs_are_too_old() {
        let mut sessions = Sessions::default();
        for number in 0..MAX_TOKENS.0 {
            sessions.grant(NOW, secret(number as u8), number / MAX_TOKENS.1).unwrap();
        }

        let full = sessions.grant(NOW, secret(200), 99).unwrap_err();
        assert_eq!(full.to_string(), "64 addresses of the page wait to be opened: open one, or wait 300 s");
        assert!(sessions.grant(NOW.plus(TOKEN_LIFETIME), secret(200), 99).is_ok());
    }

    #[test]
    fn a_secret_is_64_digits_and_is_not_printed() {
        let secret = Secret::new(core::array::from_fn(|at| at as u8 * 8));

        assert_eq!(Secret::parse(&secret.text()).unwrap().text(), secret.text());
        for wrong in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32), &"+1".repeat(32)] {
            assert!(Secret::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
