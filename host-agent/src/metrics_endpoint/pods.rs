//! `/metrics` of the watch of pods.

use core::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encoding::{counter, gauge};
use crate::pod_watch::PodWatch;

/// What is known of the node's pods; zeros where they are not watched.
#[derive(Debug)]
pub(super) struct PodMetrics(pub(super) Option<Arc<PodWatch>>);

impl Collector for PodMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (count, errors, rollouts) = self.0.as_ref().map_or((0, 0, 0), |pods| pods.counts());
        gauge(&mut encoder, "pods", "Pods of this node that the API server has told of.", count)?;
        counter(&mut encoder, "rollouts", "New versions of workloads of this node's pods.", rollouts)?;
        counter(&mut encoder, "pod_watch_errors", "Errors of the watch of this node's pods.", errors)
    }
}
