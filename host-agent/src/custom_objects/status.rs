//! Writes what came of custom resources on this node into the object that has the node's name: when it has changed, and
//! at most every 30 s.

use agent_runtime::lock;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use resources::{LmapNodeStatus, NodeReport};

use super::objects::CustomObjects;

/// Who owns the fields, for the API server.
const MANAGER: &str = "uview-host-agent";

/// Writes for ever. What was written before this run is written anew, unless there is nothing to say and never was.
pub(super) async fn write(client: Client, objects: &CustomObjects) {
    let statuses: Api<LmapNodeStatus> = Api::all(client);
    let mut written: Option<NodeReport> = None;
    loop {
        objects.reported.notified().await;
        tokio::time::sleep(objects.pace.settle).await;
        let report = lock(&objects.report).clone();
        if written.as_ref() == Some(&report) {
            continue;
        }
        if written.is_none()
            && report.lmaps.is_empty()
            && report.sampling_policies.is_empty()
            && report.synopsis_policies.is_empty()
            && matches!(statuses.get_opt(&objects.node_name).await, Ok(None))
        {
            written = Some(report);
            continue;
        }
        let result = write_once(&statuses, &objects.node_name, &report).await;
        match &result {
            Ok(()) => written = Some(report),
            Err(error) => {
                tracing::debug!(error = agent_runtime::chain(error), "what came of custom resources cannot be written");
                objects.reported.notify_one();
            }
        }
        *lock(&objects.write_error) = result.err().map(|error| agent_runtime::chain(&error));
        tokio::time::sleep(objects.pace.write).await;
    }
}

async fn write_once(statuses: &Api<LmapNodeStatus>, node: &str, report: &NodeReport) -> Result<(), kube::Error> {
    let object = LmapNodeStatus::new(node, report.clone());
    // Nobody else writes this object: what somebody has changed by hand is set right.
    statuses.patch(node, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await.map(drop)
}
