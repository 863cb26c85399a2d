//! `uview kubectl`, also as a plugin of kubectl: runs a command of an operator in the agent of a node.
//!
//! The agent is found by its labels, and the command runs in its container (`kubectl exec`). So the cluster's roles say
//! who may (`create` on `pods/exec` in the agents' namespace), and no port of the agent has to be open (decision D88).

mod calls;
mod model;
mod open;
mod train;
mod transcript;

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use serde::Deserialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::{Display, output};

/// The name by which kubectl calls a plugin for `kubectl uview`.
pub const PLUGIN: &str = "kubectl-uview";
/// The long help of `uview kubectl`.
pub const LONG_ABOUT: &str = "\
Run a command of an operator in the agent of a Kubernetes node

  uview kubectl status                     the only node, or a list of nodes to choose from
  uview kubectl --node worker-3 top        live, on that node
  uview kubectl --all status               on one node after the other
  uview kubectl --all lmap shop/payment --interval 200ms
  uview kubectl --node worker-3 open       the live page, through a tunnel, until Ctrl-C
  uview kubectl describe shop/payment      how it is watched: `uview lmap` and `uview metric` of it
  uview kubectl traces                     what was kept of them: `uview receipt` and `uview paths`
  uview kubectl watch --name kubelet       a program outside of pods, until Ctrl-C
  uview kubectl train shop/payment --out F recorded there, trained here: see `train --help`
  uview kubectl model set shop/payment F   its agent judges by the model in F: see `model --help`

kubectl is called as it is configured, with --context and --kubeconfig if they are given. You need the rights `get` and
`list` on `pods`, and `create` on `pods/exec`, in the agents' namespace; for `open` also `create` on `pods/portforward`.
Under the name `kubectl-uview` in PATH, it is the plugin `kubectl uview`:

  ln -s $(command -v uview) ~/.local/bin/kubectl-uview
  kubectl uview --node worker-3 status

The exit code is that of the command; with --all, of the first that is not 0.";

/// Where the chart puts the agents.
const NAMESPACE: &str = "uview";
/// Containers of the host agent's pods.
const LABEL: &str = "app.kubernetes.io/name=uview,app.kubernetes.io/component=host-agent";

/// Arguments of `uview kubectl`.
#[derive(Clone, Debug, clap::Args)]
pub struct KubectlArgs {
    /// Namespace of the agents
    #[arg(short, long, default_value = NAMESPACE)]
    namespace: String,
    /// The node whose agent is asked [default: the only one]
    #[arg(long, conflicts_with = "all")]
    node: Option<String>,
    /// Ask the agents of all nodes, one after the other
    #[arg(long)]
    all: bool,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Path of the kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// A command of uview, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The agent of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Agent {
    node: String,
    pod: String,
    is_running: bool,
}

#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: String,
}

/// The arguments of `uview` for those of the plugin: kubectl calls it by its file's name.
#[must_use]
pub fn as_plugin(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_plugin = arguments.first().is_some_and(|first| Path::new(first).file_stem() == Some(PLUGIN.as_ref()));
    if is_plugin {
        arguments.insert(1, "kubectl".into());
    }
    arguments
}

/// Runs the command.
///
/// # Errors
///
/// [`Failure`] if kubectl cannot be run or fails, the command is none that an agent can carry out, or no agent or more
/// than one is there without a choice.
pub fn run(args: &KubectlArgs, display: Display) -> Result<Exit, Failure> {
    match args.command.first().map(String::as_str) {
        Some(calls::TRAIN) => return args.train(),
        Some(calls::MODEL) => return args.model(),
        _ => {}
    }
    let what = format!("run `uview {}` on a node", args.command.join(" "));
    let calls =
        calls::calls(&args.command, args.all).map_err(|why| Failure::to(&what).because(why).exit_with(Exit::Usage))?;
    let agents = args.choose(args.agents(&what)?).map_err(|why| Failure::to(&what).because(why))?;
    if args.command.first().is_some_and(|command| command == "open") {
        return args.open(&agents, &what, display);
    }
    let mut result = Exit::Fine;
    for agent in &agents {
        if args.all {
            output::print(&format!("node {}\n", agent.node))?;
        }
        for call in &calls {
            let exit = args.carry_out(agent, call, &what)?;
            if result == Exit::Fine {
                result = exit;
            }
            // The next one would fail alike.
            if !matches!(exit, Exit::Fine | Exit::Attention) {
                break;
            }
        }
    }
    Ok(result)
}

