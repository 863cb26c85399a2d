//! Callers with tokens against the operators' API over TLS, and an API server of the tests' own.

use std::net::SocketAddr;
use std::sync::Arc;

use agent_runtime::ServerTls;
use agent_runtime::access::{Access, AccessConfig};
use agent_runtime::live_tls::{LiveServer, ServerFiles};
use agent_runtime::reload::Reloadable;
use agent_runtime::server::{Limits, Listener, ReplyShares, Server, Traffic};
use hooks::time::UnixNanos;
use support::certificates::{Authority, Subject};
use support::wait::Wait;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as Holder};
use tonic::{Code, Request};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use wire::id::Incarnation;
use wire::proto::operators as proto;
use wire::proto::operators::operators_client::OperatorsClient;
use wire::time::{Interval, Nanos};

use super::testing::{ApiServer, Mood, rules};
use super::*;
use crate::config::Config;
use crate::control_plane::Settings;
use crate::node::Node;
use crate::open_problems::ProblemSources;
use crate::operators_server::{self, Callers};
use crate::receipts::Receipts;
use crate::watched_sources::WatchedSources;

const WAIT: Wait = Wait::up_to(Duration::from_secs(20));

/// Names in an order, each once.
fn sorted(mut all: Vec<(String, String)>) -> Vec<(String, String)> {
    all.sort();
    all.dedup();
    all
}

#[test]
fn roles_of_the_chart_have_the_rights_of_viewers_and_operators_and_no_other() {
    for (role, has) in
        [("uview-viewer", vec!["uview-viewer"]), ("uview-operator", vec!["uview-viewer", "uview-operator"])]
    {
        let rights = Right::ALL.into_iter().filter(|right| has.contains(&right.cluster_role()));
        let wanted: Vec<_> = rights.map(|right| (right.resource(), right.verb().to_owned())).collect();

        assert_eq!(sorted(rules(role)), sorted(wanted), "{role}");
    }
}

fn plan() -> TokenPlan {
    TokenPlan { audience: "uview".to_owned(), node: Some("node-1".to_owned()) }
}

/// The operators' API of a node, over TLS.
struct Served {
    server: ApiServer,
    tokens: Arc<TokenAccess>,
    address: SocketAddr,
    /// Has the certificates.
    folder: TempDir,
}

const VIEWER: &str = "system:serviceaccount:shop:dashboard";
const OPERATOR: &str = "system:serviceaccount:shop:robot";

impl Served {
    /// With a viewer, an operator, and an account without a role, each with a token.
    async fn start() -> Self {
        let server = ApiServer::default();
        for (token, account) in [("v", VIEWER), ("o", OPERATOR), ("n", "system:serviceaccount:shop:nobody")] {
            server.token(token, account, "uview");
        }
        server.with(|cluster| {
            cluster.bindings.insert(VIEWER.to_owned(), ("uview-viewer", None));
            cluster.bindings.insert(OPERATOR.to_owned(), ("uview-operator", None));
        });
        Self::with(server.clone(), server.start().await).await
    }

