//! Callers who show a token of their cluster: its API server says who they are (TokenReview), and whether they may
//! (SubjectAccessReview). What it says is kept for seconds; what it does not say is refused (decision D43).
//!
//! | module | what |
//! | --- | --- |
//! | `plan` | whose tokens are taken |
//! | `credential` | what a caller shows; pure |
//! | `right` | which verb of which resource each call of the operators' API needs; pure |
//! | `account` | accounts of a cluster; pure |
//! | `answers` | what was said lately, bounded in number, bytes and time; pure |
//! | `refusal` | why a caller is refused, with the command that grants it; pure |
//! | `reviewer` | asks the API server |

mod account;
mod answers;
mod credential;
mod plan;
mod refusal;
mod reviewer;
mod right;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::sync::Mutex;

use agent_runtime::access::Identity;
use agent_runtime::lock;
use kube::Client;
use tokio::sync::Semaphore;

use self::account::Account;
use self::answers::{Answers, Digest, KnownToken};
pub(crate) use self::credential::Credential;
use self::credential::MAX_TOKEN_BYTES;
pub(crate) use self::plan::TokenPlan;
use self::refusal::TokenRefusal;
use self::reviewer::Reviewer;
pub(crate) use self::right::Right;
use crate::clock::Clock;

/// Questions to the API server at a time.
const AT_A_TIME: usize = 8;
/// Most bytes of all that is known, and of questions: a token is there as text and as JSON, an answer as well.
pub(crate) const BYTES: usize = answers::MAX_BYTES + AT_A_TIME * 4 * MAX_TOKEN_BYTES;
/// How long one call waits for the API server.
const WITHIN: Duration = Duration::from_secs(2);
/// After a question without an answer, the next one is asked this much later.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it is asked whether those who read a stream still may.
const AGAIN: Duration = Duration::from_secs(30);
/// How long the status says that there was no answer, unless there is one.
const TOLD_FOR: Duration = Duration::from_mins(10);

/// A question that had no answer.
#[derive(Clone, Debug)]
struct Outage {
    why: String,
    at: Duration,
}

/// Decides about callers with tokens.
pub(crate) struct TokenAccess {
    plan: TokenPlan,
    reviewer: Reviewer,
    clock: Clock,
    answers: Mutex<Answers>,
    slots: Semaphore,
    outage: Mutex<Option<Outage>>,
    again: Duration,
}

impl core::fmt::Debug for TokenAccess {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TokenAccess").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl TokenAccess {
    /// Asks the API server that `config` names. Needs a tokio runtime around it, on which the client runs.
    ///
    /// # Errors
    ///
    /// The client's: its certificates cannot be used.
    pub(crate) fn new(plan: TokenPlan, mut config: kube::Config, clock: Clock) -> Result<Self, kube::Error> {
        // A caller waits: what fails is said, and not repeated in its place.
        config.default_retry = false;
        let reviewer = Reviewer::new(Client::try_from(config)?, &plan);
        let (answers, outage) = Default::default();
        Ok(Self { plan, reviewer, clock, answers, slots: Semaphore::new(AT_A_TIME), outage, again: AGAIN })
    }

    /// Who shows `shown`, if the cluster lets them use `right`. `what` completes "may not …".
    ///
    /// # Errors
    ///
    /// [`TokenRefusal`]: who is refused, why, and what grants it; also if the API server does not answer.
    pub(crate) async fn allow(
        &self,
        shown: &Credential,
        right: Right,
        what: &'static str,
    ) -> Result<Identity, TokenRefusal> {
        let audience = || self.plan.audience.clone();
        let token = match shown {
            Credential::Token(token) => token,
            Credential::Nothing => return Err(TokenRefusal::Missing { audience: audience() }),
            Credential::Malformed => return Err(TokenRefusal::Malformed),
        };
        let digest = Digest::of(token);
        let known = lock(&self.answers).token(&digest, self.now());
        let account = match known {
            Some(KnownToken::Account(account)) => account,
            Some(KnownToken::Refused(refusal)) => return Err(refusal),
            None => self.ask_who(digest, token).await?,
        };
        let known = lock(&self.answers).allowed(&digest, right, self.now());
        let is_allowed = match known {
            Some(is_allowed) => is_allowed,
            None => self.ask_whether(digest, &account, right).await?,
        };
        if is_allowed { Ok(Identity::Account(account.name)) } else { Err(TokenRefusal::denied(&account, right, what)) }
    }

