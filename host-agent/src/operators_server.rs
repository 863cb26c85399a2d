//! The gRPC API of operators and hooks (μView, Table 4.2).

mod call_log;
mod calls;
mod models;
mod paths;
pub(crate) mod status;
mod streams;
pub mod translate;
mod trigger;

use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Identity;
use agent_runtime::server::{self, ReplyShares};
use agent_runtime::shares::ShareError;
use axum::Router;
use axum::http::request::Parts;
use incidents::recorder::FindError;
use otlp::Edge;
use tokio::sync::Notify;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use wire::control::MAX_MESSAGE_BYTES;
use wire::id::{HookId, LmapId, MetricId, WorkerId};
use wire::proto::operators as proto;
use wire::proto::operators::operators_server::{Operators, OperatorsServer};
use wire::time::Nanos;

pub(crate) use self::calls::Callers;
use self::calls::{AllowedCall, Call, allowed};
use self::streams::{NextItem, stream};
use self::translate::SentTitles;
use crate::control_plane::{LmapOptions, OperatorError};
use crate::dispatch::StreamId;
use crate::incident_book::IncidentBook;
use crate::live_page::LivePage;
use crate::node::{Node, WatchError};
use crate::open_problems::ProblemSources;
use crate::token_access::{Credential, TokenAccess};

/// Rows queued for a slow watcher.
const ROW_QUEUE: usize = 4096;

/// Time limit for a request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// The operators' API of `node`, with at most `hooks` hooks and watchers. `hook_queue` is the default queue length of
/// hooks. Requests and replies hold what `held` has room for.
pub(crate) fn router(
    node: Arc<Node>,
    callers: Callers,
    (hooks, hook_queue): (usize, usize),
    sources: Arc<ProblemSources>,
    page: Option<Arc<LivePage>>,
    held: &Arc<ReplyShares>,
) -> Router {
    let (of_service, tokens) = (Arc::clone(&node), callers.tokens.clone());
    let service = OperatorsService { node: of_service, tokens, hooks, hook_queue, sources, page };
    let service = OperatorsServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let router = call_log::with_logged_calls(Routes::new(service).into_axum_router(), node.clock());
    let admit = move |head: Parts| {
        let (node, callers) = (Arc::clone(&node), callers.clone());
        async move { callers.admit(&node, head).await }
    };
    let router = server::with_bounded_requests(router, REQUEST_WITHIN, held, admit);
    server::with_reply_shares(router, held)
}

struct OperatorsService {
    node: Arc<Node>,
    /// `None`: nobody shows a token.
    tokens: Option<Arc<TokenAccess>>,
    /// Most hooks and watchers of all operators and viewers.
    hooks: usize,
    hook_queue: usize,
    sources: Arc<ProblemSources>,
    /// `None`: there is no page.
    page: Option<Arc<LivePage>>,
}

impl OperatorsService {
    /// The status of a call by somebody who has their share.
    fn over_share(&self, error: &ShareError<String>) -> Status {
        self.node.counts.refused_hooks.one_more();
        tracing::warn!(%error, "hook refused");
        Status::resource_exhausted(error.to_string())
    }

    /// Resolves once the cluster does not let `by`, who sent `request`, any more; never, if it was no token that let
    /// them.
    fn withdrawn<T>(
        &self,
        request: &Request<T>,
        by: &Identity,
        call: &'static Call,
    ) -> impl Future<Output = Status> + Send + use<T> {
        let tokens = self.tokens.clone().filter(|_| matches!(by, Identity::Account(_)));
        let shown = Credential::of(request.metadata());
        async move {
            match tokens {
                Some(tokens) => tokens.withdrawn(&shown, call.right, call.what).await.status(),
                None => core::future::pending().await,
            }
        }
    }
}

/// What `ask` returns, which may wait for the OTLP endpoint's locks: the control plane's threads wait for nobody.
async fn unblocked<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> Result<R, Status> {
    tokio::task::spawn_blocking(ask).await.map_err(|_| Status::internal("the call ended without a reply"))
}

