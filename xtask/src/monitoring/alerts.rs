//! Rules of Prometheus, and the runbook with a part for each.

use std::fmt::Write as _;

use anyhow::Result;

use super::table::Table;

/// A rule, with its part of the runbook.
struct Alert {
    name: &'static str,
    /// What is compared.
    query: &'static str,
    /// With what it is compared.
    condition: &'static str,
    /// How long it has to last.
    lasts: &'static str,
    severity: Severity,
    /// What is wrong, in one line.
    summary: &'static str,
    /// What follows from it.
    means: &'static str,
    /// What to do, in the order of likelihood.
    todo: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Severity {
    /// Somebody has to look at once.
    Page,
    /// Somebody has to look today.
    Ticket,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

const ALERTS: [Alert; 15] = [
    Alert {
        name: "UviewServiceInAlarm",
        query: "max by (instance, lmap) (uview_lmap_alarm)",
        condition: "== 1",
        lasts: "10s",
        severity: Severity::Page,
        summary: "{{ $labels.lmap }} behaves unlike anything that was learnt",
        means: "The score of the service has been above γ: its metrics do not go together as they did.",
        todo: &[
            "`uview open` (in clusters `kubectl uview --node NODE open`): the suspected cause is on top, with the metrics that stand out. In words: `uview incident`.",
            "`uview open INCIDENT` (in clusters `kubectl uview --node NODE open INCIDENT`) opens the page there. Node and incident are what webhooks and kept spans name: `NODE/INCIDENT`.",
            "What was changed less than a minute before is named first.",
            "What is meant to stay so is learnt in time; `uview lmap SERVICE --normal-now` learns it from the next 120 rows.",
        ],
    },
    Alert {
        name: "UviewNoWorker",
        query: "uview_host_workers",
        condition: "== 0",
        lasts: "1m",
        severity: Severity::Page,
        summary: "No NIC agent is connected to {{ $labels.instance }}: nothing is judged there",
        means: "Services go on, and are not watched. Traces are kept for errors and by chance only.",
        todo: &[
            "`systemctl status uview-nic-agent`, or the pod's log. It tries again by itself as soon as it runs.",
            "If it runs: `uview_nic_host_connected`, and what its log says about the address and certificates of the control plane.",
        ],
    },
    Alert {
        name: "UviewHostAgentUnreachable",
        query: "uview_nic_host_connected",
        condition: "== 0",
        lasts: "1m",
        severity: Severity::Page,
        summary: "The NIC agent {{ $labels.instance }} has no host agent",
        means: "It goes on with what it has for a bounded time, and nobody gets its verdicts.",
        todo: &[
            "`systemctl status uview-host-agent`, or the pod's log.",
            "A wrong `control.address`, or a certificate that is over, is in its log.",
        ],
    },
    Alert {
        name: "UviewUnplacedLmaps",
        query: "uview_host_unplaced_lmaps",
        condition: "> 0",
        lasts: "2m",
        severity: Severity::Ticket,
        summary: "{{ $value }} LMAPs of {{ $labels.instance }} are run by no worker",
        means: "Their services are not judged.",
        todo: &["`uview status` names them, and why.", "Workers that are drained take none: `uview undrain`."],
    },
    Alert {
        name: "UviewConfigurationRejected",
        query: "max by (instance) (uview_host_configuration_rejected or uview_nic_configuration_rejected)",
        condition: "== 1",
        lasts: "1m",
        severity: Severity::Ticket,
        summary: "{{ $labels.instance }} cannot use its configuration files as they are",
        means: "Those before are in use. After a restart the agent would not start.",
        todo: &["`uview host-agent --check-config --config FILE`, or `uview nic-agent …`, says where and why."],
    },
    Alert {
        name: "UviewLateTicks",
        query: "sum by (instance) (rate(uview_nic_late_ticks_total[5m])) / sum by (instance) (rate(uview_nic_ticks_total[5m]))",
        condition: "> 0.01",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "{{ $labels.instance }} skips {{ $value | humanizePercentage }} of its intervals",
        means: "Rows are missing, so that alarms come later. A skipped interval is not made up for.",
        todo: &[
            "Give its workers a core of their own, or more workers.",
            "Longer intervals for large services: `uview lmap SERVICE --interval 1s`.",
        ],
    },
    Alert {
        name: "UviewFailedRegions",
        query: "sum by (instance) (rate(uview_nic_failed_regions_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "{{ $labels.instance }} cannot read regions of services",
        means: "The services of these regions are judged without them, or not at all.",
        todo: &[
            "`uview status` names regions, services and the reason.",
            "By RDMA: `uview_nic_broken_connections_total` and `uview_nic_queue_pair_connected`.",
        ],
    },
    Alert {
        name: "UviewSilentReplicas",
        query: "uview_nic_silent_replicas",
        condition: "> 0",
        lasts: "1m",
        severity: Severity::Page,
        summary: "{{ $value }} replicas do not move any more, seen by {{ $labels.instance }}",
        means: "Their processes are there, and hang: the client's heartbeat stands still.",
        todo: &[
            "`uview status` names them.",
            "Look at the process: stopped (`SIGSTOP`), swapped out, or out of CPU (`cpu.max`).",
        ],
    },
    Alert {
        name: "UviewLostVerdicts",
        query: "sum by (instance) (rate(uview_host_lost_verdicts_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "A hook of {{ $labels.instance }} is too slow, and loses verdicts",
        means: "Only the slow hook loses some.",
        todo: &[
            "`uview status` says which counters rise; the hook should read faster, or ask for fewer verdicts (`min_share`).",
        ],
    },
    Alert {
        name: "UviewLostSpans",
        query: "sum by (instance, reason) (rate(uview_host_lost_spans_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "{{ $labels.instance }} loses spans: {{ $labels.reason }}",
        means: "Traces are kept with gaps, or not at all. The receipt counts them (`uview receipt`).",
        todo: &[
            "Memory: raise `otlp.traces.memory_bytes`, or lower `decision_wait_ms`.",
            "Upstream: see UviewLostRequests.",
        ],
    },
    Alert {
        name: "UviewLostRequests",
        query: "sum by (instance, signal, reason) (rate(uview_host_lost_otlp_requests_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Page,
        summary: "{{ $labels.signal }} accepted by {{ $labels.instance }} do not reach the upstream: {{ $labels.reason }}",
        means: "Services have been told that their telemetry was accepted, and it is lost.",
        todo: &[
            "Is the upstream of `otlp.upstream.endpoint` up, and does it accept? `uview status` has its last answer.",
            "`uview_host_queued_otlp_bytes` shows how much waits.",
        ],
    },
    Alert {
        name: "UviewLostSamples",
        query: "sum by (instance, reason) (rate(uview_host_lost_samples_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "Samples of {{ $labels.instance }} do not reach Prometheus: {{ $labels.reason }}",
        means: "Series have gaps in the remote monitor. Detection is not concerned.",
        todo: &["Does the receiver of `remote_write.url` accept? `uview status` has its last answer."],
    },
    Alert {
        name: "UviewDroppedFrames",
        query: "sum by (instance, interface) (rate(uview_nic_dropped_frames_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "The kernel drops frames of {{ $labels.interface }} before {{ $labels.instance }} reads them",
        means: "Loss and delay of streams are of fewer packets. Their flags say so.",
        todo: &["More rings for the interface, or a narrower filter of its streams."],
    },
    Alert {
        name: "UviewDownTargets",
        query: "uview_host_down_targets",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "{{ $value }} Prometheus targets of {{ $labels.instance }} do not answer",
        means: "Services that are watched by these endpoints only are not judged.",
        todo: &["`uview sources` names them, and the last error of each."],
    },
    Alert {
        name: "UviewFailedWrites",
        query: "sum by (instance) (rate(uview_host_failed_receipt_writes_total[5m]) + rate(uview_host_failed_incident_writes_total[5m]) + rate(uview_host_failed_model_writes_total[5m]))",
        condition: "> 0",
        lasts: "5m",
        severity: Severity::Ticket,
        summary: "{{ $labels.instance }} cannot write receipts, incidents or models",
        means: "They are in memory, and end with the agent.",
        todo: &["Is the disk full, or the folder another user's? `uview status` names the file."],
    },
];

const HEAD: &str = "# Generated by `cargo xtask monitoring`. What to do about each alert: docs/runbook.md.\n";

/// The rules as a file for `rule_files`.
pub fn rules(table: &Table) -> Result<String> {
    let mut text = format!("{HEAD}groups:\n  - name: uview\n    rules:\n");
    for Alert { name, query, condition, lasts, severity, summary, .. } in &ALERTS {
        table.check(query)?;
        // Texts are quoted as JSON, which YAML reads.
        let (summary, severity) = (serde_json::to_string(summary)?, severity.name());
        let anchor = name.to_lowercase();
        _ = write!(
            text,
            "      - alert: {name}\n        expr: {query} {condition}\n        for: {lasts}\n        labels:\n          \
             severity: {severity}\n        annotations:\n          summary: {summary}\n          \
             runbook: docs/runbook.md#{anchor}\n"
        );
    }
    Ok(text)
}

/// Two alerts as they come and go, at the end of the page. `cargo lab sources --pages` runs these lines.
const LINES: &str = r#"
## In lines

As a test runs them: a host agent without a NIC agent, and a mistake in its configuration. For a try, what lasts five seconds is an alert, and not only
what lasts a minute.

```sh
export UVIEW_RUNTIME_DIR=$PWD/run
cat > right.yaml <<END
runtime_dir: $PWD/run
metrics: {listen: '127.0.0.1:7496'}
END
cat > nic-agent.yaml <<END
control: {address: 'unix:$PWD/run/control.sock'}
regions_socket: $PWD/run/regions.sock
metrics: {listen: '127.0.0.1:0'}
END
cat > prometheus.yml <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [uview-alerts.yaml]
scrape_configs:
  - job_name: uview-host-agent
    static_configs: [{targets: ['127.0.0.1:7496']}]
END
sed "s/for: 1m/for: 5s/" deploy/prometheus/uview-alerts.yaml > uview-alerts.yaml
promtool check config prometheus.yml
prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:7495 \
    > prometheus.log 2>&1 &
cp right.yaml host-agent.yaml
uview host-agent --config host-agent.yaml > host-agent.log 2>&1 &
until test -e run/host-agent.json; do sleep 0.2; done
echo "metricks: {}" >> host-agent.yaml                       # the agent goes on with what it has
firing() { promtool query instant http://127.0.0.1:7495 'ALERTS{alertstate="firing"}' 2> promtool.err; }
until firing | grep UviewNoWorker && firing | grep UviewConfigurationRejected; do sleep 1; done
```

What their parts above say to do, until both are over:

```sh
uview host-agent --check-config --config host-agent.yaml | grep metricks
cp right.yaml host-agent.yaml
uview nic-agent --config nic-agent.yaml > nic-agent.log 2>&1 &
until uview status | grep "worker 0 connected"; do sleep 0.2; done
while firing | grep Uview; do sleep 1; done
```
"#;

/// The page with what each alert means and what to do.
pub fn runbook() -> String {
    let mut text = String::from(
        "# When the agents raise an alert\n\n\
         [deploy/prometheus/uview-alerts.yaml](../deploy/prometheus/uview-alerts.yaml) has the rules,\n\
         [deploy/grafana](../deploy/grafana) dashboards of the same metrics ([all of them](metrics.md)). `cargo xtask monitoring`\n\
         makes these files, and this page.\n\n\
         | alert | severity | raised when |\n| --- | --- | --- |\n",
    );
    for Alert { name, query, condition, lasts, severity, .. } in &ALERTS {
        let anchor = name.to_lowercase();
        _ = writeln!(text, "| [{name}](#{anchor}) | {} | `{query} {condition}` for {lasts} |", severity.name());
    }
    text.push_str(
        "\n*page*: somebody should look at once. *ticket*: today. That an agent is down altogether is `up == 0` of its job,\n\
         which every Prometheus has a rule for.\n\n\
         ```yaml\n# prometheus.yml\nrule_files: [uview-alerts.yaml]\nscrape_configs:\n  - job_name: uview-host-agent\n    \
         static_configs: [{targets: ['node-3:9702']}]\n  - job_name: uview-lmaps\n    metrics_path: /metrics/lmaps\n    \
         static_configs: [{targets: ['node-3:9702']}]\n  - job_name: uview-nic-agent\n    \
         static_configs: [{targets: ['node-3:9703']}]\n```\n",
    );
    for Alert { name, means, todo, .. } in &ALERTS {
        _ = write!(text, "\n## {name}\n\n{means}\n\n");
        for step in *todo {
            _ = writeln!(text, "- {step}");
        }
    }
    text + LINES
}
