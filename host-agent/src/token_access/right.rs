//! Which verb of which resource each call of the operators' API needs. The resources are no objects: they are there for
//! roles of a cluster to name (`k8s/chart/templates/operators-api.yaml` has two such roles).

use agent_runtime::access::Role;

/// The API group of the resources.
pub(crate) const GROUP: &str = "uview.dev";
/// The resource that all calls are about; what of it is a subresource.
pub(crate) const RESOURCE: &str = "agents";

/// What a call needs: a role of this node, or a verb in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Status, LMAPs, receipt, paths, sources.
    Read,
    /// Rows of an LMAP as they come.
    WatchRows,
    /// Hooks: verdicts as they come.
    Hook,
    /// LMAPs that come.
    CreateLmap,
    /// Metrics, intervals and models of LMAPs.
    UpdateLmap,
    /// LMAPs that go.
    DeleteLmap,
    /// Which workers run LMAPs.
    UpdateWorkers,
    /// Traces that are kept because somebody asks for them.
    Trigger,
}

impl Right {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 8] = [
        Self::Read,
        Self::WatchRows,
        Self::Hook,
        Self::CreateLmap,
        Self::UpdateLmap,
        Self::DeleteLmap,
        Self::UpdateWorkers,
        Self::Trigger,
    ];

    /// The role of this node that has it.
    pub(crate) const fn role(self) -> Role {
        match self {
            Self::Read | Self::WatchRows => Role::Viewer,
            Self::Hook
            | Self::CreateLmap
            | Self::UpdateLmap
            | Self::DeleteLmap
            | Self::UpdateWorkers
            | Self::Trigger => Role::Operator,
        }
    }

    /// The least role of the chart that has it.
    pub(crate) const fn cluster_role(self) -> &'static str {
        match self.role() {
            Role::Viewer => "uview-viewer",
            Role::Operator | Role::Worker | Role::Peer => "uview-operator",
        }
    }

    /// The verb of it.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Read => "get",
            Self::WatchRows => "watch",
            Self::Hook | Self::CreateLmap | Self::Trigger => "create",
            Self::UpdateLmap | Self::UpdateWorkers => "update",
            Self::DeleteLmap => "delete",
        }
    }

    /// What of an agent it is about; `None`: the agent itself.
    pub(crate) const fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Read => None,
            Self::WatchRows => Some("rows"),
            Self::Hook => Some("hooks"),
            Self::CreateLmap | Self::UpdateLmap | Self::DeleteLmap => Some("lmaps"),
            Self::UpdateWorkers => Some("workers"),
            Self::Trigger => Some("traces"),
        }
    }

    /// Resource and subresource, as roles name them.
    pub(crate) fn resource(self) -> String {
        self.subresource().map_or_else(|| RESOURCE.to_owned(), |of| format!("{RESOURCE}/{of}"))
    }
}
