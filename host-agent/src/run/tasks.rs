//! Tasks of the agent's servers, which end when the node drains.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::node::Node;
use crate::run_error::RunError;

/// Servers that run, each until it ends or fails.
pub(super) type Tasks = JoinSet<Result<(), RunError>>;

/// Resolves when `node` drains.
pub(super) async fn drained(node: Arc<Node>) {
    node.drained().await;
}

/// Runs `task` until `node` drains.
pub(super) async fn until_drained(task: impl Future<Output = ()>, node: Arc<Node>) {
    tokio::select! {
        () = task => {}
        () = node.drained() => {}
    }
}

/// Runs a server that has no error of its own.
pub(super) fn spawn(tasks: &mut Tasks, server: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async {
        server.await;
        Ok(())
    });
}
