//! Prometheus targets that misbehave: endless answers, bombs, redirects, broken TLS. Each is down with a reason, costs
//! at most what it may, and the agent goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use support::certificates::Subject;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, Stream};

use crate::agent::{Agent, WAIT};

/// The most that an answer may have here.
const MAX_BYTES: usize = 100_000;
/// What the kernel takes for a connection whose reader does not read: buffers of both ends.
const SOCKETS: u64 = 16 << 20;

/// A connection, whatever lies below.
pub trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

/// A target that answers each request by `answer`, over TLS if there is a configuration.
pub fn serve(
    tls: Option<Arc<ServerConfig>>,
    answer: impl Fn(&mut dyn Duplex) -> std::io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answer) = (listener.local_addr().unwrap(), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, tls) = (Arc::clone(&answer), tls.clone());
            std::thread::spawn(move || converse(stream, tls, &*answer));
        }
    });
    address
}

fn converse(
    mut stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    answer: &dyn Fn(&mut dyn Duplex) -> std::io::Result<()>,
) -> Option<()> {
    let mut connection = tls.map(|config| ServerConnection::new(config).unwrap());
    loop {
        let mut secure = connection.as_mut().map(|connection| Stream::new(connection, &mut stream));
        if let Some(secure) = &mut secure {
            requested(&mut *secure)?;
            answer(secure).and_then(|()| secure.flush()).ok()?;
        } else {
            requested(&mut stream)?;
            answer(&mut stream).ok()?;
        }
    }
}

/// Reads a request, which nothing follows before its answer.
fn requested(stream: &mut dyn Read) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
    }
    Some(())
}

fn head(more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n{more}\r\n")
}

/// An answer with this text.
pub fn page(text: &str) -> String {
    format!("{}{text}", head(&format!("Content-Length: {}\r\n", text.len())))
}

/// An agent that scrapes these targets ten times a second, each a service of its own. `more` goes with each. The agent
/// of a busy machine may need seconds for an answer.
fn scraping(targets: &[(&str, String, &str)]) -> Agent {
    let target = |(service, url, more): &(&str, String, &str)| {
        format!(
            "{{service: {service}, url: '{url}', interval_ms: 100, learn_scrapes: 10, max_bytes: {MAX_BYTES}{}{more}}}",
            if more.contains("timeout_ms") { "" } else { ", timeout_ms: 30000" }
        )
    };
    let targets = targets.iter().map(target).collect::<Vec<_>>().join(", ");
    Agent::with(&format!("process_metrics: {{enabled: false}}\nsources: {{prometheus: {{targets: [{targets}]}}}}\n"))
}

/// Why each service's target is down.
fn problems(agent: &Agent) -> BTreeMap<String, String> {
    let problems = agent.status().problems;
    let down = problems.iter().filter(|problem| problem.contains(" is down since "));
    down.filter_map(|problem| problem.split_once(": ")).map(|(service, why)| (service.into(), why.into())).collect()
}

