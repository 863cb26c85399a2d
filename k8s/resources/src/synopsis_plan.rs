//! Which streams of packets each `SynopsisPolicy` wants on this node, and which policy has the say. Pure, and by the
//! rules of [`plan`](mod@crate::plan): the older policy has the say about a workload.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pods::Pod;
use pods::pod::Stage;

use crate::duration;
use crate::files;
use crate::plan::{Declared, Plan, full_name, plan_of, resolve, understood};
use crate::synopsis_policy::{Delay, Direction, HeavyHitters, SynopsisPolicySpec};

/// Most policies that a node keeps.
pub const MAX_SYNOPSIS_POLICIES: usize = 256;
/// Most bytes of all of them, as the API server sends them.
pub const MAX_SYNOPSIS_POLICY_BYTES: usize = 256 << 10;
/// Most streams that a node is asked for.
pub const MAX_STREAMS: usize = 64;
/// Most addresses of a stream.
pub const MAX_ADDRESSES: usize = 256;

/// What services of streams are called: `network.NAME`.
const SERVICE: &str = "network.";
/// Most bytes of a service's name.
const MAX_SERVICE: usize = 128;
/// Period of a stream's metrics unless a policy says it, in milliseconds.
const INTERVAL_MS: u32 = 1_000;

/// One stream of packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedStream {
    /// The policy that says so: `SynopsisPolicy shop/front`.
    pub by: String,
    /// When the policy was created: the older one has memory first.
    pub created: i64,
    /// The interface; `None`: where the addresses are routed.
    pub interface: Option<String>,
    /// Addresses of the workload's pods on this node.
    pub addresses: BTreeSet<IpAddr>,
    /// Where one of them is in a packet.
    pub direction: Direction,
    /// The destination's port.
    pub port: Option<u16>,
    /// Period of its metrics in milliseconds.
    pub interval_ms: u32,
    /// The kind of request and response whose delay is measured.
    pub delay: Option<Delay>,
    /// Whether packets out of order are counted.
    pub reordering: bool,
    /// Who is weighed, and how.
    pub heavy_hitters: Option<HeavyHitters>,
    /// Whether distinct items are counted, and over how many milliseconds; 0: an interval.
    pub window_ms: Option<u32>,
    /// Whether its pods have no address yet.
    pub has_no_address: bool,
    /// Why there is nothing to capture.
    pub why_not: Option<String>,
}

/// The name of the stream of the service `network.NAME`.
#[must_use]
pub fn stream_of(service: &str) -> &str {
    service.strip_prefix(SERVICE).unwrap_or(service)
}

/// The streams that `policies` want on the node that runs `pods`, by their services: `network.shop.cart` for the
/// workload `shop/cart`.
#[must_use]
pub fn plan(policies: &[Declared<SynopsisPolicySpec>], pods: &[Pod]) -> Plan<WantedStream> {
    plan_of(policies, pods, wanted)
}

/// The streams that `policies` of files want on a node without Kubernetes, by their services. `workload.name` is the
/// stream's name there, and its interface has to be named: without pods there are no addresses.
#[must_use]
pub fn of_services(policies: &[Declared<SynopsisPolicySpec>]) -> Plan<WantedStream> {
    resolve(policies, |policy| {
        let wanted = |spec: &SynopsisPolicySpec| {
            let stream = stream(policy, spec)?;
            if spec.interface.is_none() {
                return Err("name the interface: without pods there are no addresses that say it".to_owned());
            }
            if spec.direction != Direction::default() {
                return Err("direction is about the addresses of pods, and this node has none: leave it out".to_owned());
            }
            let names = files::one_service(spec.workload.as_ref(), spec.selector.as_ref())?;
            let stream = Arc::new(stream);
            names.iter().map(|name| Ok((service(name)?, Arc::clone(&stream)))).collect()
        };
        Some(understood(policy).and_then(wanted))
    })
}

