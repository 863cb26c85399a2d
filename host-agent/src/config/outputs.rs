//! Outputs of which there is one at most, and a Prometheus that is asked: their headers, now and as they change.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Config, HeaderSource, PagePrometheus, UpstreamConfig};

/// Outputs that have headers.
const OUTPUTS: usize = 4;

/// Headers whose values are given, and files with the values of more of them.
type Headers<'a> = (&'a mut BTreeMap<String, String>, &'a mut BTreeMap<String, PathBuf>);

impl Config {
    /// The headers of each output by the key of their files; `None`: it is off.
    pub(crate) fn output_headers(&self) -> [(&'static str, Option<HeaderSource<'_>>); OUTPUTS] {
        let Self { otlp, otlp_metrics, remote_write, page, .. } = self;
        [
            ("otlp.upstream.header_files", otlp.upstream.as_ref().map(UpstreamConfig::header_source)),
            ("otlp_metrics.upstream.header_files", otlp_metrics.upstream.as_ref().map(UpstreamConfig::header_source)),
            ("remote_write.header_files", remote_write.header_source()),
            ("page.prometheus.header_files", page.prometheus.as_ref().map(PagePrometheus::header_source)),
        ]
    }

    /// Takes the headers of `other` for each output that goes to the same URL there.
    pub(crate) fn adopt_headers(&mut self, other: &Self) {
        let new = other.output_headers().map(|(_, source)| source);
        let mut is_same = [false; OUTPUTS];
        for ((is_same, (_, own)), new) in is_same.iter_mut().zip(self.output_headers()).zip(&new) {
            *is_same = own.zip(*new).is_some_and(|(own, new)| own.url == new.url);
        }
        for ((place, new), is_same) in self.header_places().into_iter().zip(new).zip(is_same) {
            if let (Some((given, files)), Some(new), true) = (place, new, is_same) {
                given.clone_from(new.given);
                files.clone_from(new.files);
            }
        }
    }

    /// Where the headers of each output are, in the order of [`Self::output_headers`].
    fn header_places(&mut self) -> [Option<Headers<'_>>; OUTPUTS] {
        let Self { otlp, otlp_metrics, remote_write, page, .. } = self;
        [
            otlp.upstream.as_mut().map(|to| (&mut to.headers, &mut to.header_files)),
            otlp_metrics.upstream.as_mut().map(|to| (&mut to.headers, &mut to.header_files)),
            Some((&mut remote_write.headers, &mut remote_write.header_files)),
            page.prometheus.as_mut().map(|from| (&mut from.headers, &mut from.header_files)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_adopted_where_they_go_to_the_same_url() {
        let config = |samples: &str, spans: &str, key: &str| {
            Config::parse(&format!(
                "remote_write: {{url: 'http://{samples}', headers: {{x-key: {key}}}}}\n\
                 otlp: {{upstream: {{endpoint: 'http://{spans}', headers: {{x-key: {key}}}}}}}\n\
                 page: {{prometheus: {{url: 'http://c', headers: {{x-key: {key}}}}}}}\n"
            ))
            .unwrap()
        };
        let mut used = config("a", "b", "old");

        used.adopt_headers(&config("other", "b", "new"));

        let keys = used.output_headers().map(|(_, source)| source.map(|source| source.given["x-key"].as_str()));
        assert_eq!(keys, [Some("new"), None, Some("old"), Some("new")]);
        used.adopt_headers(&Config::default());
        assert_eq!(used.remote_write.headers["x-key"], "old", "one that is off has none to give");
    }
}
