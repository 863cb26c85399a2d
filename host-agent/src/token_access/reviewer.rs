//! Asks the API server who the holder of a token is, and whether they may.

use agent_runtime::chain;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use wire::printable;

use super::account::Account;
use super::answers::{KnownToken, MAX_ACCOUNT_BYTES};
use super::plan::TokenPlan;
use super::refusal::TokenRefusal;
use super::right::{GROUP, RESOURCE, Right};

/// Characters of what the API server says that a refusal repeats.
const MAX_REASON: usize = 256;

/// Asks one API server.
pub(super) struct Reviewer {
    client: Client,
    audience: String,
    node: Option<String>,
}

impl Reviewer {
    /// Asks with `client` about tokens of `plan`.
    pub(super) fn new(client: Client, plan: &TokenPlan) -> Self {
        Self { client, audience: plan.audience.clone(), node: plan.node.clone() }
    }

    /// Whose `token` is, or why it is nobody's.
    ///
    /// # Errors
    ///
    /// Why there is no answer, as a sentence. Neither has the token in it.
    pub(super) async fn who(&self, token: &str) -> Result<KnownToken, String> {
        let spec = TokenReviewSpec { audiences: Some(vec![self.audience.clone()]), token: Some(token.to_owned()) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = serde_json::to_vec(&review).map_err(|error| error.to_string())?;
        let request = Request::new(TokenReview::url_path(&(), None)).create(&PostParams::default(), review);
        let request = request.map_err(|error| chain(&error))?;
        let reply = self.client.request_text(request).await.map_err(|error| chain(&error))?;
        // The client would log a reply that it cannot read, and replies repeat the token. So does the parser's error.
        let answered: TokenReview =
            serde_json::from_str(&reply).map_err(|_| "its answer to a TokenReview cannot be read")?;
        let account = self.account(answered.status.unwrap_or_default());
        Ok(account.map_or_else(KnownToken::Refused, KnownToken::Account))
    }

    fn account(&self, status: TokenReviewStatus) -> Result<Account, TokenRefusal> {
        let audience = self.audience.clone();
        let TokenReviewStatus { audiences, authenticated, error, user } = status;
        let account = user.map(Account::from).filter(|account| !account.name.is_empty());
        let Some(account) = account.filter(|_| authenticated == Some(true)) else {
            let why = error.unwrap_or_else(|| "it does not say why".to_owned());
            let why = printable::line(&why).to_string().chars().take(MAX_REASON).collect();
            return Err(TokenRefusal::Invalid { why, audience });
        };
        // One that knows of no audiences accepts tokens that were issued for others.
        let audiences = audiences.unwrap_or_default();
        if !audiences.contains(&audience) {
            let found = if audiences.is_empty() { "of the API server".to_owned() } else { audiences.join(", ") };
            let found = printable::line(&found).to_string().chars().take(MAX_REASON).collect();
            return Err(TokenRefusal::Audience { found, audience });
        }
        let bytes = account.bytes();
        if bytes > MAX_ACCOUNT_BYTES {
            let name = printable::line(&account.name).to_string().chars().take(MAX_REASON).collect();
            return Err(TokenRefusal::Account { name, bytes, most: MAX_ACCOUNT_BYTES });
        }
        Ok(account)
    }

    /// Whether the cluster gives `account` the `right` on this node.
    ///
    /// # Errors
    ///
    /// Why there is no answer, as a sentence.
    pub(super) async fn may(&self, account: &Account, right: Right) -> Result<bool, String> {
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            name: self.node.clone(),
            resource: Some(RESOURCE.to_owned()),
            subresource: right.subresource().map(str::to_owned),
            verb: Some(right.verb().to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            extra: Some(account.extra.clone()),
            groups: Some(account.groups.clone()),
            resource_attributes: Some(attributes),
            uid: account.uid.clone(),
            user: Some(account.name.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answered = api.create(&PostParams::default(), &review).await.map_err(|error| chain(&error))?;
        let status = answered.status.ok_or("its answer to a SubjectAccessReview has no status")?;
        Ok(status.allowed && status.denied != Some(true))
    }
}