    async fn with(server: ApiServer, config: kube::Config) -> Self {
        let clock = Clock::start();
        let tokens = TokenAccess::new(plan(), config, clock).unwrap();
        let tokens = Arc::new(TokenAccess { again: Duration::from_millis(20), ..tokens });
        let interval = Interval::new(Nanos::from_secs(1)).unwrap();
        let node = Arc::new(Node::new(Settings::new(Incarnation(1), interval), 4, clock, None));
        let receipts = Receipts::new(&Config::default().receipt, None, "node".to_owned(), UnixNanos(0)).unwrap();
        let sources = ProblemSources {
            edge: None,
            remotes: Vec::new(),
            receipts: Arc::new(receipts),
            incidents: None,
            models: None,
            cgroups: Arc::default(),
            watched: WatchedSources::default(),
            tokens: Some(Arc::clone(&tokens)),
            connections: Arc::default(),
        };
        let access = Reloadable::new(Access::resolve(&AccessConfig::default()).unwrap());
        let callers = Callers { access, tokens: Some(Arc::clone(&tokens)), refused: Arc::default() };
        let held = ReplyShares::new(1 << 20, |_| {});
        let router = operators_server::router(node, callers, (4, 16), Arc::new(sources), None, &held);
        let folder = certificates();
        let file = |name: &str| folder.path().join(name);
        let tls =
            ServerTls { certificate: file("server.pem"), key: file("server.key"), client_ca: Some(file("ca.pem")) };
        let acceptor = LiveServer::new(ServerFiles::load_optional(&tls).unwrap()).acceptor(b"h2").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 16, connections_per_peer: 16, traffic: Traffic::Streams };
        let api = Server { name: "operators", router, limits, counts: Arc::default() };
        tokio::spawn(api.serve(vec![Listener::Tcp(listener)], Some(acceptor), core::future::pending()));
        Self { server, tokens, address, folder }
    }

    async fn channel(&self, holder: Option<&str>) -> Channel {
        let read = |name: String| std::fs::read(self.folder.path().join(name)).unwrap();
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem".to_owned())));
        if let Some(name) = holder {
            tls = tls.identity(Holder::from_pem(read(format!("{name}.pem")), read(format!("{name}.key"))));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        endpoint.tls_config(tls.domain_name("localhost")).unwrap().connect().await.unwrap()
    }

    /// The outcomes of reading calls, and of changing ones, with `authorization`.
    async fn calls(&self, authorization: Option<&str>) -> [Vec<Result<(), tonic::Status>>; 2] {
        let mut client = OperatorsClient::new(self.channel(None).await);
        macro_rules! call {
            ($name:ident, $message:expr) => {
                client.$name(shown($message, authorization)).await.map(drop)
            };
        }
        let reading = vec![
            call!(status, proto::StatusRequest {}),
            call!(list, proto::ListRequest {}),
            call!(receipt, proto::ReceiptRequest {}),
            call!(sources, proto::SourcesRequest {}),
            call!(paths, proto::PathsRequest {}),
            call!(watch_rows, proto::WatchRowsRequest { lmap: 9, ..Default::default() }),
        ];
        let changing = vec![
            call!(new_lmap, proto::NewLmapRequest { service: "a b".to_owned(), ..Default::default() }),
            call!(config_lmap, proto::ConfigLmapRequest { lmap: 9, ..Default::default() }),
            call!(delete_lmap, proto::DeleteLmapRequest { lmap: 9 }),
            call!(add_metric, proto::AddMetricRequest { lmap: 9, ..Default::default() }),
            call!(delete_metric, proto::DeleteMetricRequest { lmap: 9, metric: 1 }),
            call!(fit_again, proto::FitAgainRequest { lmap: 9 }),
            call!(set_interval, proto::SetIntervalRequest { lmap: 9, ..Default::default() }),
            call!(set_model, proto::SetModelRequest { lmap: 9, ..Default::default() }),
            call!(drain_worker, proto::DrainWorkerRequest { worker: 9, force: false }),
            call!(undrain_worker, proto::UndrainWorkerRequest { worker: 9 }),
            call!(resume_hook, proto::ResumeHookRequest { hook: 9, after: 0 }),
            call!(register_hook, proto::RegisterHookRequest::default()),
            call!(trigger, proto::TriggerRequest { service: "payment".to_owned(), ..Default::default() }),
        ];
        [reading, changing]
    }

    /// The outcome of one reading call with the bearer token `token`.
    async fn status(&self, token: &str) -> Result<proto::StatusReply, tonic::Status> {
        let mut client = OperatorsClient::new(self.channel(None).await);
        let request = shown(proto::StatusRequest {}, Some(&format!("Bearer {token}")));
        client.status(request).await.map(tonic::Response::into_inner)
    }
}

fn shown<T>(message: T, authorization: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(text) = authorization {
        request.metadata_mut().insert("authorization", text.parse().unwrap());
    }
    request
}

