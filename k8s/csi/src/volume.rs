//! What kubelet asks for, and why it is refused. Pure: no file is looked at.

use std::path::{Component, Path, PathBuf};

use crate::arguments::DRIVER;
use crate::proto::csi::volume_capability::AccessType;
use crate::proto::csi::{NodePublishVolumeRequest, VolumeCapability};

/// Longest path that the kernel takes.
const MAX_PATH: usize = 4096;
/// What kubelet's own attributes begin with.
const KUBELET: &str = "csi.storage.k8s.io/";
/// The attribute of a volume that lives with its pod.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Why a volume is not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeError {
    /// A field that has to be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// It is no inline volume.
    #[error(
        "only inline volumes are published, which live with their pod: `csi: {{driver: {DRIVER}, readOnly: true}}`"
    )]
    NotEphemeral,
    /// It is to be written to.
    #[error("the sockets' directory is for reading only: add `readOnly: true` to the volume")]
    Writable,
    /// It is no directory.
    #[error("{0} is not possible: the volume is a directory that is there already")]
    Unsupported(&'static str),
    /// An attribute that means nothing.
    #[error("the volume attribute {0:?} is unknown: leave it out")]
    Attribute(String),
    /// A path that no volume of this driver has.
    #[error("{target:?} is no volume's path: it has to be {}/UID/volumes/kubernetes.io~csi/NAME/mount", .pods.display())]
    Target {
        /// The path in the request.
        target: String,
        /// The directory of pods.
        pods: PathBuf,
    },
}

/// The path at which the volume of `request` is wanted. Pods are below `pods`.
///
/// # Errors
///
/// [`VolumeError`]: it is no inline volume for reading, or has a wish that is not possible.
pub(crate) fn publication(request: &NodePublishVolumeRequest, pods: &Path) -> Result<PathBuf, VolumeError> {
    let target = target(&request.volume_id, &request.target_path, pods)?;
    let attribute = request.volume_context.get(EPHEMERAL);
    if attribute.is_none_or(|value| value != "true") {
        return Err(VolumeError::NotEphemeral);
    }
    if !request.readonly {
        return Err(VolumeError::Writable);
    }
    if let Some(unknown) = request.volume_context.keys().filter(|key| !key.starts_with(KUBELET)).min() {
        return Err(VolumeError::Attribute(unknown.clone()));
    }
    for (is_there, what) in [
        (!request.secrets.is_empty(), "a secret"),
        (!request.publish_context.is_empty(), "a context of a controller"),
        (!request.staging_target_path.is_empty(), "staging"),
    ] {
        if is_there {
            return Err(VolumeError::Unsupported(what));
        }
    }
    capability(request.volume_capability.as_ref())?;
    Ok(target)
}

/// Refuses whatever is not a plain directory.
fn capability(wanted: Option<&VolumeCapability>) -> Result<(), VolumeError> {
    let wanted = wanted.and_then(|wanted| wanted.access_type.as_ref());
    let mount = match wanted.ok_or(VolumeError::Missing("volume_capability"))? {
        AccessType::Block(_) => return Err(VolumeError::Unsupported("a block device")),
        AccessType::Mount(mount) => mount,
    };
    for (is_there, what) in [
        (!mount.fs_type.is_empty(), "a file system of its own (fsType)"),
        (!mount.mount_flags.is_empty(), "an option of the mount"),
        (!mount.volume_mount_group.is_empty(), "a group of its own"),
    ] {
        if is_there {
            return Err(VolumeError::Unsupported(what));
        }
    }
    Ok(())
}

