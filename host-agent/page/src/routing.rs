//! A request in, what to answer out. The page is read: GET and HEAD only, from loopback names only, with a session's
//! cookie, which a token opens.

use std::borrow::Cow;

use wire::incident::IncidentId;
use wire::time::Nanos;

use crate::assets::{ARRIVAL, ARRIVAL_SCRIPT, Asset, asset};
use crate::fetch_metadata::FetchMetadata;
use crate::invitation::Invitation;
use crate::older::Reach;
use crate::sessions::{SESSION_LIFETIME, Secret, Sessions};

/// Headers of every response: nothing comes from elsewhere, runs inline, is framed, cached, or told to others.
pub const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Content type of JSON.
pub const JSON: &str = "application/json";
/// Content type of server-sent events.
pub const EVENTS: &str = "text/event-stream";

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// To load it again leads to what was wanted: the browser has kept that.
const NO_SESSION: &str =
    "no session: run `uview open` on this machine, open the address that it prints, and load this page again\n";

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET: an answer with its body.
    Get,
    /// HEAD: as GET, without the body, and nothing changes.
    Head,
    /// Any other one.
    Other,
}

/// What counts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its HTTP method.
    pub method: Method,
    /// Path of its address.
    pub path: &'a str,
    /// What follows the question mark; empty if there is none.
    pub query: &'a str,
    /// The header `Host`; `None` unless there is exactly one.
    pub host: Option<&'a str>,
    /// The header `Cookie`; empty if there is none.
    pub cookies: &'a str,
    /// Where it comes from, as the browser says.
    pub from: FetchMetadata<'a>,
}

/// A whole response but for [`HEADERS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: &'static str,
    /// The header `Set-Cookie`.
    pub set_cookie: Option<String>,
    /// Text of the body.
    pub body: Cow<'static, str>,
}

/// JSON, or a file, that is made when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// History and episodes of the LMAP with this number.
    Service(u32),
    /// Scores of the LMAP with this number that are older than the history.
    Older(u32, Reach),
    /// Each metric of the LMAP with this number.
    Metrics(u32),
    /// Services, who calls whom, and operations.
    Map,
    /// Kept traces, the newest first.
    Traces,
    /// Spans of the trace with this id.
    Trace(u128),
    /// Spans seen, kept and lost.
    Receipt,
    /// What the agent keeps of what it may, and other nodes.
    Node,
    /// What is scraped and exported, and what became of its series.
    Sources,
    /// Incidents that are kept, the newest first.
    Incidents,
    /// The incident with this address.
    Incident(IncidentId),
    /// The same as a file of HTML.
    IncidentFile(IncidentId),
}

impl Document {
    /// The content type of it.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::IncidentFile(_) => HTML,
            _ => JSON,
        }
    }
}

/// What to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// This whole response.
    Response(Response),
    /// The text of a document.
    Document(Document),
    /// What changes from now on, as server-sent events.
    Events,
}

fn plain(status: u16, text: &'static str) -> Answer {
    let body = Cow::Borrowed(text);
    Answer::Response(Response { status, content_type: PLAIN, set_cookie: None, body })
}

fn file(&Asset { content_type, text, .. }: &Asset) -> Answer {
    Answer::Response(Response { status: 200, content_type, set_cookie: None, body: Cow::Borrowed(text) })
}

/// Whether `host` names this machine's loopback, with any port: that of a tunnel is another one. A name of others that
/// resolves to loopback (DNS rebinding) is none.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "[::1]"].contains(&name) || name.eq_ignore_ascii_case("localhost")
}

/// The value of the cookie `name` in a header `Cookie`; the first that is a secret.
fn cookie(header: &str, name: &str) -> Option<Secret> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| Secret::parse(value))
}

/// Whose session a header `Cookie` is of, by the cookie `name`; `None` if there is none, or it has ended.
#[must_use]
pub fn session<'a, O: PartialEq>(sessions: &'a Sessions<O>, name: &str, now: Nanos, header: &str) -> Option<&'a O> {
    sessions.owner(now, &cookie(header, name)?)
}

/// Who may read, and under which cookie.
#[derive(Debug)]
pub struct Doorkeeper<'a, O> {
    /// Tokens and sessions.
    pub sessions: &'a mut Sessions<O>,
    /// Name of the cookie. Cookies know no ports: agents on one machine need different names.
    pub cookie: &'a str,
    /// The current time, monotonic.
    pub now: Nanos,
    /// Random bytes for a new session.
    pub fresh: Secret,
}

