//! The demo's shop as Deployments of unchanged pods. They have nothing of uview, not even its sockets: they are watched
//! by their cgroups, and by the spans that they send to the address of their node.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::clock::Stopwatch;

use super::super::kit::{Cluster, IMAGE, Status};
use super::super::traces::Way;
use super::visitors::Visitors;

/// The namespace of all of it.
pub const NAMESPACE: &str = "shop";
/// The service that visitors come to.
pub const FRONTEND: &str = "frontend";
/// Visitors a second while nothing else is said.
pub const USUAL: f64 = 20.0;
/// Callees first, with those that they call.
const SERVICES: [(&str, &[&str]); 5] = [
    ("store", &[]),
    ("payment", &["store"]),
    ("cart", &[]),
    ("catalogue", &[]),
    (FRONTEND, &["cart", "catalogue", "payment"]),
];
/// How long everything may take to be quiet after a fault: what is found in an alarm is learnt slowly.
const QUIET_WITHIN: Duration = Duration::from_mins(5);
/// With so many rows an LMAP has been fitted twice, and once to the columns that came after the first ones: those of
/// spans.
const FITTED: u64 = 700;
/// Rows in which an LMAP learns what it is told is normal: 120, and some until that is computed.
const LEARNT: u64 = 160;
/// For the addresses of frontends that are ready: the kit has no kube-proxy, so that visitors read them.
const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: frontend, namespace: shop}
spec: {clusterIP: None, selector: {app: frontend}, ports: [{port: 8080}]}
";

/// What a version of a service does.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// As its label says it.
    pub name: &'static str,
    /// Median time that its one worker spends on a request, in microseconds.
    pub wait_us: u32,
}

/// What all services begin with.
pub const FIRST: Version = Version { name: "1", wait_us: 1_500 };

/// A pod of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShopPod {
    /// The name of its object.
    pub name: String,
    /// The uid of that, which its cgroup is called by.
    pub uid: String,
    /// Its address; empty: it has none yet.
    pub address: String,
    /// As its label says it.
    pub version: String,
}

/// The shop that runs on a cluster, with its visitors.
#[derive(Debug)]
pub struct Shop<'a> {
    /// Where it runs.
    pub cluster: &'a Cluster,
    /// Who sends requests to it.
    pub visitors: Visitors,
    way: Way,
    /// Of all services that others call.
    addresses: Vec<(&'static str, String)>,
}

impl<'a> Shop<'a> {
    /// Starts all services, callees first, since they are called by their pods' addresses; then visitors come.
    ///
    /// # Errors
    ///
    /// A pod does not get ready.
    pub fn start(cluster: &'a Cluster, way: Way) -> Result<Self> {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n{SERVICE}");
        cluster.apply("shop.yaml", &namespace)?;
        let visitors = Visitors::start(&cluster.network()?, Vec::new(), USUAL)?;
        let mut shop = Self { cluster, visitors, way, addresses: Vec::new() };
        for (service, _) in SERVICES {
            shop.roll_out(service, FIRST)?;
            shop.addresses.push((service, cluster.address(NAMESPACE, &format!("app={service}"))?));
        }
        shop.follow()?;
        Ok(shop)
    }

    /// Names of the services, as uview has them.
    pub fn services() -> [String; 5] {
        SERVICES.map(|(service, _)| of(service))
    }

    /// Rolls out a version of a service; visitors go where it is ready. Only the frontend's address may change.
    ///
    /// # Errors
    ///
    /// It is not rolled out within two minutes.
    pub fn roll_out(&self, service: &str, version: Version) -> Result<()> {
        self.cluster.apply(&format!("{service}.yaml"), &self.manifest(service, version)?)?;
        let look = format!("kubectl -n {NAMESPACE} rollout status deploy/{service} --watch=false");
        Cluster::until_some(&format!("{service} {} is rolled out", version.name), || {
            self.follow()?;
            let said = self.cluster.sh(&look)?;
            ensure!(said.contains("successfully rolled out"), "{said}");
            Ok(())
        })?;
        self.follow().map(drop)
    }

    /// Lets visitors go to the frontends that are ready now, and returns how many these are.
    ///
    /// # Errors
    ///
    /// The API server does not answer.
    pub fn follow(&self) -> Result<usize> {
        let frontends = self.cluster.sh(&format!("kubectl -n {NAMESPACE} get endpoints {FRONTEND} -o json"))?;
        let frontends = ready(&serde_json::from_str(&frontends)?);
        let count = frontends.len();
        self.visitors.visit(frontends);
        Ok(count)
    }