/// An authority, a server's certificate, and one of a client with the role of a viewer.
fn certificates() -> TempDir {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("authority"));
    authority.write(folder.path(), "ca");
    for (name, uri) in [("server", "uview:none"), ("viewer", "uview:viewer")] {
        Subject::new(&["localhost", uri]).signed_by(&authority).write(folder.path(), name);
    }
    folder
}

/// Codes of refusals by role and identity among `outcomes`.
fn refused(outcomes: &[Result<(), tonic::Status>]) -> Vec<Code> {
    let codes = outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(tonic::Status::code));
    codes.filter(|code| matches!(code, Code::PermissionDenied | Code::Unauthenticated | Code::Unavailable)).collect()
}

#[tokio::test]
async fn roles_of_the_cluster_say_which_calls_a_token_is_good_for() {
    let served = Served::start().await;

    let [reading, changing] = served.calls(Some("Bearer v")).await;
    assert_eq!((refused(&reading), refused(&changing)), (vec![], vec![Code::PermissionDenied; 13]));
    let message = changing[0].as_ref().unwrap_err().message();
    let grant = "kubectl create clusterrolebinding uview-operator-shop-dashboard --clusterrole=uview-operator \
                 --serviceaccount=shop:dashboard";
    assert!(message.starts_with(VIEWER) && message.ends_with(grant), "{message}");

    let [reading, changing] = served.calls(Some("bearer o")).await;
    assert_eq!((refused(&reading), refused(&changing)), (vec![], vec![]));
    let [reading, changing] = served.calls(Some("Bearer n")).await;
    assert_eq!((refused(&reading).len(), refused(&changing).len()), (6, 13), "an account without a role");
    assert!(served.tokens.problem().is_none());
}

