//! Who is sent something, and who is asked for values: URLs, headers and certificates. None of them is called.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_runtime::check::Inspection;
use agent_runtime::reach::is_this_machine;
use agent_runtime::{OutwardTls, chain};
use webhooks::message::Sender;
use wire::time::UnixNanos;

use crate::config::{self, Config, UpstreamConfig, WATCH_ONLY};

/// Receivers of spans, samples and alarms: URLs, headers, certificates. None of them is called.
pub(super) fn receivers(config: &Config, to: &mut Inspection) {
    // Their clients are made, and dropped before they connect. They want a runtime around them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return to.error("config", "no event queue is left", "raise `ulimit -n`") };
    let _guard = runtime.enter();
    let upstreams =
        [("otlp.upstream", &config.otlp.upstream), ("otlp_metrics.upstream", &config.otlp_metrics.upstream)];
    for (key, upstream) in upstreams {
        let Some(upstream) = upstream else { continue };
        inspect_upstream(key, upstream, to);
    }
    if config.otlp.watch_only && config.otlp.upstream.is_none() {
        to.ok("otlp.watch_only", WATCH_ONLY);
    }
    if let Some(url) = &config.remote_write.url {
        let made = config.remote_write.start("", UnixNanos(0)).map(drop);
        let names = names(&config.remote_write.headers, &config.remote_write.header_files);
        inspect_receiver("remote_write.url", url, &names, made.err().as_ref(), to);
        if let Some(ca) = &config.remote_write.ca {
            to.authority("remote_write.ca", ca);
        }
    }
    let from = Sender::default();
    for (index, webhook) in config.webhooks.iter().enumerate() {
        let made = config::planned_webhooks(core::slice::from_ref(webhook), &from).map(drop);
        let key = format!("webhooks[{index}].url");
        let names = names(&webhook.headers, &webhook.header_files);
        inspect_receiver(&key, &webhook.url, &names, made.err().as_ref(), to);
        if let Some(ca) = &webhook.ca {
            to.authority(&format!("webhooks[{index}].ca"), ca);
        }
    }
}

/// Endpoints that are asked for values.
pub(super) fn endpoints(config: &Config, to: &mut Inspection) {
    // The first fault of all targets has been told.
    let told = config.sources.prometheus.plans().err().map(|error| chain(&error));
    for (index, target) in config.sources.prometheus.targets.iter().enumerate() {
        let key = format!("sources.prometheus.targets[{index}]");
        let fault = target.plan().err().filter(|error| target.ca.is_none() || !is_of_authority(error));
        if fault.as_ref().is_none_or(|fault| told.as_ref() != Some(&chain(fault)) || is_of_authority(fault)) {
            let names = names(&target.headers, &target.header_files);
            inspect_receiver(&format!("{key}.url"), &target.url, &names, fault.as_ref(), to);
        }
        if let Some(ca) = &target.ca {
            to.authority(&format!("{key}.ca"), ca);
        }
    }
    let Some(asked) = &config.page.prometheus else { return };
    let fault = asked.client().err().filter(|error| asked.ca.is_none() || !is_of_authority(error));
    if fault.as_ref().is_none_or(is_of_authority) {
        let names = names(&asked.headers, &asked.header_files);
        inspect_receiver("page.prometheus.url", &asked.url, &names, fault.as_ref(), to);
    }
    if let Some(ca) = &asked.ca {
        to.authority("page.prometheus.ca", ca);
    }
}

/// Whether it is about a file with an authority, or the system's store: such faults are not among those of values.
fn is_of_authority(error: &config::ConfigError) -> bool {
    error.key().rsplit('.').next() == Some("ca")
}

fn inspect_upstream(key: &str, upstream: &UpstreamConfig, to: &mut Inspection) {
    let tls = upstream.tls.clone().unwrap_or_default();
    if upstream.tls.is_some() || upstream.endpoint.starts_with("https:") {
        to.outward_tls(&format!("{key}.tls"), &tls);
    }
    // Certificates have been looked at: here they are those of the system's store, or none.
    let made = UpstreamConfig { tls: upstream.tls.as_ref().map(|_| OutwardTls::default()), ..upstream.clone() };
    let made = made.check();
    let names = names(&upstream.headers, &upstream.header_files);
    inspect_receiver(&format!("{key}.endpoint"), &upstream.endpoint, &names, made.err().as_ref(), to);
}

/// Names of all headers of a receiver.
fn names<'a>(headers: &'a BTreeMap<String, String>, files: &'a BTreeMap<String, PathBuf>) -> Vec<&'a str> {
    headers.keys().chain(files.keys()).map(String::as_str).collect()
}