impl<O: PartialEq> Doorkeeper<'_, O> {
    /// What to answer to `request`. A session counts as long as its owner `may` read. A token is void after the first
    /// GET that names it.
    pub fn answer(self, request: &Request<'_>, may: impl Fn(&O) -> bool) -> Answer {
        if request.method == Method::Other {
            return plain(405, "only GET and HEAD: this page is for reading\n");
        }
        if !request.host.is_some_and(is_loopback) {
            return plain(421, "this is the page of uview on loopback: open the address that `uview open` prints\n");
        }
        if request.path == "/open" {
            return self.open(request, may);
        }
        if request.from.is_link() && request.method == Method::Get && request.path == ARRIVAL.path {
            return file(&ARRIVAL);
        }
        if !request.from.is_own() {
            return plain(403, "only the page itself may ask for this\n");
        }
        if request.path == ARRIVAL_SCRIPT.path {
            return file(&ARRIVAL_SCRIPT);
        }
        let Self { sessions, cookie: name, now, .. } = self;
        if !session(sessions, name, now, request.cookies).is_some_and(may) {
            return plain(401, NO_SESSION);
        }
        content(request.path).unwrap_or_else(|| plain(404, "there is no such page\n"))
    }

    /// Exchanges the token in the query for a session.
    fn open(self, request: &Request<'_>, may: impl Fn(&O) -> bool) -> Answer {
        let Self { sessions, cookie, now, fresh } = self;
        if request.method == Method::Head {
            return plain(405, "only GET: an address opens the page once\n");
        }
        let refused = plain(403, "this address was used before, or is too old: run `uview open` for another one\n");
        let Some(invitation) = Invitation::parse(request.query) else { return refused };
        if !sessions.exchange(now, &invitation.token, fresh).is_some_and(may) {
            return refused;
        }
        let (value, age) = (fresh.text(), SESSION_LIFETIME.0 / 1_000_000_000);
        let set_cookie = Some(format!("{cookie}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"));
        let body = Cow::Owned(invitation.page());
        Answer::Response(Response { status: 200, content_type: HTML, set_cookie, body })
    }
}