    /// Waits until all LMAPs have learnt what the load is like.
    ///
    /// # Errors
    ///
    /// They have not within two minutes.
    pub fn learn(&self) -> Result<()> {
        let is_fitted = |status: &Status| samples(status).values().all(|rows| *rows >= FITTED);
        self.cluster.until("all LMAPs of the shop have seen enough rows", is_fitted)
    }

    /// Tells the LMAPs of `services` that what these do now is normal, and waits until they have learnt it.
    ///
    /// # Errors
    ///
    /// They have not within two minutes.
    pub fn take_as_normal(&self, services: &[String]) -> Result<()> {
        for service in services {
            let tell = || self.cluster.uview(&format!("lmap {service} --normal-now"));
            Cluster::until_some(&format!("{service} is told that this is normal"), tell)?;
        }
        let before = samples(&Cluster::until_some("the status is said", || self.cluster.status())?);
        self.cluster.until("what is normal is learnt", |status| {
            let now = samples(status);
            let rows = |of: &BTreeMap<String, u64>, service: &String| of.get(service).copied().unwrap_or_default();
            services.iter().all(|service| rows(&now, service) >= rows(&before, service) + LEARNT)
        })
    }

    /// Waits until all LMAPs judge and none is in alarm.
    ///
    /// # Errors
    ///
    /// They are not within five minutes.
    pub fn settle(&self) -> Result<()> {
        let clock = Stopwatch::start();
        let is_quiet = |status: &Status| {
            Self::services().iter().all(|service| status.is_judged(service) && !status.is_in_alarm(service))
        };
        loop {
            let status = Cluster::until_some("the status is said", || self.cluster.status())?;
            if is_quiet(&status) {
                self.visitors.window();
                return Ok(());
            }
            ensure!(clock.elapsed() < QUIET_WITHIN, "not quiet within {QUIET_WITHIN:?}: {status}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// A service's pods that are not being deleted, by name.
    ///
    /// # Errors
    ///
    /// The API server does not answer.
    pub fn pods(&self, service: &str) -> Result<Vec<ShopPod>> {
        let pods = self.cluster.sh(&format!("kubectl -n {NAMESPACE} get pod -l app={service} -o json"))?;
        Ok(alive(&serde_json::from_str(&pods)?))
    }

    /// The name of a service's pod that is not being deleted.
    ///
    /// # Errors
    ///
    /// It has none within two minutes.
    pub fn pod(&self, service: &str) -> Result<String> {
        Cluster::until_some("there is a pod", || {
            let first = self.pods(service)?.into_iter().next();
            first.map(|pod| pod.name).with_context(|| format!("{service} has no pod"))
        })
    }

    /// Has a service do something to itself: one of the faults of `uview shop`.
    ///
    /// # Errors
    ///
    /// It refuses, or does not answer.
    pub fn inject(&self, service: &str, fault: &str) -> Result<()> {
        self.inject_at(&self.cluster.address(NAMESPACE, &format!("app={service}"))?, fault)
    }

    /// The same of the pod with this address.
    ///
    /// # Errors
    ///
    /// It refuses, or does not answer.
    pub fn inject_at(&self, address: &str, fault: &str) -> Result<()> {
        self.cluster.sh(&format!("curl -sf -m 10 -X POST 'http://{address}:8081/fault?{fault}'")).map(drop)
    }

    /// The Deployment of a version of a service.
    fn manifest(&self, service: &str, version: Version) -> Result<String> {
        let (_, calls) = SERVICES.iter().find(|(name, _)| *name == service).context("a service of the shop")?;
        let next = calls.iter().map(|called| {
            let (_, address) = self.addresses.iter().find(|(name, _)| name == called).context("callees come first")?;
            anyhow::Ok(format!(", --next, '{called}={address}:8080'"))
        });
        let next: Vec<_> = next.collect::<Result<_>>()?;
        Ok(deployment((service, version), &next.concat(), &self.way.environment(self.cluster)))
    }
}

/// Rows that each LMAP of the shop has had.
pub fn samples(status: &Status) -> BTreeMap<String, u64> {
    let of = |service: String| {
        let count = status.lmap(&service)["samples"].as_u64().unwrap_or_default();
        (service, count)
    };
    Shop::services().into_iter().map(of).collect()
}

/// The name of a service, as uview has it.
pub fn of(service: &str) -> String {
    format!("{NAMESPACE}/{service}")
}

fn deployment((service, version): (&str, Version), next: &str, environment: &str) -> String {
    let Version { name, wait_us } = version;
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {service}, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: {service}}}}}
  template:
    metadata: {{labels: {{app: {service}, app.kubernetes.io/version: '{name}'}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: {service}
        image: {IMAGE}
        imagePullPolicy: Never
        args: [shop, --service, {service}, --listen, '0.0.0.0:8080', --admin, '0.0.0.0:8081', --wait-us, '{wait_us}',
               --socket, /nowhere/services.sock, --otlp, $(OTEL_EXPORTER_OTLP_ENDPOINT){next}]
        readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
        env: {environment}
"
    )
}

/// Pods of a list that are not being deleted, by name.
fn alive(pods: &Value) -> Vec<ShopPod> {
    let pod = |pod: &Value| {
        let (metadata, text) = (&pod["metadata"], |of: &Value| of.as_str().unwrap_or_default().to_owned());
        metadata["deletionTimestamp"].is_null().then(|| ShopPod {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            address: text(&pod["status"]["podIP"]),
            version: text(&metadata["labels"]["app.kubernetes.io/version"]),
        })
    };
    let mut all: Vec<_> = pods["items"].as_array().into_iter().flatten().filter_map(pod).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Addresses of an `Endpoints` object that are ready.
fn ready(endpoints: &Value) -> Vec<SocketAddr> {
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let addresses = subsets.filter_map(|subset| subset["addresses"].as_array()).flatten();
    let parsed = addresses.filter_map(|address| address["ip"].as_str()?.parse::<IpAddr>().ok());
    parsed.map(|address| SocketAddr::new(address, 8080)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn visitors_go_to_addresses_that_are_ready() {
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.244.0.7"}, {"ip": "10.244.0.9"}], "notReadyAddresses": [{"ip": "10.244.0.8"}]},
            {"notReadyAddresses": [{"ip": "10.244.0.10"}]},
        ]});

        let expected: [SocketAddr; 2] = ["10.244.0.7:8080", "10.244.0.9:8080"].map(|address| address.parse().unwrap());
        assert_eq!(ready(&endpoints), expected);
        assert!(ready(&json!({})).is_empty());
    }

    #[test]
    fn pods_of_a_service_are_those_that_stay_by_name() {
        let pod = |name: &str, version: &str, deleted: Value| {
            json!({
                "metadata": {
                    "name": name, "uid": format!("uid-of-{name}"), "deletionTimestamp": deleted,
                    "labels": {"app": "frontend", "app.kubernetes.io/version": version},
                },
                "status": {"podIP": "10.244.0.7"},
            })
        };
        let mut pods = json!({"items": [
            pod("frontend-b", "2", Value::Null),
            pod("frontend-c", "1", json!("2026-11-30T08:00:00Z")),
            pod("frontend-a", "2", Value::Null),
        ]});
        // It was created, and nothing is known of it yet.
        pods["items"][2]["status"] = json!({});

        let of = |name: &str, address: &str| ShopPod {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            address: address.to_owned(),
            version: "2".to_owned(),
        };
        assert_eq!(alive(&pods), [of("frontend-a", ""), of("frontend-b", "10.244.0.7")]);
        assert!(alive(&json!({})).is_empty());
    }

    #[test]
    fn a_pod_has_the_address_of_its_node_and_nothing_of_uview() {
        let version = Version { name: "2", wait_us: 30_000 };
        let text =
            deployment((FRONTEND, version), ", --next, 'cart=10.244.0.7:8080'", "\n        - {name: A, value: b}");

        let manifest: Value = serde_saphyr::from_str(&text).unwrap();
        let pod = &manifest["spec"]["template"];
        let container = &pod["spec"]["containers"][0];
        let arguments: Vec<_> = container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(
            arguments.ends_with(&["$(OTEL_EXPORTER_OTLP_ENDPOINT)", "--next", "cart=10.244.0.7:8080"]),
            "{arguments:?}"
        );
        assert!(arguments.windows(2).any(|pair| pair == ["--wait-us", "30000"]), "{arguments:?}");
        assert_eq!(container["env"][0]["name"], "A");
        assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/version"], "2");
        assert!(pod["spec"]["volumes"].is_null() && container["volumeMounts"].is_null());
    }

    #[test]
    fn callees_start_before_their_callers() {
        for (at, (service, calls)) in SERVICES.iter().enumerate() {
            let is_before = |called: &&str| SERVICES[..at].iter().any(|(name, _)| name == called);
            assert!(calls.iter().all(is_before), "{service}");
        }
    }
}
