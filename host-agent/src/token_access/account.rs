//! Accounts of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::UserInfo;

/// Whose token it is, as the API server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// The name, such as `system:serviceaccount:shop:dashboard`.
    pub(super) name: String,
    /// What else the API server says of it, and wants to hear when it is asked what the account may.
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl Account {
    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &String| 32 + text.len();
        let extra = self.extra.iter().map(|(key, values)| 64 + text(key) + values.iter().map(text).sum::<usize>());
        let own = 128 + text(&self.name) + self.uid.as_ref().map_or(0, text);
        own + self.groups.iter().map(text).sum::<usize>() + extra.sum::<usize>()
    }

    /// One without groups.
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), uid: None, groups: Vec::new(), extra: BTreeMap::new() }
    }
}

impl From<UserInfo> for Account {
    fn from(UserInfo { extra, groups, uid, username }: UserInfo) -> Self {
        let (groups, extra) = (groups.unwrap_or_default(), extra.unwrap_or_default());
        Self { name: username.unwrap_or_default(), uid, groups, extra }
    }
}