/// The path of a volume in a request.
///
/// # Errors
///
/// [`VolumeError::Missing`], [`VolumeError::Target`].
pub(crate) fn target(volume: &str, target: &str, pods: &Path) -> Result<PathBuf, VolumeError> {
    for (text, name) in [(volume, "volume_id"), (target, "target_path")] {
        if text.is_empty() {
            return Err(VolumeError::Missing(name));
        }
    }
    let path = Path::new(target);
    let below = path.strip_prefix(pods).ok().filter(|_| target.len() < MAX_PATH && !target.contains('\0'));
    let parts: Option<Vec<_>> = below.and_then(|below| {
        let name = |part| if let Component::Normal(name) = part { name.to_str() } else { None };
        below.components().map(name).collect()
    });
    match parts.as_deref() {
        Some([_, "volumes", "kubernetes.io~csi", _, "mount"]) => Ok(path.components().collect()),
        _ => Err(VolumeError::Target { target: target.chars().take(256).collect(), pods: pods.to_owned() }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::proto::csi::volume_capability::{Block, Mount};

    /// A request as kubelet makes it for an inline volume.
    pub(crate) fn inline(target: &str) -> NodePublishVolumeRequest {
        let context = [(EPHEMERAL, "true"), ("csi.storage.k8s.io/pod.name", "cart-1")];
        NodePublishVolumeRequest {
            volume_id: "csi-1".to_owned(),
            target_path: target.to_owned(),
            volume_capability: Some(capability_of(AccessType::Mount(Mount::default()))),
            readonly: true,
            volume_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..NodePublishVolumeRequest::default()
        }
    }

    fn capability_of(access: AccessType) -> VolumeCapability {
        VolumeCapability { access_type: Some(access) }
    }

    const PODS: &str = "/var/lib/kubelet/pods";
    const TARGET: &str = "/var/lib/kubelet/pods/3fa8/volumes/kubernetes.io~csi/uview/mount";

    #[test]
    fn an_inline_volume_for_reading_is_published_and_nothing_else() {
        type Change = fn(&mut NodePublishVolumeRequest);
        let refused = |change: Change| {
            let mut request = inline(TARGET);
            change(&mut request);
            publication(&request, Path::new(PODS)).unwrap_err()
        };

        assert_eq!(publication(&inline(TARGET), Path::new(PODS)), Ok(PathBuf::from(TARGET)));
        assert_eq!(refused(|of| of.volume_id.clear()), VolumeError::Missing("volume_id"));
        assert_eq!(refused(|of| of.target_path.clear()), VolumeError::Missing("target_path"));
        assert_eq!(refused(|of| of.volume_context.clear()), VolumeError::NotEphemeral);
        assert_eq!(refused(|of| of.readonly = false), VolumeError::Writable);
        let attribute = |of: &mut NodePublishVolumeRequest| drop(of.volume_context.insert("path".into(), "/".into()));
        assert_eq!(refused(attribute), VolumeError::Attribute("path".to_owned()));
        assert_eq!(refused(|of| of.volume_capability = None), VolumeError::Missing("volume_capability"));
        let mounts = [
            Mount { fs_type: "ext4".to_owned(), ..Mount::default() },
            Mount { mount_flags: vec!["suid".to_owned()], ..Mount::default() },
            Mount { volume_mount_group: "7".to_owned(), ..Mount::default() },
        ];
        for access in mounts.map(AccessType::Mount).into_iter().chain([AccessType::Block(Block {})]) {
            let wanted = capability_of(access);
            let found = super::capability(Some(&wanted));
            assert!(matches!(found, Err(VolumeError::Unsupported(_))), "{wanted:?}: {found:?}");
        }
        let unsupported: [Change; 3] = [
            |of| drop(of.secrets.insert("a".into(), "b".into())),
            |of| drop(of.publish_context.insert("a".into(), "b".into())),
            |of| of.staging_target_path = "/a".into(),
        ];
        for change in unsupported {
            assert!(matches!(refused(change), VolumeError::Unsupported(_)), "{:?}", refused(change));
        }
    }

    #[test]
    fn a_path_is_a_volume_of_a_pod_and_leads_nowhere_else() {
        for wrong in [
            "/etc",
            "/var/lib/kubelet/pods",
            "/var/lib/kubelet/pods/3fa8/volumes/kubernetes.io~csi/uview",
            "/var/lib/kubelet/pods/3fa8/volumes/kubernetes.io~csi/uview/mount/more",
            "/var/lib/kubelet/pods/3fa8/volumes/kubernetes.io~empty-dir/uview/mount",
            "/var/lib/kubelet/pods/../volumes/kubernetes.io~csi/uview/mount",
            "/var/lib/kubelet/pods/3fa8/volumes/kubernetes.io~csi/../mount",
            "/var/lib/kubelet/podsx/3fa8/volumes/kubernetes.io~csi/uview/mount",
            "3fa8/volumes/kubernetes.io~csi/uview/mount",
            "/var/lib/kubelet/pods/\0/volumes/kubernetes.io~csi/uview/mount",
        ] {
            let found = target("csi-1", wrong, Path::new(PODS));
            assert!(matches!(found, Err(VolumeError::Target { .. })), "{wrong:?}: {found:?}");
        }
    }
}
