//! What a process that registers may be called, where pods are watched: a process of a pod is its pod's workload.

use wire::name::{InstanceName, ServiceName};

use super::refusal::HelloRefusal;

/// What the pods of this node say about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodIdentity {
    /// Pods are not watched: what it says about itself counts.
    #[default]
    Unwatched,
    /// It is in no pod, or in one of uview's own.
    None,
    /// It is in a pod, whatever it says about itself.
    Member {
        /// `namespace/workload`, and the container's name if the pod has several.
        service: ServiceName,
        /// The pod's name.
        instance: InstanceName,
    },
    /// It is in a pod, and it cannot be said in which one, or it is not the service itself: why.
    Refused(String),
}

impl PodIdentity {
    /// Whether the pod says who it is, so that no rule is needed.
    pub(super) const fn is_verified(&self) -> bool {
        matches!(self, Self::Member { .. })
    }

    /// The names under which a process registers that calls itself `service` and `instance`.
    ///
    /// # Errors
    ///
    /// [`HelloRefusal::Pod`] if it is refused, [`HelloRefusal::OtherPod`] if it uses a name with a namespace that is
    /// not its own.
    pub(super) fn names(
        &self,
        service: ServiceName,
        instance: InstanceName,
    ) -> Result<(ServiceName, InstanceName), HelloRefusal> {
        let has_namespace = service.has_namespace();
        match self {
            Self::Refused(why) => Err(HelloRefusal::Pod(why.clone())),
            Self::None if has_namespace => Err(HelloRefusal::OtherPod { service, own: "in no pod".to_owned() }),
            Self::Member { service: own, .. } if has_namespace && *own != service => {
                Err(HelloRefusal::OtherPod { service, own: format!("of {own}") })
            }
            Self::Member { service, instance } => Ok((service.clone(), instance.clone())),
            Self::None | Self::Unwatched => Ok((service, instance)),
        }
    }
}
