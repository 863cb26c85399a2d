//! What a caller shows: the metadata `authorization` of a call.

use tonic::metadata::MetadataMap;

/// Longest token: the head of a request has 32 KiB.
pub(super) const MAX_TOKEN_BYTES: usize = 16 << 10;

/// What a caller shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// There is no `authorization`.
    Nothing,
    /// An `authorization` that is no bearer token, or too long.
    Malformed,
    /// A bearer token.
    Token(String),
}

impl Credential {
    /// What `metadata` has.
    pub(crate) fn of(metadata: &MetadataMap) -> Self {
        let Some(value) = metadata.get("authorization") else { return Self::Nothing };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.trim().split_once(' ')?;
            let token = token.trim_start();
            let fits =
                (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
            (scheme.eq_ignore_ascii_case("bearer") && fits).then(|| token.to_owned())
        });
        token.map_or(Self::Malformed, Self::Token)
    }
}
