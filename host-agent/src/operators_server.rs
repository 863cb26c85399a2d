//! The API of operators and hooks (μView, Table 4.2).

mod translate;

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use wire::control::MAX_MESSAGE_BYTES;
use wire::id::{HookId, LmapId, MetricId};
use wire::proto::operators as proto;
use wire::proto::operators::operators_server::{Operators, OperatorsServer};

use crate::node::Node;

/// Rows that wait for a slow watcher.
const ROW_QUEUE: usize = 4096;

/// The operators' service of `node`; verdicts wait for a hook in a queue of `hook_queue` unless it asks for another.
#[must_use]
pub fn service(node: Arc<Node>, hook_queue: usize) -> OperatorsServer<impl Operators> {
    OperatorsServer::new(Calls { node, hook_queue })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

struct Calls {
    node: Arc<Node>,
    hook_queue: usize,
}

/// Unregisters a hook or watcher when its stream ends, however that is.
struct Registered {
    node: Arc<Node>,
    id: HookId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.node.unregister(self.id);
    }
}

/// Sends what `next` gives whenever the hook is notified, until the receiver is gone, or the node drains and nothing waits.
fn stream<T: Send + 'static>(
    registered: Registered,
    notified: Arc<Notify>,
    mut next: impl FnMut(&Node, HookId) -> Option<T> + Send + 'static,
) -> ReceiverStream<Result<T, Status>> {
    // One item under way; everything else waits in the hook's own queue, where losses are counted.
    let (sender, receiver) = mpsc::channel(1);
    let mut draining = registered.node.draining();
    tokio::spawn(async move {
        loop {
            while let Some(item) = next(&registered.node, registered.id) {
                if sender.send(Ok(item)).await.is_err() {
                    return;
                }
            }
            if *draining.borrow() {
                return;
            }
            tokio::select! {
                () = notified.notified() => {}
                () = sender.closed() => return,
                _ = draining.changed() => {}
            }
        }
    });
    ReceiverStream::new(receiver)
}

#[tonic::async_trait]
impl Operators for Calls {
    type RegisterHookStream = ReceiverStream<Result<proto::HookEvent, Status>>;
    type WatchRowsStream = ReceiverStream<Result<proto::RowEvent, Status>>;

    async fn new_lmap(&self, request: Request<proto::NewLmapRequest>) -> Result<Response<proto::NewLmapReply>, Status> {
        let request = request.into_inner();
        let service = translate::service(&request.service)?;
        let asked = translate::asked(request)?;
        let made = self.node.plane(|plane, now| plane.new_lmap(now, &service, asked));
        let lmap = made.map_err(|error| translate::status(&error))?;
        tracing::info!(%lmap, %service, "an operator made an LMAP");
        Ok(Response::new(proto::NewLmapReply { lmap: lmap.0 }))
    }

    async fn config_lmap(
        &self,
        request: Request<proto::ConfigLmapRequest>,
    ) -> Result<Response<proto::ConfigLmapReply>, Status> {
        let request = request.into_inner();
        let choices = request.metrics.iter().map(translate::choice).collect::<Result<_, _>>()?;
        let configured = self.node.plane(|plane, now| plane.config_lmap(now, LmapId(request.lmap), choices));
        configured.map_err(|error| translate::status(&error))?;
        tracing::info!(lmap = request.lmap, metrics = request.metrics.len(), "an operator configured an LMAP");
        Ok(Response::new(proto::ConfigLmapReply {}))
    }

    async fn delete_lmap(
        &self,
        request: Request<proto::DeleteLmapRequest>,
    ) -> Result<Response<proto::DeleteLmapReply>, Status> {
        let lmap = LmapId(request.into_inner().lmap);
        let deleted = self.node.plane(|plane, now| plane.delete_lmap(now, lmap));
        deleted.map_err(|error| translate::status(&error))?;
        tracing::info!(%lmap, "an operator deleted an LMAP");
        Ok(Response::new(proto::DeleteLmapReply {}))
    }