/// What is at `path`.
fn content(path: &str) -> Option<Answer> {
    if let Some(asset) = asset(path) {
        return Some(file(asset));
    }
    let document = match path.strip_prefix("/api/")? {
        "events" => return Some(Answer::Events),
        "map" => Document::Map,
        "traces" => Document::Traces,
        "receipt" => Document::Receipt,
        "node" => Document::Node,
        "sources" => Document::Sources,
        "incidents" => Document::Incidents,
        other => match other.split_once('/')? {
            ("incident", id) => match id.strip_suffix(".html") {
                Some(id) => Document::IncidentFile(id.parse().ok()?),
                None => Document::Incident(id.parse().ok()?),
            },
            ("metrics", lmap) => Document::Metrics(lmap.parse().ok()?),
            ("older", of) => {
                let (lmap, reach) = of.split_once('/')?;
                Document::Older(lmap.parse().ok()?, Reach::of(reach)?)
            }
            ("service", lmap) => Document::Service(lmap.parse().ok()?),
            ("trace", id) if id.len() == 32 => Document::Trace(u128::from_str_radix(id, 16).ok()?),
            _ => return None,
        },
    };
    Some(Answer::Document(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::ASSETS;
    use crate::sessions::SECRET_BYTES;

    const NOW: Nanos = Nanos::from_secs(7);
    const COOKIE: &str = "uview-9705";

    const REQUEST: Request<'static> = Request {
        method: Method::Get,
        path: "/",
        query: "",
        host: Some("127.0.0.1:9705"),
        cookies: "",
        from: from(Some("none")),
    };

    const fn from(site: Option<&str>) -> FetchMetadata<'_> {
        FetchMetadata { site, mode: None, destination: None }
    }

    fn secret(number: u8) -> Secret {
        Secret::new([number; SECRET_BYTES])
    }

    fn sessions() -> Sessions<&'static str> {
        let mut sessions = Sessions::default();
        sessions.grant(NOW, secret(1), "alice").unwrap();
        sessions
    }

    fn ask(sessions: &mut Sessions<&'static str>, request: &Request<'_>) -> Answer {
        Doorkeeper { sessions, cookie: COOKIE, now: NOW, fresh: secret(2) }.answer(request, |_| true)
    }

    fn status(answer: &Answer) -> u16 {
        match answer {
            Answer::Response(response) => response.status,
            Answer::Document(_) | Answer::Events => 200,
        }
    }

    /// Sessions in which `secret(2)` is a cookie, and the header with it.
    fn opened() -> (Sessions<&'static str>, String) {
        let mut sessions = sessions();
        let query = format!("token={}", secret(1).text());
        assert_eq!(status(&ask(&mut sessions, &Request { path: "/open", query: &query, ..REQUEST })), 200);
        (sessions, format!("other=1; {COOKIE}={}", secret(2).text()))
    }

    #[test]
    fn a_token_is_exchanged_once_for_a_cookie_that_opens_everything() {
        let mut sessions = sessions();
        let query = format!("token={}", secret(1).text());
        let open = Request { path: "/open", query: &query, from: from(Some("cross-site")), ..REQUEST };

        assert_eq!(status(&ask(&mut sessions, &REQUEST)), 401);
        let Answer::Response(first) = ask(&mut sessions, &open) else { unreachable!("a page") };
        let second = ask(&mut sessions, &open);

        let set_cookie = first.set_cookie.unwrap();
        let expected = format!("{COOKIE}={}; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", secret(2).text());
        assert_eq!((first.status, set_cookie), (200, expected));
        assert_eq!(status(&second), 403);
        let cookies = format!("{COOKIE}={}", secret(2).text());
        for asset in ASSETS {
            assert_eq!(status(&ask(&mut sessions, &Request { path: asset.path, cookies: &cookies, ..REQUEST })), 200);
        }
        let wrong = format!("{COOKIE}={}", secret(1).text());
        assert_eq!(status(&ask(&mut sessions, &Request { cookies: &wrong, ..REQUEST })), 401);
    }

    #[test]
    fn looking_at_an_address_does_not_use_it_up() {
        let mut sessions = sessions();
        let query = format!("token={}", secret(1).text());
        let open = Request { path: "/open", query: &query, ..REQUEST };

        for refused in [
            Request { method: Method::Head, ..open },
            Request { method: Method::Other, ..open },
            Request { host: Some("evil.example"), ..open },
        ] {
            assert!(status(&ask(&mut sessions, &refused)) >= 400);
        }

        assert_eq!(status(&ask(&mut sessions, &open)), 200);
    }

    #[test]
    fn only_names_of_loopback_are_answered() {
        let (mut sessions, cookies) = opened();
        let mut with = |host| status(&ask(&mut sessions, &Request { host, cookies: &cookies, ..REQUEST }));

        for host in ["127.0.0.1", "127.0.0.1:1", "localhost:9705", "LOCALHOST", "[::1]:9705", "[::1]"] {
            assert_eq!(with(Some(host)), 200, "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:9705", "localhost.evil.example", "127.0.0.1:x", "::1"]
        {
            assert_eq!(with(Some(host)), 421, "{host}");
        }
        assert_eq!(with(None), 421);
    }

    #[test]
    fn others_pages_get_nothing_even_with_the_cookie() {
        let (mut sessions, cookies) = opened();
        let mut of = |site| status(&ask(&mut sessions, &Request { from: from(site), cookies: &cookies, ..REQUEST }));

        assert_eq!((of(None), of(Some("none")), of(Some("same-origin"))), (200, 200, 200));
        assert_eq!((of(Some("same-site")), of(Some("cross-site"))), (403, 403));
    }

    #[test]
    fn a_link_of_another_page_gets_a_page_that_shows_nothing_and_goes_on() {
        let (mut sessions, cookies) = opened();
        let link = FetchMetadata { mode: Some("navigate"), destination: Some("document"), ..from(Some("cross-site")) };
        let followed = Request { from: link, cookies: &cookies, ..REQUEST };

        for cookies in [cookies.as_str(), ""] {
            assert_eq!(ask(&mut sessions, &Request { cookies, ..followed }), file(&ARRIVAL));
        }
        // The script is for that page, which may have no session yet, and for no other one.
        let script = Request { path: "/arrival.js", cookies: "", from: from(Some("same-origin")), ..REQUEST };
        assert_eq!(ask(&mut sessions, &script), file(&ARRIVAL_SCRIPT));
        assert_eq!(status(&ask(&mut sessions, &Request { from: link, ..script })), 403);
        let subresource = FetchMetadata { mode: Some("no-cors"), destination: Some("script"), ..link };
        assert_eq!(status(&ask(&mut sessions, &Request { from: subresource, ..script })), 403);

        let files = ASSETS.into_iter().map(|asset| asset.path).filter(|path| *path != "/");
        let others = ["/api/events", "/api/incidents", "/api/incident/20261127-064215-123.html", "/nothing"];
        for path in files.chain(others) {
            assert_eq!(status(&ask(&mut sessions, &Request { path, ..followed })), 403, "{path}");
        }
        let in_a_frame = FetchMetadata { destination: Some("iframe"), ..link };
        for refused in [
            Request { from: in_a_frame, ..followed },
            Request { from: subresource, ..followed },
            Request { method: Method::Head, ..followed },
            Request { host: Some("evil.example"), ..followed },
        ] {
            assert!(status(&ask(&mut sessions, &refused)) >= 400, "{refused:?}");
        }
    }

    #[test]
    fn an_address_leads_to_its_incident_and_is_not_used_up_by_another_name() {
        let mut sessions = sessions();
        let mut open = |incident: &str| {
            let query = format!("token={}&incident={incident}", secret(1).text());
            ask(&mut sessions, &Request { path: "/open", query: &query, ..REQUEST })
        };

        assert_eq!(status(&open("20261327-064215-123")), 403);
        let Answer::Response(page) = open("20261127-064215-123") else { unreachable!("a page") };

        assert!(page.status == 200 && page.set_cookie.is_some());
        assert!(page.body.contains("url=/#/incident/20261127-064215-123\""), "{}", page.body);
    }

    #[test]
    fn nothing_but_reading() {
        let (mut sessions, cookies) = opened();
        let request = Request { method: Method::Other, cookies: &cookies, ..REQUEST };

        assert_eq!(status(&ask(&mut sessions, &request)), 405);
        assert_eq!(status(&ask(&mut sessions, &Request { method: Method::Head, ..request })), 200);
    }

    #[test]
    fn a_session_ends_with_the_role_of_its_owner() {
        let (mut sessions, cookies) = opened();
        let request = Request { cookies: &cookies, ..REQUEST };
        let doorkeeper = Doorkeeper { sessions: &mut sessions, cookie: COOKIE, now: NOW, fresh: secret(3) };

        assert_eq!(status(&doorkeeper.answer(&request, |owner| *owner != "alice")), 401);
    }

    #[test]
    fn documents_have_numbers_and_ids() {
        let (mut sessions, cookies) = opened();
        let mut at = |path| ask(&mut sessions, &Request { path, cookies: &cookies, ..REQUEST });

        assert_eq!(at("/api/events"), Answer::Events);
        assert_eq!(at("/api/service/12"), Answer::Document(Document::Service(12)));
        assert_eq!(at("/api/metrics/12"), Answer::Document(Document::Metrics(12)));
        assert_eq!(at("/api/map"), Answer::Document(Document::Map));
        assert_eq!(at("/api/traces"), Answer::Document(Document::Traces));
        assert_eq!(at("/api/older/12/604800"), Answer::Document(Document::Older(12, Reach::Week)));
        assert_eq!(at("/api/node"), Answer::Document(Document::Node));
        let trace = at("/api/trace/000000000000000000000000000000ff");
        assert_eq!(trace, Answer::Document(Document::Trace(255)));
        let id: IncidentId = "20261127-064215-123".parse().unwrap();
        assert_eq!(at("/api/incidents"), Answer::Document(Document::Incidents));
        assert_eq!(at("/api/incident/20261127-064215-123"), Answer::Document(Document::Incident(id)));
        assert_eq!(at("/api/incident/20261127-064215-123.html"), Answer::Document(Document::IncidentFile(id)));
        let content_types = (Document::Incident(id).content_type(), Document::IncidentFile(id).content_type());
        assert_eq!(content_types, (JSON, HTML));
        for path in ["/api/incident/", "/api/incident/7", "/api/incident/20261127-064215-123.htm", "/api/incident/../x"]
        {
            assert_eq!(status(&at(path)), 404, "{path}");
        }
        for path in ["/api/older/12", "/api/older/12/1", "/api/older/x/86400"] {
            assert_eq!(status(&at(path)), 404, "{path}");
        }
        for path in ["/api/", "/api/service/", "/api/service/-1", "/api/trace/ff", "/api/service/1/2", "/index.html"] {
            assert_eq!(status(&at(path)), 404, "{path}");
        }
    }

    #[test]
    fn the_policy_lets_nothing_in_from_elsewhere() {
        let (_, policy) = HEADERS[0];
        let first = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:";

        assert!(policy.starts_with(first) && !policy.contains("-inline") && !policy.contains("-eval"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"), "{policy}");
    }
}