/// The status of a call about traces where all spans pass through, or where no `edge` takes any.
fn not_buffered(edge: Option<&Edge>) -> Status {
    let to_do = match edge {
        Some(_) => "traces are not buffered: set otlp.traces.keep to tail",
        None => "this node takes no spans: set otlp.upstream or otlp.watch_only, and otlp.traces.keep to tail",
    };
    Status::failed_precondition(to_do)
}

/// The incident that `asked` names.
fn incident(book: Option<&IncidentBook>, asked: &proto::IncidentRequest) -> Result<proto::IncidentReply, Status> {
    let none = || Status::not_found("no incidents are kept");
    let book = book.ok_or_else(none)?;
    let id = book.find(&asked.id).map_err(|error| match error {
        FindError::Several { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::not_found(error.to_string()),
    })?;
    let incident = book.get(id).ok_or_else(none)?;
    Ok(proto::IncidentReply { incident: Some(incident) })
}

/// Unregisters a watcher when its stream ends.
struct WatcherGuard {
    node: Arc<Node>,
    id: HookId,
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.node.unregister(self.id);
    }
}

/// A hook's stream. The hook is detached when the stream ends.
struct HookStream {
    node: Arc<Node>,
    id: HookId,
    stream: StreamId,
}

impl Drop for HookStream {
    fn drop(&mut self) {
        self.node.detach_hook(self.id, self.stream);
    }
}

/// Verdicts for `attached`, until another stream takes over, or all LMAPs that it lists are deleted.
fn events(
    attached: HookStream,
    notified: Arc<Notify>,
    withdrawn: impl Future<Output = Status> + Send + 'static,
) -> ReceiverStream<Result<proto::HookEvent, Status>> {
    let node = Arc::clone(&attached.node);
    let mut titles = SentTitles::default();
    stream(&node, notified, withdrawn, move || {
        let HookStream { node, id, stream } = &attached;
        match node.next_event_for(*id, *stream) {
            Ok(Some(taken)) => NextItem::Item(translate::event(*id, &taken, &mut titles)),
            Ok(None) if node.is_over(*id) => NextItem::End(None),
            Ok(None) => NextItem::Wait,
            Err(_) => NextItem::End(Some(Status::aborted("another stream has taken over this hook"))),
        }
    })
}

#[tonic::async_trait]
impl Operators for OperatorsService {
    type RegisterHookStream = ReceiverStream<Result<proto::HookEvent, Status>>;
    type ResumeHookStream = ReceiverStream<Result<proto::HookEvent, Status>>;
    type WatchRowsStream = ReceiverStream<Result<proto::RowEvent, Status>>;

    async fn new_lmap(&self, request: Request<proto::NewLmapRequest>) -> Result<Response<proto::NewLmapReply>, Status> {
        let by = allowed(&request)?.by;
        let mut request = request.into_inner();
        let service = translate::service(&request.service)?;
        let model = models::trained(&self.node, core::mem::take(&mut request.model))?;
        let options = translate::lmap_options(&request, model)?;
        let options = LmapOptions { by: by.to_string(), ..options };
        let created = self.node.plane(|plane, now| plane.new_lmap(now, &service, options));
        let lmap = created.map_err(|error| models::refused(&self.node, &error))?;
        tracing::info!(%by, %lmap, %service, "operator created an LMAP");
        Ok(Response::new(proto::NewLmapReply { lmap: lmap.0 }))
    }

    async fn config_lmap(
        &self,
        request: Request<proto::ConfigLmapRequest>,
    ) -> Result<Response<proto::ConfigLmapReply>, Status> {
        let by = allowed(&request)?.by;
        let proto::ConfigLmapRequest { lmap, metrics, services } = request.into_inner();
        let id = LmapId(lmap);
        if !(metrics.is_empty() || services.is_empty()) {
            let both = "both metrics and services are set: name the metrics in one of them";
            return Err(Status::invalid_argument(both));
        }
        let configured = if services.is_empty() {
            let choices = metrics.iter().map(translate::choice).collect::<Result<_, _>>()?;
            self.node.plane(|plane, now| plane.config_lmap(now, id, choices))
        } else {
            let members = translate::members(&services)?;
            self.node.plane(|plane, now| plane.config_members(now, id, members))
        };
        configured.map_err(|error| translate::status(&error))?;
        let (metrics, services) = (metrics.len(), services.len());
        tracing::info!(%by, lmap, metrics, services, "operator configured an LMAP");
        let pending = self.node.inspect(|plane, _| plane.pending(id, Nanos::ZERO)).into_iter();
        Ok(Response::new(proto::ConfigLmapReply { pending: pending.map(|pending| pending.metric).collect() }))
    }