    async fn add_metric(
        &self,
        request: Request<proto::AddMetricRequest>,
    ) -> Result<Response<proto::AddMetricReply>, Status> {
        let request = request.into_inner();
        let metric =
            request.metric.ok_or_else(|| Status::invalid_argument("which metric is to be added is missing"))?;
        let choice = translate::choice(&metric)?;
        let kind = Some(request.r#type.as_str()).filter(|kind| !kind.is_empty());
        let added = self.node.plane(|plane, now| plane.add_metric(now, LmapId(request.lmap), choice, kind));
        let metrics = added.map_err(|error| translate::status(&error))?;
        Ok(Response::new(proto::AddMetricReply { metrics: metrics.into_iter().map(|metric| metric.0).collect() }))
    }

    async fn delete_metric(
        &self,
        request: Request<proto::DeleteMetricRequest>,
    ) -> Result<Response<proto::DeleteMetricReply>, Status> {
        let request = request.into_inner();
        let (lmap, metric) = (LmapId(request.lmap), MetricId(request.metric));
        let deleted = self.node.plane(|plane, now| plane.delete_metric(now, lmap, metric));
        deleted.map_err(|error| translate::status(&error))?;
        Ok(Response::new(proto::DeleteMetricReply {}))
    }

    async fn register_hook(
        &self,
        request: Request<proto::RegisterHookRequest>,
    ) -> Result<Response<Self::RegisterHookStream>, Status> {
        let request = request.into_inner();
        let filter = translate::filter(&request)?;
        let known =
            self.node.look(|plane, _| filter.lmaps.iter().find(|lmap| plane.columns(**lmap).is_none()).copied());
        if let Some(lmap) = known {
            return Err(translate::status(&crate::control_plane::OperatorError::NoLmap(lmap)));
        }
        let queue = if request.queue == 0 { self.hook_queue } else { request.queue as usize };
        let registered = self.node.register_hook(filter, queue);
        let (id, notified) = registered.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        tracing::info!(hook = %id, "a hook was registered");
        let registered = Registered { node: Arc::clone(&self.node), id };
        let events =
            stream(registered, notified, |node, id| node.next_event(id).map(|taken| translate::event(id, &taken)));
        Ok(Response::new(events))
    }

    async fn watch_rows(
        &self,
        request: Request<proto::WatchRowsRequest>,
    ) -> Result<Response<Self::WatchRowsStream>, Status> {
        let request = request.into_inner();
        let watched = self.node.watch_rows(LmapId(request.lmap), request.every, ROW_QUEUE);
        let watched = watched.map_err(|error| translate::status(&error))?;
        let (id, notified) = watched.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let registered = Registered { node: Arc::clone(&self.node), id };
        let mut told: Option<Arc<[String]>> = None;
        let rows = stream(registered, notified, move |node, id| {
            node.next_row(id).map(|taken| translate::row(taken, &mut told))
        });
        Ok(Response::new(rows))
    }

    async fn fit_again(
        &self,
        request: Request<proto::FitAgainRequest>,
    ) -> Result<Response<proto::FitAgainReply>, Status> {
        let lmap = LmapId(request.into_inner().lmap);
        let asked = self.node.plane(|plane, _| plane.fit_again(lmap));
        asked.map_err(|error| translate::status(&error))?;
        tracing::info!(%lmap, "an operator called what is seen normal");
        Ok(Response::new(proto::FitAgainReply {}))
    }

    async fn list(&self, _request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        Ok(Response::new(self.node.look(|plane, _| plane.list())))
    }

    async fn status(&self, _request: Request<proto::StatusRequest>) -> Result<Response<proto::StatusReply>, Status> {
        let (mut status, delivered) = self.node.look(|plane, dispatch| (plane.status(), dispatch.delivered()));
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.uptime_ms = self.node.clock().now().as_millis();
        let edges = self.node.counts.iter().map(|(name, _, value)| (name.to_owned(), value));
        status.counters.extend(edges);
        for (name, value) in [
            ("delivered_verdicts", delivered.verdicts),
            ("lost_verdicts", delivered.lost_verdicts),
            ("delivered_rows", delivered.rows),
            ("lost_rows", delivered.lost_rows),
        ] {
            status.counters.insert(name.to_owned(), value);
        }
        Ok(Response::new(status))
    }
}