    /// Resolves once the cluster does not let whoever shows `shown` use `right` any more, or their token has expired.
    /// It is asked every half minute; as long as it does not answer, what it has said holds.
    pub(crate) async fn withdrawn(&self, shown: &Credential, right: Right, what: &'static str) -> TokenRefusal {
        let Credential::Token(token) = shown else { return TokenRefusal::Malformed };
        let digest = Digest::of(token);
        let ask = async || {
            let account = self.ask_who(digest, token).await?;
            let is_allowed = self.ask_whether(digest, &account, right).await?;
            if is_allowed { Ok(()) } else { Err(TokenRefusal::denied(&account, right, what)) }
        };
        loop {
            tokio::time::sleep(self.again).await;
            match ask().await {
                Ok(()) | Err(TokenRefusal::Unanswered { .. } | TokenRefusal::Busy) => {}
                Err(refusal) => return refusal,
            }
        }
    }

    /// What an operator has to know, for the status.
    pub(crate) fn problem(&self) -> Option<String> {
        let Outage { why, at } = lock(&self.outage).clone()?;
        (self.now().saturating_sub(at) < TOLD_FOR).then(|| {
            format!(
                "kubernetes: tokens of operators and viewers cannot be checked: {why}; who shows one is refused meanwhile \
                 (may the service account create tokenreviews and subjectaccessreviews?)"
            )
        })
    }

    async fn ask_who(&self, digest: Digest, token: &str) -> Result<Account, TokenRefusal> {
        let (asked, answer) = self.asked(self.reviewer.who(token)).await?;
        let mut answers = lock(&self.answers);
        match answer {
            KnownToken::Account(account) => {
                answers.add_account(digest, account.clone(), asked);
                Ok(account)
            }
            KnownToken::Refused(refusal) => {
                answers.add_refused(digest, refusal.clone(), asked);
                Err(refusal)
            }
        }
    }

    async fn ask_whether(&self, digest: Digest, account: &Account, right: Right) -> Result<bool, TokenRefusal> {
        let (asked, is_allowed) = self.asked(self.reviewer.may(account, right)).await?;
        lock(&self.answers).add_decision(&digest, right, is_allowed, asked);
        Ok(is_allowed)
    }

    /// When it was asked, and what was answered.
    async fn asked<T>(&self, question: impl Future<Output = Result<T, String>>) -> Result<(Duration, T), TokenRefusal> {
        let asked = self.now();
        if let Some(Outage { why, .. }) =
            lock(&self.outage).clone().filter(|outage| asked.saturating_sub(outage.at) < PAUSE)
        {
            return Err(TokenRefusal::Unanswered { why });
        }
        let Ok(_slot) = self.slots.try_acquire() else { return Err(TokenRefusal::Busy) };
        if !lock(&self.answers).may_ask(asked) {
            return Err(TokenRefusal::Busy);
        }
        let answer = tokio::time::timeout(WITHIN, question).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())));
        let failed = answer.as_ref().err().map(|why| Outage { why: why.clone(), at: self.now() });
        if let Some(Outage { why, .. }) = &failed {
            tracing::warn!(why, "the API server does not say what the holder of a token may");
        }
        *lock(&self.outage) = failed;
        answer.map(|answer| (asked, answer)).map_err(|why| TokenRefusal::Unanswered { why })
    }

    fn now(&self) -> Duration {
        self.clock.now().into()
    }
}
