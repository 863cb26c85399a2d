//! Pods as senders: which pod has which address, as the API server says. Pure.
//!
//! What a pod sends is of the pod's own service, `namespace/workload`, whatever `service.name` it claims; so nobody
//! uses the name of another pod's service, and two namespaces' spans of one name do not mix. A pod that forwards for
//! others (a Collector) is named in the configuration, and vouches for the names that it passes on.

use core::hash::{Hash as _, Hasher as _};
use core::net::IpAddr;
use std::collections::HashMap;
use std::hash::DefaultHasher;
use std::sync::Arc;

/// Bytes of the attributes of one pod: further ones are left out.
pub const ATTRIBUTE_BYTES: usize = 2_048;

/// A pod that sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSender {
    service: Box<str>,
    instance: Box<str>,
    /// Both of them, for messages.
    title: Arc<str>,
    attributes: Vec<(&'static str, Box<str>)>,
    /// Differs for pods with other attributes.
    fingerprint: u64,
    is_forwarder: bool,
}

impl PodSender {
    /// The replica `instance` of `service`, with `attributes` of the resource of its spans, at most
    /// [`ATTRIBUTE_BYTES`] in all.
    #[must_use]
    pub fn new<'a>(service: &str, instance: &str, attributes: impl Iterator<Item = (&'static str, &'a str)>) -> Self {
        let mut left = ATTRIBUTE_BYTES;
        let fitting = attributes.filter(|(key, value)| {
            let fits = left.checked_sub(key.len() + value.len());
            left = fits.unwrap_or(left);
            fits.is_some()
        });
        let attributes: Vec<(&'static str, Box<str>)> = fitting.map(|(key, value)| (key, value.into())).collect();
        let mut hasher = DefaultHasher::new();
        (service, instance, &attributes).hash(&mut hasher);
        let fingerprint = hasher.finish();
        let title = format!("{instance} of {service}").into();
        let (service, instance) = (service.into(), instance.into());
        Self { service, instance, title, attributes, fingerprint, is_forwarder: false }
    }

    /// The same pod, which forwards what others send.
    #[must_use]
    pub fn forwarding(self) -> Self {
        Self { is_forwarder: true, ..self }
    }

    /// The service that its spans and metrics are of.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// The replica that they are of.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Its replica and its service, for messages.
    pub(crate) const fn title(&self) -> &Arc<str> {
        &self.title
    }

    /// Keys and values for the resource of its spans.
    pub(crate) fn attributes(&self) -> &[(&'static str, Box<str>)] {
        &self.attributes
    }

    /// A number that other attributes change.
    pub(crate) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Pods of this node by address.
#[derive(Debug, Default)]
pub struct PodSenders(HashMap<IpAddr, Arc<PodSender>>);

impl PodSenders {
    /// The table of `pods`.
    pub fn new(pods: impl IntoIterator<Item = (IpAddr, Arc<PodSender>)>) -> Self {
        Self(pods.into_iter().map(|(address, pod)| (address.to_canonical(), pod)).collect())
    }

    /// Number of addresses.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What is known of the sender with this address. O(1); copies a pointer.
    pub(crate) fn at(&self, address: IpAddr) -> SenderPod {
        match self.0.get(&address.to_canonical()) {
            None => SenderPod::Nobody,
            Some(pod) if pod.is_forwarder => SenderPod::Forwarder,
            Some(pod) => SenderPod::Pod(Arc::clone(pod)),
        }
    }
}

/// The pod of a sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SenderPod {
    /// Pods are not watched here.
    #[default]
    Unwatched,
    /// The address is of no pod that is known, or of several.
    Nobody,
    /// It forwards for others.
    Forwarder,
    /// The pod itself sends.
    Pod(Arc<PodSender>),
}

/// Whether `service` is named as services of pods are: with a namespace.
pub(crate) fn is_of_pod(service: &str) -> bool {
    service.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_bounded_and_others_are_another_origin() {
        let long = "x".repeat(ATTRIBUTE_BYTES);
        let attributes = |version: &'static str| [("k8s.pod.name", "p"), ("big", long.as_str()), ("v", version)];
        let pod = |version| PodSender::new("shop/payment", "p", attributes(version).into_iter());

        assert_eq!(pod("1").attributes(), [("k8s.pod.name", "p".into()), ("v", "1".into())]);
        assert_eq!(pod("1").fingerprint(), pod("1").fingerprint());
        assert_ne!(pod("1").fingerprint(), pod("2").fingerprint());
    }

    #[test]
    fn a_pod_is_known_by_its_address_however_it_is_written() {
        let pod = Arc::new(PodSender::new("shop/payment", "p", core::iter::empty()));
        let proxy = Arc::new(PodSender::new("mesh/proxy", "q", core::iter::empty()).forwarding());
        let known =
            PodSenders::new([("10.1.0.7".parse().unwrap(), Arc::clone(&pod)), ("fd00::8".parse().unwrap(), proxy)]);
        let at = |address: &str| known.at(address.parse().unwrap());

        assert_eq!(at("10.1.0.7"), SenderPod::Pod(Arc::clone(&pod)));
        assert_eq!(at("::ffff:10.1.0.7"), SenderPod::Pod(pod));
        assert_eq!((at("fd00::8"), at("10.1.0.8")), (SenderPod::Forwarder, SenderPod::Nobody));
    }
}
