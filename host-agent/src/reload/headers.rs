//! Headers of outputs: they follow the configuration, and the files with their values, as long as they go where they
//! went.

use agent_runtime::ConfigError;
use agent_runtime::live_headers::{HeaderRenewal, LiveHeaders};
use agent_runtime::reload::KeyChanges;

use crate::config::Config;

/// Headers of outputs of which there is one at most; `None`: it is off.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputHeaders {
    pub(crate) upstream: Option<LiveHeaders>,
    pub(crate) metrics_upstream: Option<LiveHeaders>,
    pub(crate) remote_write: Option<LiveHeaders>,
    /// Those of the Prometheus that the page asks.
    pub(crate) page: Option<LiveHeaders>,
}

impl OutputHeaders {
    /// What `latest`, and the files that it names, make of them, while `used` is in use: each with its key. Where an
    /// output comes, goes or has another URL, they wait for a start: a secret of the new receiver is none of the old
    /// one's.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the key if a file or a header cannot be used.
    pub(super) fn renewals(
        &self,
        used: &Config,
        latest: &Config,
        changes: &mut KeyChanges,
    ) -> Result<Vec<(&'static str, HeaderRenewal)>, ConfigError> {
        let live = [&self.upstream, &self.metrics_upstream, &self.remote_write, &self.page];
        let both = latest.output_headers().into_iter().zip(used.output_headers());
        let mut renewals = Vec::new();
        for (((key, after), (_, before)), live) in both.zip(live) {
            let goes_there = before.zip(after).is_some_and(|(before, after)| before.url == after.url);
            match (live, after) {
                (Some(live), Some(after)) if goes_there => {
                    let renewal = live.renewal(&after.values(key)?);
                    renewals.push((key, renewal.map_err(|cause| ConfigError::value(key, cause))?));
                }
                _ => changes.postpone(section(key)),
            }
        }
        Ok(renewals)
    }
}

/// Has requests that begin from now on take `renewals`. Those of which only a file has changed are added to `changes`.
pub(super) fn take(renewals: Vec<(&'static str, HeaderRenewal)>, changes: &mut KeyChanges) {
    for (key, renewal) in renewals {
        let is_told = changes.live.iter().any(|name| name.starts_with(section(key)));
        if renewal.take() && !is_told {
            changes.add(key);
        }
    }
}

/// How the keys of headers begin, those of given ones and those of files, of which `key` is one.
fn section(key: &str) -> &str {
    key.strip_suffix("_files").unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str, headers: &str) -> Config {
        Config::parse(&format!("remote_write: {{url: 'http://{url}/', headers: {{{headers}}}}}\n")).unwrap()
    }

    fn outputs() -> (OutputHeaders, LiveHeaders) {
        let live = LiveHeaders::new(&[("x-key".to_owned(), "old".to_owned())], |name| name == "host").unwrap();
        (OutputHeaders { remote_write: Some(live.clone()), ..OutputHeaders::default() }, live)
    }

    fn changed() -> KeyChanges {
        KeyChanges { live: vec!["remote_write.headers.x-key".to_owned()], at_restart: Vec::new() }
    }

    #[test]
    fn headers_for_the_same_url_are_taken_and_those_for_another_one_wait() {
        let ((outputs, live), used) = (outputs(), config("a", "x-key: old"));
        let (mut waiting, mut taken, mut of_file) = (changed(), changed(), KeyChanges::default());

        let none = outputs.renewals(&used, &config("b", "x-key: new"), &mut waiting).unwrap();
        let off = outputs.renewals(&used, &Config::default(), &mut changed()).unwrap();
        let renewals = outputs.renewals(&used, &config("a", "x-key: new"), &mut taken).unwrap();

        assert!(none.is_empty() && off.is_empty() && taken == changed());
        assert_eq!((waiting.live.len(), &waiting.at_restart[..]), (0, &changed().live[..]));
        assert_eq!(live.load()["x-key"], "old");
        take(renewals, &mut taken);
        assert_eq!((live.load()["x-key"].as_bytes(), taken), (&b"new"[..], changed()));
        // What a file says is not in the text of the configuration.
        take(outputs.renewals(&used, &config("a", "x-key: newer"), &mut of_file).unwrap(), &mut of_file);
        assert_eq!(of_file.live, ["remote_write.header_files"]);
    }

    #[test]
    fn what_cannot_be_a_header_is_named_with_the_key() {
        let ((outputs, live), used) = (outputs(), config("a", "x-key: old"));

        let refused = outputs.renewals(&used, &config("a", "x-key: new, Host: s3cret"), &mut changed()).unwrap_err();

        assert_eq!(refused.key(), "remote_write.header_files");
        let said = agent_runtime::chain(&refused);
        assert!(said.contains("invalid header `Host`") && !said.contains("s3cret"), "{said}");
        assert_eq!(live.load()["x-key"], "old");
    }
}
