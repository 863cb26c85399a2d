//! What passes this endpoint, for whoever watches: kept spans and log records, and metrics that were forwarded.

use std::borrow::Cow;

use bytes::Bytes;

use super::Edge;
use crate::codec::resources;
use crate::kept_watch::KeptInbox;
use crate::metric_watch::{ForwardedMetrics, MetricExport};
use crate::senders::{SenderCheck, UNKNOWN};
use crate::signal::Signal;

/// The resource attribute that names a replica.
const INSTANCE: &[u8] = b"service.instance.id";

impl Edge {
    /// Takes the encoded `ExportTraceServiceRequest`s with spans that were kept since the last call, oldest first.
    /// Empty if nobody was to watch them ([`Settings::watched_kept`](crate::Settings::watched_kept)).
    pub fn take_kept(&self) -> impl Iterator<Item = Bytes> {
        self.kept.as_ref().map(KeptInbox::take).unwrap_or_default().into_iter()
    }

    /// Takes the encoded `ExportLogsServiceRequest`s with log records that were kept since the last call, oldest first.
    /// Empty if nobody was to watch them ([`Settings::watched_kept_logs`](crate::Settings::watched_kept_logs)).
    pub fn take_kept_logs(&self) -> impl Iterator<Item = Bytes> {
        self.kept_logs.as_ref().map(KeptInbox::take).unwrap_or_default().into_iter()
    }

    /// Waits for the next request with metrics that was forwarded; for ever if metrics are not watched. For one caller.
    pub async fn next_metrics(&self) -> ForwardedMetrics {
        match &self.metrics {
            Some(inbox) => inbox.next().await,
            None => core::future::pending().await,
        }
    }

    /// Calls `visit` with each resource of `request` whose sender may use its service's name; counts the others.
    pub fn each_export(&self, request: &ForwardedMetrics, mut visit: impl FnMut(MetricExport<'_>)) {
        let ForwardedMetrics { tenant, body, sender, rules } = request;
        let mut check = SenderCheck::new(rules, &self.tenants, *tenant, sender.clone());
        let (own, pod, holder) = (check.service().map(Cow::into_owned), sender.pod(), &sender.holder());
        // What cannot be read was refused before it was forwarded.
        let _ = resources(body, |resource| {
            if let (Some(service), Some(pod)) = (&own, &pod) {
                let (service, instance) = (self.detector_name(*tenant)(service), pod.instance().into());
                return visit(MetricExport { service, instance, holder, encoded: resource.encoded });
            }
            let service = resource.service_name().unwrap_or(UNKNOWN);
            if !check.may_send(service) {
                return check.refuse(service);
            }
            let instance = resource.text(INSTANCE).filter(|id| !id.is_empty());
            let instance = instance.map_or_else(|| sender.address().into(), Cow::Borrowed);
            let service = self.detector_name(*tenant)(service);
            visit(MetricExport { service, instance, holder, encoded: resource.encoded });
        });
        self.record_unverified(check, Signal::Metrics);
    }
}