#[tokio::test]
async fn without_a_token_or_certificate_nobody_is_in_and_a_certificate_still_is() {
    let served = Served::start().await;

    for authorization in [None, Some("Basic dXNlcg=="), Some("Bearer"), Some("Bearer a b"), Some("v")] {
        let [reading, changing] = served.calls(authorization).await;
        assert_eq!(refused(&[reading, changing].concat()), vec![Code::Unauthenticated; 19], "{authorization:?}");
    }
    assert_eq!(served.server.asked(), (0, 0), "the API server is not asked about what is no token");
    let mut holder = OperatorsClient::new(served.channel(Some("viewer")).await);
    holder.status(proto::StatusRequest {}).await.unwrap();
    // Who has a certificate is its holder: the token of an operator adds nothing.
    let request = shown(proto::DeleteLmapRequest { lmap: 9 }, Some("Bearer o"));
    assert_eq!(holder.delete_lmap(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_token_that_has_expired_or_is_for_another_audience_is_refused_with_the_reason() {
    let served = Served::start().await;
    served.server.token("other", OPERATOR, "vault");

    let expired = served.status("gone").await.unwrap_err();
    assert_eq!(expired.code(), Code::Unauthenticated);
    assert!(expired.message().contains("service account token has expired"), "{expired}");
    assert!(expired.message().contains("kubectl create token NAME --audience=uview"), "{expired}");
    let other = served.status("other").await.unwrap_err();
    assert_eq!(other.code(), Code::Unauthenticated);
    assert!(other.message().contains("[\"vault\"] is invalid for the target audiences"), "{other}");
    // An API server, or a webhook of its, that looks at no audiences.
    served.server.with(|cluster| cluster.mood = Mood::Old);
    let old = served.status("v").await.unwrap_err();
    assert_eq!(old.code(), Code::Unauthenticated);
    assert!(old.message().contains("for the audience of the API server, and not for uview"), "{old}");
}

#[tokio::test]
async fn answers_are_kept_for_seconds_and_then_asked_for_again() {
    let server = ApiServer::default();
    server.token("v", VIEWER, "uview");
    server.with(|cluster| cluster.bindings.insert(VIEWER.to_owned(), ("uview-viewer", Some("node-1"))));
    let mut tokens = TokenAccess::new(plan(), server.start().await, Clock::start()).unwrap();
    let token = Credential::Token("v".to_owned());
    for _ in 0..3 {
        let who = tokens.allow(&token, Right::Read, "read").await.unwrap();
        assert_eq!(who, Identity::Account(VIEWER.to_owned()));
        assert!(matches!(tokens.allow(&token, Right::Hook, "hook").await, Err(TokenRefusal::Denied { .. })));
        let gone = tokens.allow(&Credential::Token("gone".to_owned()), Right::Read, "read").await;
        assert!(matches!(gone, Err(TokenRefusal::Invalid { .. })));
    }
    assert_eq!(server.asked(), (2, 2), "each once");

    // It is granted more: seconds later that counts.
    server.with(|cluster| cluster.bindings.insert(VIEWER.to_owned(), ("uview-operator", None)));
    tokens.clock = Clock::started_before(Duration::from_secs(10));
    assert!(tokens.allow(&token, Right::Hook, "hook").await.is_ok());
    assert_eq!(server.asked(), (2, 3));
    // It is gone: half a minute later that counts.
    server.with(|cluster| cluster.tokens.clear());
    assert!(tokens.allow(&token, Right::Read, "read").await.is_ok());
    tokens.clock = Clock::started_before(Duration::from_secs(45));
    assert!(matches!(tokens.allow(&token, Right::Read, "read").await, Err(TokenRefusal::Invalid { .. })));
}

#[tokio::test]
async fn a_role_may_be_for_one_node() {
    let server = ApiServer::default();
    server.token("v", VIEWER, "uview");
    server.with(|cluster| cluster.bindings.insert(VIEWER.to_owned(), ("uview-viewer", Some("node-2"))));
    let tokens = TokenAccess::new(plan(), server.start().await, Clock::start()).unwrap();

    let here = tokens.allow(&Credential::Token("v".to_owned()), Right::Read, "read").await;

    assert!(matches!(here, Err(TokenRefusal::Denied { .. })), "{here:?}");
}

#[tokio::test]
async fn while_the_api_server_does_not_answer_callers_are_refused_and_the_status_says_so_until_it_does() {
    let served = Served::start().await;
    assert!(served.status("v").await.unwrap().problems.is_empty());
    served.server.with(|cluster| cluster.mood = Mood::Forbids);

    let refused = served.status("o").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("tokenreviews is forbidden"), "{refused}");
    // What was known half a minute ago is known still; and a viewer sees why others are refused.
    let problems = served.status("v").await.unwrap().problems;
    let line = "kubernetes: tokens of operators and viewers cannot be checked: ";
    assert!(problems[0].starts_with(line) && problems[0].contains("subjectaccessreviews?"), "{problems:?}");
    // A machine may take more than that second for a call: then it is asked again, which is right.
    let left_alone = async {
        for _ in 0..20 {
            let asked = served.server.asked();
            assert_eq!(served.status("o").await.unwrap_err().code(), Code::Unavailable);
            if served.server.asked() == asked {
                return true;
            }
        }
        false
    };
    assert!(left_alone.await, "it is left alone for a second");

    served.server.with(|cluster| cluster.mood = Mood::Well);
    WAIT.until_async("it is asked again", async || served.status("o").await).await;
    assert!(served.status("v").await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn an_api_server_that_is_gone_or_silent_keeps_nobody_waiting_for_long() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gone = kube::Config::new(format!("http://{closed}").parse().unwrap());
    let silent = ApiServer::default();
    silent.with(|cluster| cluster.mood = Mood::Silent);
    for config in [gone, silent.start().await] {
        let served = Served::with(ApiServer::default(), config).await;

        let within = tokio::time::timeout(Duration::from_secs(30), served.status("v")).await.unwrap();

        assert_eq!(within.unwrap_err().code(), Code::Unavailable);
        assert!(served.tokens.problem().is_some());
    }
}

#[tokio::test]
async fn a_flood_of_bad_tokens_is_asked_about_at_a_bounded_rate_and_those_that_are_known_stay() {
    let server = ApiServer::default();
    server.token("v", VIEWER, "uview");
    server.with(|cluster| cluster.bindings.insert(VIEWER.to_owned(), ("uview-viewer", None)));
    let tokens = TokenAccess::new(plan(), server.start().await, Clock::start()).unwrap();
    let good = Credential::Token("v".to_owned());
    tokens.allow(&good, Right::Read, "read").await.unwrap();

    let mut busy = 0;
    for number in 0..500 {
        let refused = tokens.allow(&Credential::Token(format!("bad-{number}")), Right::Read, "read").await;
        busy += usize::from(refused == Err(TokenRefusal::Busy));
    }

    let seconds = Duration::from(tokens.clock.now()).as_secs() as usize + 1;
    assert!(server.asked().0 <= seconds * answers::MAX_PER_S as usize, "{:?} in {seconds} s", server.asked());
    assert_eq!(busy + server.asked().0 - 1, 500);
    tokens.allow(&good, Right::Read, "read").await.unwrap();
}

#[tokio::test]
async fn a_stream_ends_when_the_right_is_withdrawn_and_not_while_the_api_server_is_away() {
    let served = Served::start().await;
    let mut client = OperatorsClient::new(served.channel(None).await);
    let request = shown(proto::RegisterHookRequest::default(), Some("Bearer o"));
    let mut hook = client.register_hook(request).await.unwrap().into_inner();
    let asked = || served.server.asked().1;
    let begun = asked();
    WAIT.until_async("it is asked again and again", async || asked() > begun + 2).await;

    served.server.with(|cluster| cluster.mood = Mood::Forbids);
    let ends = tokio::time::timeout(Duration::from_millis(200), hook.message()).await;
    assert!(ends.is_err(), "{ends:?}");
    served.server.with(|cluster| {
        cluster.mood = Mood::Well;
        cluster.bindings.insert(OPERATOR.to_owned(), ("uview-viewer", None));
    });
    let ended = tokio::time::timeout(Duration::from_secs(20), hook.message()).await.unwrap().unwrap_err();

    assert_eq!(ended.code(), Code::PermissionDenied);
    assert!(ended.message().contains("--clusterrole=uview-operator"), "{ended}");
}

/// All that is logged on a thread.
#[derive(Clone, Debug, Default)]
struct WholeLog(Arc<Mutex<String>>);

impl Visit for WholeLog {
    fn record_debug(&mut self, field: &Field, value: &dyn core::fmt::Debug) {
        let line = format!("{field}={value:?}\n");
        lock(&self.0).push_str(&line);
    }
}

impl<S: tracing::Subscriber> Layer<S> for WholeLog {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let line = format!("{} {}\n", event.metadata().level(), event.metadata().target());
        lock(&self.0).push_str(&line);
        event.record(&mut self.clone());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        attributes.record(&mut self.clone());
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(&mut self.clone());
    }
}

#[tokio::test]
async fn no_token_is_in_the_log_at_any_level_whatever_becomes_of_it() {
    let log = WholeLog::default();
    // The agent, its API server and its callers all run on this thread.
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let served = Served::start().await;
    served.server.token("s3cret-viewer", VIEWER, "uview");
    served.server.token("s3cret-vault", OPERATOR, "vault");

    for authorization in
        ["Bearer s3cret-viewer", "Bearer s3cret-vault", "Bearer s3cret-gone", "Bearer s3cret a", "s3cret"]
    {
        _ = served.calls(Some(authorization)).await;
    }
    served.server.with(|cluster| cluster.mood = Mood::Garbled);
    let garbled = served.status("s3cret-garbled").await.unwrap_err();

    assert!(garbled.message().contains("its answer to a TokenReview cannot be read"), "{garbled}");
    let shown = format!("{:?} {:?} {garbled:?}", served.tokens, served.tokens.problem());
    let log = lock(&log.0).clone();
    assert!(log.contains("TRACE ") && log.contains("h2::") && log.contains("--clusterrole=uview-operator"), "{log}");
    for text in [&log, &shown] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("s3cret")).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }
}