/// The value of a counter on `/metrics`, with its labels.
pub fn metric(agent: &Agent, name: &str) -> u64 {
    let (_, page) = agent.get("/metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..50 {
        encoder.write_all(&vec![b'\n'; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn answers_without_an_end_are_given_up_at_their_limits() {
    let sent = Arc::new(AtomicU64::new(0));
    let connections = Arc::new(AtomicU64::new(0));
    let (of_long, begun) = (Arc::clone(&sent), Arc::clone(&connections));
    let chunks = serve(None, |stream| {
        stream.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes())?;
        let chunk = format!("400\r\n{}\r\n", "name 12\n".repeat(128));
        loop {
            stream.write_all(chunk.as_bytes())?;
        }
    });
    let long = serve(None, move |stream| {
        begun.fetch_add(1, Ordering::Relaxed);
        stream.write_all(head("Content-Length: 104857600\r\n").as_bytes())?;
        for _ in 0..(100 << 20) / 4096 {
            stream.write_all(&[b'\n'; 4096])?;
            of_long.fetch_add(4096, Ordering::Relaxed);
        }
        Ok(())
    });
    let slow = serve(None, |stream| {
        stream.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes())?;
        loop {
            stream.write_all(b"2\r\na\n\r\n")?;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let packed = bomb();
    assert!(packed.len() < MAX_BYTES, "{}", packed.len());
    let packed = serve(None, move |stream| {
        let more = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", packed.len());
        stream.write_all(head(&more).as_bytes())?;
        stream.write_all(&packed)
    });
    let url = |address| format!("http://{address}/metrics");
    let agent = scraping(&[
        ("chunks", url(chunks), ""),
        ("long", url(long), ""),
        ("slow", url(slow), ", timeout_ms: 1000"),
        ("packed", url(packed), ""),
    ]);

    let why = WAIT.until("all are down", || {
        let why = problems(&agent);
        (why.len() == 4).then_some(why)
    });

    for (service, text) in [
        ("chunks", "its body is longer than 100000 bytes; raise max_bytes"),
        ("long", "its body is longer than 100000 bytes; raise max_bytes"),
        ("slow", "no response within 1s; raise timeout_ms"),
        ("packed", "does a proxy change it?"),
    ] {
        assert!(why[service].contains(text), "{service}: {}", why[service]);
    }
    for reason in ["too_long", "deadline", "encoding"] {
        let name = format!("uview_host_failed_scrapes_total{{reason=\"{reason}\"}}");
        WAIT.until(reason, || (metric(&agent, &name) > 1).then_some(()));
    }
    let (sent, connections) = (sent.load(Ordering::Relaxed), connections.load(Ordering::Relaxed));
    assert!(sent < connections * (MAX_BYTES as u64 + SOCKETS), "{sent} bytes in {connections} scrapes");
}

#[test]
fn answers_that_are_no_metrics_say_what_they_are_and_a_redirect_is_not_followed() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let elsewhere = serve(None, move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        stream.write_all(page("a_total 1\n").as_bytes())
    });
    let redirect = serve(None, move |stream| {
        let text = format!("HTTP/1.1 302 Found\r\nLocation: http://{elsewhere}/metrics\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(text.as_bytes())
    });
    let html = serve(None, |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")
    });
    let other = serve(None, |stream| stream.write_all(b"+OK redis says hello\r\n"));
    let packed = serve(None, |stream| {
        stream.write_all(head("Content-Encoding: br\r\nContent-Length: 2\r\n").as_bytes())?;
        stream.write_all(b"xx")
    });
    let broken = serve(None, |stream| stream.write_all(page("a_total 1\nthis is no sample\n").as_bytes()));
    let url = |address| format!("http://{address}/metrics");
    let agent = scraping(&[
        ("redirect", url(redirect), ""),
        ("html", url(html), ""),
        ("other", url(other), ""),
        ("packed", url(packed), ""),
        ("broken", url(broken), ""),
    ]);

    let why = WAIT.until("all are down", || {
        let why = problems(&agent);
        (why.len() == 5).then_some(why)
    });

    for (service, text) in [
        ("redirect", "HTTP status 302; is the path right?"),
        ("html", "it answers with `text/html`, which is no format of metrics"),
        ("other", "is the path right?"),
        ("packed", "its answer is packed as `br`, which was not asked for"),
        ("broken", "does the program write it so?"),
    ] {
        assert!(why[service].contains(text), "{service}: {}", why[service]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn samples_that_are_not_looked_at_are_counted_by_reason() {
    let target = serve(None, |stream| {
        let mut text = String::from("twice_total 1\ntwice_total 2\n");
        _ = writeln!(text, "{} 1", "n".repeat(3_000));
        for at in 0..20 {
            _ = writeln!(text, "many{{at=\"{at}\"}} 1");
        }
        stream.write_all(page(&text).as_bytes())
    });
    let agent = scraping(&[("shop", format!("http://{target}/metrics"), ", max_samples: 10")]);

    let count = |reason: &str| metric(&agent, &format!("uview_host_refused_samples_total{{reason=\"{reason}\"}}"));
    WAIT.until("two scrapes", || (metric(&agent, "uview_host_scrapes_total") >= 2).then_some(()));

    let (many, long, twice) = (count("too_many"), count("too_long"), count("duplicate"));
    assert!(many >= 11 && long >= 1 && twice >= 1, "{many} {long} {twice}");
    assert!(problems(&agent).is_empty(), "{:?}", problems(&agent));
}

/// A server's configuration, and the file with its authority, for `localhost`.
fn certified(folder: &Path, name: &str) -> (Arc<ServerConfig>, String) {
    let made = Subject::new(&["localhost"]).self_signed();
    let path = folder.join(name);
    std::fs::write(&path, made.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.key_der().into());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![made.der().into()], key).unwrap();
    (Arc::new(config), format!(", ca: '{}'", path.display()))
}

#[test]
fn an_https_target_is_scraped_if_the_authority_knows_it_and_else_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let (config, ca) = certified(folder.path(), "ca.pem");
    let (_, other) = certified(folder.path(), "other.pem");
    let answer = |stream: &mut dyn Duplex| stream.write_all(page("a_total 1\n").as_bytes());
    let secure = serve(Some(config), answer);
    let plain = serve(None, answer);
    let url = |name: &str, address: SocketAddr| format!("https://{name}:{}/metrics", address.port());

    let agent = scraping(&[
        ("right", url("localhost", secure), &ca),
        ("stranger", url("localhost", secure), &other),
        ("wrong-name", url("127.0.0.1", secure), &ca),
        ("plain", url("localhost", plain), &ca),
    ]);

    let why = WAIT.until("three are down", || {
        let why = problems(&agent);
        (why.len() == 3).then_some(why)
    });
    for service in ["stranger", "wrong-name", "plain"] {
        assert!(why[service].contains("TLS handshake failed"), "{service}: {}", why[service]);
    }
    let scraped = WAIT.until("the right one is scraped", || {
        let sources = agent.operators();
        let mut client = sources.client.clone();
        let reply = sources.runtime.block_on(client.sources(wire::proto::operators::SourcesRequest::default()));
        let targets = reply.unwrap().into_inner().targets;
        targets.into_iter().find(|target| target.service == "right" && target.scrapes >= 2)
    });
    assert_eq!((scraped.failed_scrapes, scraped.samples), (0, 1), "{scraped:?}");
}

#[test]
fn a_target_of_another_user_than_a_rule_names_gives_no_values_under_that_name() {
    let shop = serve(None, |stream| stream.write_all(page("a_total 1\n").as_bytes()));
    let own = rustix::process::geteuid().as_raw();
    let target = |service: &str| {
        let how = "interval_ms: 100, learn_scrapes: 10, timeout_ms: 30000";
        format!("{{service: {service}, url: 'http://{shop}/metrics', {how}}}")
    };
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\n\
         services: {{identities: [{{uid: 4000000000, services: [taken]}}, {{uid: {own}, services: [own]}}]}}\n\
         sources: {{prometheus: {{targets: [{}, {}, {}]}}}}\n",
        target("taken"),
        target("own"),
        target("free")
    ));
    let services = || {
        let mut operators = agent.operators();
        let request = wire::proto::operators::ListRequest {};
        let lmaps = operators.runtime.block_on(operators.client.list(request)).unwrap().into_inner().lmaps;
        lmaps.into_iter().map(|lmap| lmap.service).collect::<std::collections::BTreeSet<_>>()
    };

    let why = WAIT.until("the stranger is down", || problems(&agent).remove("taken"));
    WAIT.until("the others are watched", || (services().len() >= 2).then_some(()));

    let who = format!("user {own} (127.0.0.1) listens there, and services.identities gives the name to others");
    assert!(why.contains(&who), "{why}");
    assert_eq!(services(), ["free", "own"].map(str::to_owned).into());
    assert_eq!(problems(&agent).into_keys().collect::<Vec<_>>(), ["taken"]);
    assert!(metric(&agent, "uview_host_failed_scrapes_total{reason=\"foreign\"}") > 0);
}
