//! The cluster: commands in its namespaces, what the agents in it say, and waiting for what they will say.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use support::clock::Stopwatch;
use support::workspace;

use crate::command::output;

/// Directory of the agents' sockets, which no other agent of this machine uses.
pub const SOCKETS: &str = "/run/uview-chart";
/// Directory of what outlives the agents.
pub const STATE: &str = "/var/lib/uview-chart";
/// The image of `uview` that is tested.
pub const IMAGE: &str = "localhost/uview:0.1.0";
/// An image of the kit, with a shell.
pub const SHELL: &str = "lab.invalid/agent:1";
/// Where less than a fifth of the disk is free, the kubelet would remove images and refuse pods: its bounds are for
/// disks of its own. It starts again with others.
const ROOMY: &str = r#"set -- $(df -k --output=avail,size $N | tail -1); [ $(($1 * 5)) -gt $2 ] && exit 0
cat >>$N/kubelet.yaml <<E
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
E
old=$(<$N/kubelet.pid); mapfile -t -d '' args </proc/$old/cmdline; kill $old; while [ -d /proc/$old ]; do sleep 0.1; done
"${args[@]}" </dev/null >>$N/kubelet.log 2>&1 & echo $! >$N/kubelet.pid
sleep 1; for image in $N/../img/*.tar; do $CTR images import $image; done
kubectl wait --for=condition=Ready node/lab --timeout=150s"#;
/// How long anything may take on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);

/// A cluster that is up, the tools for it, and a folder for manifests.
#[derive(Debug)]
pub struct Cluster {
    script: PathBuf,
    helm: PathBuf,
    uview: PathBuf,
    folder: tempfile::TempDir,
    /// Address of the host agent's pod, which is asked while the API server is away.
    agent: Mutex<String>,
}

/// What `uview status --json` prints.
#[derive(Debug)]
pub struct Status(Value);

impl Cluster {
    /// The cluster of `kit`, which has to be brought up by [`Self::up`].
    ///
    /// # Errors
    ///
    /// No folder can be created.
    pub fn new(kit: &Path, helm: &Path, uview: &Path) -> Result<Self> {
        let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (script, folder) = (kit.join("cluster.sh"), tempfile::tempdir()?);
        Ok(Self { script, helm: absolute(helm), uview: absolute(uview), folder, agent: Mutex::default() })
    }

    /// Brings it up, empty.
    ///
    /// # Errors
    ///
    /// It does not come up, or another one is up.
    pub fn up(&self) -> Result<()> {
        output(Command::new(&self.script).arg("up"))?;
        // What a run left that failed: its models are of other columns.
        self.sh(&format!("rm -rf {SOCKETS} {STATE}"))?;
        self.sh(ROOMY).map(drop)
    }

    /// Takes it down, with all that runs in it.
    ///
    /// # Errors
    ///
    /// The kit says why.
    pub fn down(&self) -> Result<String> {
        output(Command::new(&self.script).arg("down"))
    }

    /// Runs `command` in the cluster's namespaces, in the workspace.
    ///
    /// # Errors
    ///
    /// It fails; the error has what it printed.
    pub fn sh(&self, command: &str) -> Result<String> {
        let mut script = Command::new(&self.script);
        output(script.args(["sh", command]).current_dir(workspace())).with_context(|| command.to_owned())
    }

    /// Runs `helm ARGUMENTS`.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn helm(&self, arguments: &str) -> Result<String> {
        self.sh(&format!("{} {arguments} 2>&1", self.helm.display()))
    }

    /// Writes a file and returns its path.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    }

    /// Applies a manifest.
    ///
    /// # Errors
    ///
    /// The API server refuses it.
    pub fn apply(&self, name: &str, manifest: &str) -> Result<String> {
        let file = self.file(name, manifest.as_bytes())?;
        // kubectl is newer than the API server.
        self.sh(&format!("kubectl apply --validate=false -f {file}"))
    }

    /// Runs `uview ARGUMENTS` in the host agent's container, as operators do.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn uview(&self, arguments: &str) -> Result<String> {
        // It ends with 2 where a service is in alarm.
        let exec = "kubectl -n uview exec ds/uview-host-agent -- uview";
        self.sh(&format!("{exec} {arguments} --runtime-dir {SOCKETS} 2>&1 || [ $? = 2 ]"))
    }

    /// The file that names the cluster's network namespace, in which the node and its pods are.
    ///
    /// # Errors
    ///
    /// The kit does not say who holds it.
    pub fn network(&self) -> Result<PathBuf> {
        let holder = self.sh("cat $N/hold.pid")?;
        Ok(Path::new("/proc").join(holder.trim()).join("ns/net"))
    }

    /// The path of the program, on the node.
    pub fn program(&self) -> std::path::Display<'_> {
        self.uview.display()
    }

    /// Runs `uview ARGUMENTS --json` on the node, which needs no API server.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn json(&self, arguments: &str) -> Result<Value> {
        self.json_at(SOCKETS, arguments)
    }

    /// The same of an agent whose sockets are in the directory `sockets`.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn json_at(&self, sockets: &str, arguments: &str) -> Result<Value> {
        let uview = self.uview.display();
        let text = self.sh(&format!("{uview} {arguments} --json --runtime-dir {sockets} 2>/dev/null || [ $? = 2 ]"))?;
        serde_json::from_str(&text).with_context(|| format!("`uview {arguments}` prints {text:?}"))
    }

    /// The status of the host agent.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn status(&self) -> Result<Status> {
        self.status_at(SOCKETS)
    }

    /// The status of the host agent whose sockets are in the directory `sockets`.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn status_at(&self, sockets: &str) -> Result<Status> {
        self.json_at(sockets, "status").map(Status::from)
    }

    /// Waits until `holds` is true of the status.
    ///
    /// # Errors
    ///
    /// It is not within two minutes.
    pub fn until(&self, what: &str, holds: impl Fn(&Status) -> bool) -> Result<()> {
        Self::until_some(what, || {
            // The agent may be starting.
            let status = self.status()?;
            ensure!(holds(&status), "{status}");
            Ok(())
        })
    }

    /// Waits until `look` succeeds, and returns what it found.
    ///
    /// # Errors
    ///
    /// It does not within two minutes: what it failed with last.
    pub fn until_some<T>(what: &str, look: impl Fn() -> Result<T>) -> Result<T> {
        let clock = Stopwatch::start();
        loop {
            match look() {
                Ok(found) => return Ok(found),
                Err(error) if clock.elapsed() >= WITHIN => {
                    return Err(error.context(format!("not within {WITHIN:?}: {what}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Checks for `time` that `holds` stays true of the status.
    ///
    /// # Errors
    ///
    /// It is not, or the status is not said.
    pub fn stays(&self, time: Duration, what: &str, holds: impl Fn(&Status) -> bool) -> Result<()> {
        let clock = Stopwatch::start();
        while clock.elapsed() < time {
            // A busy machine may need more than a client waits for.
            let status = Self::until_some("the status is said", || self.status())?;
            ensure!(holds(&status), "not any more: {what}; {status}");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Waits until a DaemonSet of the chart runs as it should.
    ///
    /// # Errors
    ///
    /// It does not within a minute.
    pub fn rolled_out(&self, agent: &str) -> Result<()> {
        self.sh(&format!("kubectl -n uview rollout status ds/uview-{agent} --timeout=150s"))?;
        if agent == "host-agent" {
            let address = self.address("uview", "app.kubernetes.io/component=host-agent")?;
            *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = address;
        }
        Ok(())
    }

    /// The address of the host agent's pod.
    pub fn agent(&self) -> String {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address of a pod that is not being deleted, once it has one.
    ///
    /// # Errors
    ///
    /// It has none within two minutes.
    pub fn address(&self, namespace: &str, label: &str) -> Result<String> {
        let get = format!("kubectl -n {namespace} get pod -l {label} -o json");
        Self::until_some("the pod has an address", || {
            let pods: Value = serde_json::from_str(&self.sh(&get)?)?;
            let pods = pods["items"].as_array().context("a list")?;
            let mut alive = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
            let address = alive.find_map(|pod| pod["status"]["podIP"].as_str());
            address.map(str::to_owned).context("no pod has an address")
        })
    }

    /// A value of the host agent's `/metrics`, which is asked from the node.
    ///
    /// # Errors
    ///
    /// The agent does not answer, or has no such metric.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = self.sh(&format!("curl -sf -m 5 http://{}:9702/metrics", self.agent()))?;
        // Counters end in `_total`.
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            rest.strip_prefix("_total").unwrap_or(rest).strip_prefix(' ')?.trim().parse().ok()
        };
        let found = text.lines().find_map(value);
        found.with_context(|| format!("the host agent has no metric {name}"))
    }

    /// Makes a kind of custom resources known.
    ///
    /// # Errors
    ///
    /// The kit refuses it.
    pub fn crd(&self, file: &str) -> Result<String> {
        output(Command::new(&self.script).args(["crd", file]))
    }

    /// Lets the API server send groups, such as `apiextensions.k8s.io v1`, to the server of custom resources.
    ///
    /// # Errors
    ///
    /// The kit refuses it.
    pub fn group(&self, groups_and_versions: &str) -> Result<String> {
        output(Command::new(&self.script).arg("group").args(groups_and_versions.split(' ')))
    }

    /// Starts the server of custom resources anew, so that it evaluates rules of admission about them.
    ///
    /// # Errors
    ///
    /// The kit cannot.
    pub fn evaluate_rules(&self) -> Result<String> {
        output(Command::new(&self.script).arg("vap"))
    }

    /// What `helm template ARGUMENTS` prints.
    ///
    /// # Errors
    ///
    /// It fails.
    pub fn template(&self, arguments: &str) -> Result<String> {
        self.sh(&format!("{} template {arguments} 2>/dev/null", self.helm.display()))
    }

    /// MiB of memory that an agent of the chart has resident.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn resident(&self, agent: &str) -> Result<u64> {
        let container = self.container("uview", &format!("app.kubernetes.io/component={agent}"))?;
        let process = format!("$CTR tasks ps {container} | awk 'NR==2 {{print $1}}'");
        let kib = self.sh(&format!("awk '/^VmRSS/ {{print $2}}' /proc/$({process})/status"))?;
        Ok(kib.trim().parse::<u64>().with_context(|| format!("{kib:?} is no memory"))? / 1024)
    }

    /// Sends a signal to all processes of a pod's container, from the node.
    ///
    /// # Errors
    ///
    /// The container is gone.
    pub fn signal(&self, signal: &str, container: &str) -> Result<()> {
        let processes = format!("$CTR tasks ps {container} | awk 'NR>1 {{print $1}}'");
        self.sh(&format!("kill -{signal} $({processes})")).map(drop)
    }

    /// The id of the only container of the pods with `label`.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn container(&self, namespace: &str, label: &str) -> Result<String> {
        let id = "jsonpath='{.items[0].status.containerStatuses[0].containerID}'";
        let id = self.sh(&format!("kubectl -n {namespace} get pod -l {label} -o {id}"))?;
        Ok(id.rsplit('/').next().context("a container's id is a URL")?.trim().to_owned())
    }

    /// What is known after a failure.
    pub fn logs(&self) -> String {
        let of = "for of in host nic; do kubectl -n uview logs --tail=30 ds/uview-$of-agent; done; kubectl get pod -A";
        self.sh(of).unwrap_or_else(|error| format!("{error:#}"))
    }
}

impl From<Value> for Status {
    fn from(printed: Value) -> Self {
        Self(printed)
    }
}

impl Status {
    /// Names of all services that are watched.
    pub fn services(&self) -> Vec<&str> {
        let lmaps = self.0["lmaps"].as_array().map_or(&[][..], Vec::as_slice);
        lmaps.iter().filter_map(|lmap| lmap["service"].as_str()).collect()
    }

    /// The LMAP of a service; null if there is none.
    pub fn lmap(&self, service: &str) -> &Value {
        let lmaps = self.0["lmaps"].as_array();
        lmaps.and_then(|lmaps| lmaps.iter().find(|lmap| lmap["service"] == service)).unwrap_or(&Value::Null)
    }

    /// Whether a service is watched and known.
    pub fn is_armed(&self, service: &str) -> bool {
        self.lmap(service)["state"] == "armed"
    }

    /// Whether rows of a service are judged: it is known, and may have changed for good since.
    pub fn is_judged(&self, service: &str) -> bool {
        self.is_armed(service) || self.lmap(service)["state"] == "drifted"
    }

    /// Whether a service learns without what it had learnt: that takes 120 rows, of which some are seen. With it, the
    /// first 20 are not judged, which is said as learning, too.
    pub fn learns_anew(&self, service: &str) -> bool {
        let lmap = self.lmap(service);
        lmap["state"] == "learning" && lmap["rows"].as_u64() > Some(30)
    }

    /// Whether a service is in alarm.
    pub fn is_in_alarm(&self, service: &str) -> bool {
        self.lmap(service)["alarm"] == true
    }

    /// Whether a service is in alarm for one of these groups of metrics.
    pub fn is_in_alarm_for(&self, service: &str, groups: &[&str]) -> bool {
        let reasons = self.lmap(service)["reasons"].as_array().map_or(&[][..], Vec::as_slice);
        let named = |reason: &Value| groups.iter().any(|group| reason["group"] == *group);
        self.is_in_alarm(service) && reasons.iter().any(named)
    }

    /// Whether a service is in alarm for a metric of this group that `replica` makes unusual.
    pub fn names_replica(&self, service: &str, group: &str, replica: &str) -> bool {
        let reasons = self.lmap(service)["reasons"].as_array().map_or(&[][..], Vec::as_slice);
        let is_named = |reason: &Value| reason["group"] == group && reason["replica"] == replica;
        self.is_in_alarm(service) && reasons.iter().any(is_named)
    }

    /// The line that says why a service is in alarm.
    pub fn reasons(&self, service: &str) -> String {
        let lmap = self.lmap(service);
        let reasons = lmap["reasons"].as_array().map_or(&[][..], Vec::as_slice);
        let line = |reason: &Value| {
            let text = |key: &str| reason[key].as_str().unwrap_or_default().to_owned();
            let replica =
                if text("replica").is_empty() { String::new() } else { ", replica ".to_owned() + &text("replica") };
            let (column, unit, seen, expected) = (text("column"), text("unit"), &reason["seen"], &reason["expected"]);
            format!("{column} {seen} {unit}, expected {expected}{replica}")
        };
        let mut lines: Vec<_> = reasons.iter().take(2).map(line).collect();
        let silent = lmap["silent_replicas"].as_array().map_or(&[][..], Vec::as_slice);
        lines.extend(silent.iter().map(|replica| format!("silent: {replica}")));
        format!("{service}: {}", lines.join("; "))
    }

    /// Whether one of the problems begins with `start`.
    pub fn has_problem(&self, start: &str) -> bool {
        self.has_line("problems", start)
    }

    /// Whether one of the notes, which are no problems, begins with `start`.
    pub fn has_note(&self, start: &str) -> bool {
        self.has_line("notes", start)
    }

    fn has_line(&self, of: &str, start: &str) -> bool {
        let lines = self.0[of].as_array().map_or(&[][..], Vec::as_slice);
        lines.iter().any(|line| line.as_str().is_some_and(|line| line.starts_with(start)))
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for lmap in self.0["lmaps"].as_array().map_or(&[][..], Vec::as_slice) {
            let (service, state) = (lmap["service"].as_str().unwrap_or("?"), &lmap["state"]);
            let (alarm, rows, replicas) = (&lmap["alarm"], &lmap["rows"], &lmap["replicas"]);
            write!(
                f,
                "{service}: {state}, alarm {alarm}, rows {rows}, replicas {replicas}, columns {}; ",
                lmap["columns"]
            )?;
        }
        write!(f, "problems: {}", self.0["problems"])
    }
}