/// The arguments of a command that runs here and there; `None` if its help was asked for and is printed. `what` is for
/// errors.
fn parse_or_help<A: clap::Parser>(words: &[String], what: &str) -> Result<Option<A>, Failure> {
    match A::try_parse_from(words) {
        Ok(args) => Ok(Some(args)),
        Err(error) if !error.use_stderr() => output::print(&error.to_string()).map(|()| None),
        Err(error) => {
            let text = error.to_string();
            let because = text.strip_prefix("error: ").unwrap_or(&text);
            Err(Failure::to(what).because(because).exit_with(Exit::Usage))
        }
    }
}

impl KubectlArgs {
    /// This command for `agent`, as one types it, up to the words of the command that runs there.
    fn typed(&self, agent: &Agent) -> String {
        let namespace = Some(&self.namespace).filter(|name| *name != NAMESPACE);
        let node = Some(&agent.node);
        let options = [
            ("--context", self.context.as_ref()),
            ("--kubeconfig", self.kubeconfig.as_ref()),
            ("--namespace", namespace),
            ("--node", node),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        let words: Vec<String> = ["uview kubectl".to_owned()].into_iter().chain(given).collect();
        words.join(" ")
    }

    fn kubectl(&self) -> Command {
        let mut command = Command::new("kubectl");
        for (name, value) in [("--context", &self.context), ("--kubeconfig", &self.kubeconfig)] {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        }
        command.args(["--namespace", &self.namespace]);
        command
    }

    /// All agents, by their nodes' names.
    fn agents(&self, what: &str) -> Result<Vec<Agent>, Failure> {
        let mut get = self.kubectl();
        get.args(["get", "pods", "--selector", LABEL, "--output", "json"]);
        let Output { status, stdout, stderr } = get.output().map_err(|error| not_run(what, &error))?;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr);
            return Err(Failure::to(what).because(format!("kubectl says: {}", said.trim())));
        }
        agents(&stdout).map_err(|error| Failure::to(what).because(format!("kubectl printed other text: {error}")))
    }

    /// Those that are asked for.
    fn choose(&self, agents: Vec<Agent>) -> Result<Vec<Agent>, String> {
        let names = |agents: &[Agent]| agents.iter().map(|agent| agent.node.clone()).collect::<Vec<_>>().join(", ");
        let (running, others): (Vec<_>, Vec<_>) = agents.into_iter().partition(|agent| agent.is_running);
        if running.is_empty() {
            let waiting = if others.is_empty() { String::new() } else { format!("; not yet on {}", names(&others)) };
            let namespace = &self.namespace;
            return Err(format!("no host agent runs in namespace {namespace}{waiting} (another one: --namespace)"));
        }
        match &self.node {
            Some(node) => {
                let known = names(&running);
                let chosen: Vec<_> = running.into_iter().filter(|agent| agent.node == *node).collect();
                if chosen.is_empty() {
                    Err(format!("no host agent runs on {node}, but on {known}"))
                } else {
                    Ok(chosen)
                }
            }
            None if running.len() > 1 && !self.all => {
                Err(format!("name a node by --node, or --all for one after the other: {}", names(&running)))
            }
            None => Ok(running),
        }
    }

    /// uview in the container of `agent`, without its arguments; `options` are those of `kubectl exec`.
    fn exec(&self, agent: &Agent, options: &[&str]) -> Command {
        let mut exec = self.kubectl();
        exec.arg("exec").args(options).arg(&agent.pod).args(["--container", "host-agent", "--", "uview"]);
        exec
    }

    fn carry_out(&self, agent: &Agent, call: &[String], what: &str) -> Result<Exit, Failure> {
        // Only a terminal can be drawn on.
        let is_drawn_on = std::io::stdin().is_terminal() && output::is_terminal();
        let options: &[&str] = if is_drawn_on { &["--stdin", "--tty"] } else { &[] };
        let mut exec = self.exec(agent, options);
        let status = exec.args(call).stdin(Stdio::inherit()).status().map_err(|error| not_run(what, &error))?;
        Ok(exit_of(status))
    }
}