/// The streams that `policy` wants on this node; none if no pod of it is here.
fn wanted(
    policy: &Declared<SynopsisPolicySpec>,
    spec: &SynopsisPolicySpec,
    pods: &[&Pod],
) -> Result<BTreeMap<String, Arc<WantedStream>>, String> {
    let stream = stream(policy, spec)?;
    let is_selected = |pod: &Pod| match (&spec.workload, &spec.selector) {
        (Some(workload), None) => Ok(workload.has(pod)),
        (None, Some(selector)) => Ok(selector.selects(pod)),
        _ => Err("set exactly one of workload and selector".to_owned()),
    };
    let mut of_services: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        // The address of a pod that is over may be another one's.
        if is_selected(pod)? && pod.stage != Stage::Over {
            of_services.entry(&pod.service).or_default().push(pod);
        }
    }
    let mut wanted = BTreeMap::new();
    for (workload, pods) in of_services {
        wanted.insert(service(&workload.replace('/', "."))?, Arc::new(with_addresses(&stream, &pods)));
    }
    Ok(wanted)
}

/// `stream` with the addresses of `pods`, or with why there are none.
fn with_addresses(stream: &WantedStream, pods: &[&Pod]) -> WantedStream {
    let own = || pods.iter().filter(|pod| !pod.has_host_network);
    let addresses: BTreeSet<IpAddr> = own().flat_map(|pod| pod.addresses.iter().copied()).collect();
    let why_not = if own().next().is_none() {
        let text = "its pods are on the node's network, whose address they share with others: packets do not say whose \
                    they are";
        Some(text.to_owned())
    } else if addresses.len() > MAX_ADDRESSES {
        Some(format!("its pods have {} addresses here, {MAX_ADDRESSES} are the most", addresses.len()))
    } else {
        None
    };
    WantedStream { has_no_address: addresses.is_empty() && why_not.is_none(), addresses, why_not, ..stream.clone() }
}

/// The service of the stream `name`.
fn service(name: &str) -> Result<String, String> {
    let service = format!("{SERVICE}{name}");
    if service.len() > MAX_SERVICE {
        return Err(format!(
            "{service} is no name of a service: it has {} bytes, {MAX_SERVICE} are the most",
            service.len()
        ));
    }
    Ok(service)
}

/// What `spec` says, whichever pods it is about. The API server checks all of this; not if its definition is of another
/// release.
fn stream(policy: &Declared<SynopsisPolicySpec>, spec: &SynopsisPolicySpec) -> Result<WantedStream, String> {
    if let Some(container) = spec.workload.as_ref().and_then(|workload| workload.container.as_deref()) {
        return Err(format!("workload.container is {container}: packets are of the whole pod, leave it out"));
    }
    if let Some(one_way) = &spec.one_way {
        return Err(format!("oneWay is {one_way}: {}", crate::rules::ONE_END.message));
    }
    let measures = spec.delay.is_some() || spec.reordering.is_some();
    if !measures && spec.heavy_hitters.is_none() && spec.cardinality.is_none() {
        return Err(crate::rules::ANY_SYNOPSIS.message.to_owned());
    }
    let millis = |name: &str, text: &str, most: u64| {
        let millis = duration::micros(text).map(|micros| micros / 1_000);
        let millis =
            millis.filter(|millis| (100..=most).contains(millis)).and_then(|millis| u32::try_from(millis).ok());
        millis.ok_or_else(|| format!("{name} is {text}: it must be from 100ms to {}m", most / 60_000))
    };
    let interval = spec.interval.as_deref().map(|text| millis("interval", text, 60_000)).transpose()?;
    let window = |text: &str| millis("cardinality.window", text, 3_600_000);
    let window_ms = spec.cardinality.as_ref().map(|of| of.window.as_deref().map_or(Ok(0), window)).transpose()?;
    Ok(WantedStream {
        by: format!("SynopsisPolicy {}", full_name(&policy.key())),
        created: policy.created,
        interface: spec.interface.clone(),
        direction: spec.direction,
        port: spec.port,
        interval_ms: interval.unwrap_or(INTERVAL_MS),
        delay: spec.delay,
        reordering: spec.reordering.is_some(),
        heavy_hitters: spec.heavy_hitters,
        window_ms,
        ..WantedStream::default()
    })
}

#[cfg(test)]
mod tests;