    async fn delete_lmap(
        &self,
        request: Request<proto::DeleteLmapRequest>,
    ) -> Result<Response<proto::DeleteLmapReply>, Status> {
        let by = allowed(&request)?.by;
        let lmap = LmapId(request.into_inner().lmap);
        let deleted = self.node.plane(|plane, now| plane.delete_lmap(now, lmap));
        deleted.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, %lmap, "operator deleted an LMAP");
        Ok(Response::new(proto::DeleteLmapReply {}))
    }

    async fn add_metric(
        &self,
        request: Request<proto::AddMetricRequest>,
    ) -> Result<Response<proto::AddMetricReply>, Status> {
        let by = allowed(&request)?.by;
        let request = request.into_inner();
        let metric = request.metric.ok_or_else(|| Status::invalid_argument("metric is missing"))?;
        let choice = translate::choice(&metric)?;
        let kind = Some(request.r#type.as_str()).filter(|kind| !kind.is_empty());
        let added = self.node.plane(|plane, now| plane.add_metric(now, LmapId(request.lmap), choice, kind));
        let metrics = added.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, lmap = request.lmap, "operator added a metric");
        Ok(Response::new(proto::AddMetricReply { metrics: metrics.into_iter().map(|metric| metric.0).collect() }))
    }

    async fn delete_metric(
        &self,
        request: Request<proto::DeleteMetricRequest>,
    ) -> Result<Response<proto::DeleteMetricReply>, Status> {
        let by = allowed(&request)?.by;
        let request = request.into_inner();
        let (lmap, metric) = (LmapId(request.lmap), MetricId(request.metric));
        let deleted = self.node.plane(|plane, now| plane.delete_metric(now, lmap, metric));
        deleted.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, %lmap, %metric, "operator deleted a metric");
        Ok(Response::new(proto::DeleteMetricReply {}))
    }

    async fn register_hook(
        &self,
        request: Request<proto::RegisterHookRequest>,
    ) -> Result<Response<Self::RegisterHookStream>, Status> {
        let AllowedCall { by, call } = allowed(&request)?;
        let withdrawn = self.withdrawn(&request, &by, call);
        let request = request.into_inner();
        let filter = translate::filter(&request)?;
        let listed = filter.lmaps.clone();
        let check = || {
            let unknown = |lmap: &&LmapId| self.node.inspect(|plane, _| plane.columns(**lmap).is_none());
            let unknown = listed.iter().find(unknown);
            unknown.map_or(Ok(()), |lmap| Err(translate::status(&OperatorError::NoLmap(*lmap))))
        };
        check()?;
        let queue = if request.queue == 0 { self.hook_queue } else { request.queue as usize };
        let registered = self.node.for_operator(&by, self.hooks, |node| node.register_hook(filter, queue));
        let registered = registered.map_err(|error| self.over_share(&error))?;
        let (id, notified) = registered.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        tracing::info!(%by, hook = %id, "hook registered");
        let gone = || Status::internal("the hook no longer exists");
        let stream = self.node.hook_stream(id).ok_or_else(gone)?;
        // One that was deleted before the hook was there would never be told of.
        check().inspect_err(|_| self.node.unregister(id))?;
        let attached = HookStream { node: Arc::clone(&self.node), id, stream };
        Ok(Response::new(events(attached, notified, withdrawn)))
    }

    async fn resume_hook(
        &self,
        request: Request<proto::ResumeHookRequest>,
    ) -> Result<Response<Self::ResumeHookStream>, Status> {
        let AllowedCall { by, call } = allowed(&request)?;
        let withdrawn = self.withdrawn(&request, &by, call);
        let proto::ResumeHookRequest { hook, after } = request.into_inner();
        let resumed = self.node.resume_hook(HookId(hook), after);
        let (stream, notified) = resumed.map_err(|error| Status::not_found(error.to_string()))?;
        tracing::info!(%by, hook, after, "hook resumed");
        let attached = HookStream { node: Arc::clone(&self.node), id: HookId(hook), stream };
        Ok(Response::new(events(attached, notified, withdrawn)))
    }

    async fn watch_rows(
        &self,
        request: Request<proto::WatchRowsRequest>,
    ) -> Result<Response<Self::WatchRowsStream>, Status> {
        let AllowedCall { by, call } = allowed(&request)?;
        let withdrawn = self.withdrawn(&request, &by, call);
        let request = request.into_inner();
        let watched = self.node.for_operator(&by, self.hooks, |node| {
            let watched = node.watch_rows(LmapId(request.lmap), request.every, request.follow, ROW_QUEUE);
            watched.map_err(|error| match error {
                WatchError::NoLmap(lmap) => translate::status(&OperatorError::NoLmap(lmap)),
                WatchError::TooMany(error) => Status::resource_exhausted(error.to_string()),
            })
        });
        let (id, notified) = watched.map_err(|error| self.over_share(&error))??;
        let registered = WatcherGuard { node: Arc::clone(&self.node), id };
        let mut sent_columns: Option<Arc<[String]>> = None;
        let rows =
            stream(&self.node, notified, withdrawn, move || match registered.node.next_row_item(registered.id) {
                Some(taken) => NextItem::Item(translate::row(taken, &mut sent_columns)),
                None if registered.node.is_over(registered.id) => NextItem::End(None),
                None => NextItem::Wait,
            });
        Ok(Response::new(rows))
    }

    async fn fit_again(
        &self,
        request: Request<proto::FitAgainRequest>,
    ) -> Result<Response<proto::FitAgainReply>, Status> {
        let by = allowed(&request)?.by;
        let lmap = LmapId(request.into_inner().lmap);
        let asked = self.node.plane(|plane, now| plane.fit_again(now, lmap));
        asked.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, %lmap, "operator requested a refit");
        Ok(Response::new(proto::FitAgainReply {}))
    }

    async fn set_interval(
        &self,
        request: Request<proto::SetIntervalRequest>,
    ) -> Result<Response<proto::SetIntervalReply>, Status> {
        let by = allowed(&request)?.by;
        let request = request.into_inner();
        let (lmap, change) = (LmapId(request.lmap), translate::interval_change(&request, by.to_string())?);
        let set = self.node.plane(|plane, now| plane.set_interval(now, lmap, &change));
        let set = set.map_err(|error| translate::status(&error))?;
        let (before, interval) = (set.before.length(), set.interval.length());
        let fastest = set.fastest.map(|fastest| fastest.length().to_string());
        tracing::info!(%by, %lmap, %before, %interval, fastest, "operator set the interval of an LMAP");
        Ok(Response::new(translate::interval_reply(&set)))
    }

    async fn set_model(
        &self,
        request: Request<proto::SetModelRequest>,
    ) -> Result<Response<proto::SetModelReply>, Status> {
        let by = allowed(&request)?.by;
        models::set(&self.node, request.into_inner(), &by).map(Response::new)
    }

    async fn drain_worker(
        &self,
        request: Request<proto::DrainWorkerRequest>,
    ) -> Result<Response<proto::DrainWorkerReply>, Status> {
        let by = allowed(&request)?.by;
        let proto::DrainWorkerRequest { worker, force } = request.into_inner();
        let drained = self.node.plane(|plane, now| plane.drain_worker(now, WorkerId(worker), force, &by.to_string()));
        let lmaps = drained.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, worker, force, lmaps, "operator drained a worker");
        Ok(Response::new(proto::DrainWorkerReply { lmaps: lmaps as u32 }))
    }

    async fn undrain_worker(
        &self,
        request: Request<proto::UndrainWorkerRequest>,
    ) -> Result<Response<proto::UndrainWorkerReply>, Status> {
        let by = allowed(&request)?.by;
        let worker = request.into_inner().worker;
        let undrained = self.node.plane(|plane, now| plane.undrain_worker(now, WorkerId(worker)));
        undrained.map_err(|error| translate::status(&error))?;
        tracing::info!(%by, worker, "operator undrained a worker");
        Ok(Response::new(proto::UndrainWorkerReply {}))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        allowed(&request)?;
        let now = self.node.clock().now();
        let reply = self.node.inspect(|plane, _| {
            let mut reply = plane.list();
            for lmap in &mut reply.lmaps {
                let id = LmapId(lmap.lmap);
                (lmap.pending, lmap.members) = (plane.pending(id, now), plane.members(id, now));
            }
            reply
        });
        Ok(Response::new(reply))
    }

    async fn receipt(&self, request: Request<proto::ReceiptRequest>) -> Result<Response<proto::ReceiptReply>, Status> {
        allowed(&request)?;
        let (receipts, node) = (Arc::clone(&self.sources.receipts), Arc::clone(&self.node));
        unblocked(move || receipts.reply(&node)).await.map(Response::new)
    }

    async fn paths(&self, request: Request<proto::PathsRequest>) -> Result<Response<proto::PathsReply>, Status> {
        allowed(&request)?;
        let edge = self.sources.edge.clone();
        let paths = move || edge.as_deref().and_then(paths::reply).ok_or_else(|| not_buffered(edge.as_deref()));
        unblocked(paths).await?.map(Response::new)
    }

    async fn sources(&self, request: Request<proto::SourcesRequest>) -> Result<Response<proto::SourcesReply>, Status> {
        allowed(&request)?;
        let watched = self.sources.watched.clone();
        let reply = unblocked(move || watched.reply()).await?;
        Ok(Response::new(proto::SourcesReply { targets: reply }))
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Result<Response<proto::StatusReply>, Status> {
        allowed(&request)?;
        Ok(Response::new(status::status(&self.node, &self.sources)))
    }

    async fn incidents(
        &self,
        request: Request<proto::IncidentsRequest>,
    ) -> Result<Response<proto::IncidentsReply>, Status> {
        allowed(&request)?;
        let book = self.sources.incidents.clone();
        unblocked(move || book.map(|book| book.list()).unwrap_or_default()).await.map(Response::new)
    }

    async fn incident(
        &self,
        request: Request<proto::IncidentRequest>,
    ) -> Result<Response<proto::IncidentReply>, Status> {
        allowed(&request)?;
        let (book, asked) = (self.sources.incidents.clone(), request.into_inner());
        unblocked(move || incident(book.as_deref(), &asked)).await?.map(Response::new)
    }

    async fn trigger(&self, request: Request<proto::TriggerRequest>) -> Result<Response<proto::TriggerReply>, Status> {
        let by = allowed(&request)?.by;
        let wanted = trigger::request(request.into_inner(), &by)?;
        let (node, edge) = (Arc::clone(&self.node), self.sources.edge.clone());
        unblocked(move || trigger::ask(&node, edge.as_deref(), &wanted)).await?.map(Response::new)
    }

    async fn open_page(
        &self,
        request: Request<proto::OpenPageRequest>,
    ) -> Result<Response<proto::OpenPageReply>, Status> {
        let by = allowed(&request)?.by;
        let off = || Status::failed_precondition("there is no page: page.enabled is false");
        let page = self.page.as_ref().ok_or_else(off)?;
        if matches!(by, Identity::Account(_)) {
            // Its browser would have to be on this machine; and each request would have to be asked about again.
            let who = "the page is for users of this machine and holders of certificates: `kubectl uview`, on the node";
            return Err(Status::failed_precondition(who));
        }
        tracing::info!(%by, "viewer asked for the page");
        let opened = page.grant(by).map_err(|error| Status::resource_exhausted(error.to_string()))?;
        Ok(Response::new(opened))
    }
}