/// The exit code of uview in a container, which kubectl passes on.
fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(0) => Exit::Fine,
        Some(2) => Exit::Attention,
        Some(4) => Exit::NoAgent,
        Some(64) => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn not_run(what: &str, error: &std::io::Error) -> Failure {
    let failure = Failure::to(what).because(format!("kubectl does not run: {error}"));
    if error.kind() == ErrorKind::NotFound {
        failure.advice("install kubectl, or add its folder to PATH")
    } else {
        failure
    }
}

/// The agents in what `kubectl get pods --output json` prints.
fn agents(json: &[u8]) -> Result<Vec<Agent>, serde_json::Error> {
    let Pods { items } = serde_json::from_slice(json)?;
    let agent = |pod: Pod| {
        let is_running = pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
        Some(Agent { node: pod.spec.node_name?, pod: pod.metadata.name, is_running })
    };
    let mut agents: Vec<_> = items.into_iter().filter_map(agent).collect();
    agents.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(agents)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: KubectlArgs,
    }

    fn args(line: &str) -> KubectlArgs {
        Line::parse_from(std::iter::once("uview").chain(line.split(' '))).args
    }

    fn agent(node: &str, is_running: bool) -> Agent {
        Agent { node: node.to_owned(), pod: format!("agent-{node}"), is_running }
    }

    #[test]
    fn options_of_the_command_are_its_own() {
        let args = args("--node n1 lmap shop/payment --interval 200ms --json");

        assert_eq!(args.node.as_deref(), Some("n1"));
        assert_eq!(args.command, ["lmap", "shop/payment", "--interval", "200ms", "--json"]);
    }

    #[test]
    fn a_command_for_the_same_agent_has_the_options_that_lead_to_it() {
        assert_eq!(args("status").typed(&agent("n1", true)), "uview kubectl --node n1");
        let elsewhere = args("--context lab --namespace watch status").typed(&agent("n2", true));
        assert_eq!(elsewhere, "uview kubectl --context lab --namespace watch --node n2");
    }

    #[test]
    fn kubectl_calls_a_plugin_by_the_name_of_its_file() {
        let of = |line: &str| as_plugin(line.split(' ').map(OsString::from).collect());

        assert_eq!(of("/opt/bin/kubectl-uview top"), ["/opt/bin/kubectl-uview", "kubectl", "top"]);
        assert_eq!(of("/usr/bin/uview top"), ["/usr/bin/uview", "top"]);
    }

    #[test]
    fn pods_without_a_node_have_no_agent_and_those_that_end_do_not_run() {
        let json = br#"{"items": [
            {"metadata": {"name": "b"}, "spec": {"nodeName": "n2"}, "status": {"phase": "Running"}},
            {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}},
            {"metadata": {"name": "c", "deletionTimestamp": "2026-11-26T08:00:00Z"}, "spec": {"nodeName": "n3"},
             "status": {"phase": "Running"}},
            {"metadata": {"name": "d"}, "spec": {}}
        ]}"#;

        let agents: Vec<_> = agents(json).unwrap().into_iter().map(|of| (of.node, of.pod, of.is_running)).collect();

        let of = |node: &str, pod: &str, is_running| (node.to_owned(), pod.to_owned(), is_running);
        assert_eq!(agents, [of("n1", "a", false), of("n2", "b", true), of("n3", "c", false)]);
    }

    #[test]
    fn the_only_agent_is_taken_and_of_several_one_is_named() {
        let two = || vec![agent("n1", true), agent("n2", true)];
        let one = || vec![agent("n1", true), agent("n2", false)];
        let nodes = |chosen: Result<Vec<Agent>, String>| chosen.map(|all| all.into_iter().map(|of| of.node).collect());

        assert_eq!(nodes(args("status").choose(one())), Ok(vec!["n1".to_owned()]));
        assert_eq!(nodes(args("--all status").choose(two())), Ok(vec!["n1".to_owned(), "n2".to_owned()]));
        assert_eq!(nodes(args("--node n2 status").choose(two())), Ok(vec!["n2".to_owned()]));
        let refused = |line: &str, agents| args(line).choose(agents).unwrap_err();
        assert_eq!(refused("status", two()), "name a node by --node, or --all for one after the other: n1, n2");
        assert_eq!(refused("--node n3 status", two()), "no host agent runs on n3, but on n1, n2");
        let none = refused("--namespace x status", vec![agent("n2", false)]);
        assert_eq!(none, "no host agent runs in namespace x; not yet on n2 (another one: --namespace)");
    }
}