fn inspect_receiver(key: &str, url: &str, headers: &[&str], error: Option<&config::ConfigError>, to: &mut Inspection) {
    if let Some(error) = error {
        return to.error(key, chain(error), "a URL such as http://collector:4318, and headers as HTTP allows them");
    }
    let is_plain = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    if is_plain && !headers.is_empty() && !is_of_this_machine(url) {
        let what = format!("headers ({}) travel unencrypted to {url}", headers.join(", "));
        return to.warning(key, what, "https, if they are secret");
    }
    to.ok(key, url);
}

/// Whether the host of a URL is a loopback address.
fn is_of_this_machine(url: &str) -> bool {
    let host = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    let host = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
    is_this_machine(host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use agent_runtime::check::Level;

    use super::*;

    /// The findings about `text` that are not fine.
    fn bad(text: &str) -> Vec<(Level, String)> {
        let config: Config = agent_runtime::config::parse_unchecked(text).unwrap();
        let mut to = Inspection::new(1_800_000_000);
        endpoints(&config, &mut to);
        let worse = to.findings().iter().filter(|finding| finding.level != Level::Ok);
        worse.map(|finding| (finding.level, finding.key.clone())).collect()
    }

    /// The keys of faulty values of `text`.
    fn values(text: &str) -> Vec<String> {
        let config: Config = agent_runtime::config::parse_unchecked(text).unwrap();
        agent_runtime::Settings::problems(&config).iter().map(|problem| problem.key().to_owned()).collect()
    }

    #[test]
    fn targets_and_the_pages_prometheus_are_looked_at_each_with_its_authority() {
        let folder = tempfile::tempdir().unwrap();
        let made = support::certificates::Subject::new(&["p.example"]).self_signed();
        let good = folder.path().join("ca.pem");
        std::fs::write(&good, made.pem()).unwrap();
        let text = |ca: &str| {
            format!(
                "page: {{prometheus: {{url: 'https://p.example', ca: {ca}}}}}\nsources: {{prometheus: {{targets: [\
                 {{service: a, url: 'http://127.0.0.1:9121', headers: {{authorization: x}}}}, \
                 {{service: b, url: 'https://b.example', ca: {ca}}}]}}}}\n"
            )
        };

        assert_eq!(bad(&text(&good.display().to_string())), []);
        let expired = support::certificates::Subject::new(&["p.example"]).expired().self_signed().pem();
        let old = folder.path().join("old.pem");
        std::fs::write(&old, expired).unwrap();
        let missing = text("/nowhere/ca.pem");
        let errors = ["sources.prometheus.targets[1].ca", "page.prometheus.ca"];
        assert_eq!(bad(&text(&old.display().to_string())), errors.map(|key| (Level::Error, key.to_owned())));
        assert_eq!(bad(&missing), errors.map(|key| (Level::Error, key.to_owned())));
        // A start says so, too, under these keys; a check does so once.
        assert_eq!(values(&missing), ["page.prometheus.ca", "sources.prometheus.targets.ca"]);
    }

    #[test]
    fn each_url_that_cannot_be_used_is_told_once_and_a_secret_on_its_way_is_a_warning() {
        let text = "page: {prometheus: {url: 'ftp://p'}}\nkubernetes: {scrape_targets: 5000}\n\
                    sources: {prometheus: {targets: [{service: a, url: nowhere}, {service: b, url: 'ftp://b'}, \
                    {service: c, url: 'http://c.example', headers: {authorization: x}}]}}\n";

        assert_eq!(
            values(text),
            ["kubernetes.scrape_targets", "page.prometheus.url", "sources.prometheus.targets.url"]
        );
        let expected = [(Level::Error, "targets[1].url"), (Level::Warning, "targets[2].url")];
        let expected = expected.map(|(level, key)| (level, format!("sources.prometheus.{key}")));
        assert_eq!(bad(text), expected);
    }

    #[test]
    fn an_endpoint_that_watches_only_is_fine_and_said_in_words() {
        let config = Config::parse("otlp: {watch_only: true}").unwrap();
        let mut to = Inspection::new(0);

        receivers(&config, &mut to);

        let [found] = to.findings() else { panic!("{:?}", to.findings()) };
        assert_eq!((found.level, found.key.as_str()), (Level::Ok, "otlp.watch_only"));
        assert!(found.what.contains("passed on to nobody"), "{found}");
    }

    #[test]
    fn addresses_of_this_machine_are_told_from_others() {
        for url in ["http://Localhost:4317", "http://127.0.0.1/x", "http://[::1]:5/", "http://[::ffff:127.0.0.1]/"] {
            assert!(is_of_this_machine(url), "{url}");
        }
        for url in ["http://collector:4317", "http://10.0.0.1/x", "nonsense"] {
            assert!(!is_of_this_machine(url), "{url}");
        }
    }
}
