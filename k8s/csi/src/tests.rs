//! The driver over its real sockets, and, where the tests may, over real mounts.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use support::wait::Wait;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::arguments::DRIVER;
use crate::proto::csi::identity_client::IdentityClient;
use crate::proto::csi::node_client::NodeClient;
use crate::proto::csi::{
    GetPluginInfoRequest, NodeGetInfoRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, ProbeRequest,
};
use crate::proto::registration::registration_client::RegistrationClient;
use crate::proto::registration::{InfoRequest, RegistrationStatus};
use crate::volume::tests::inline;
use crate::{CsiArgs, run};

/// A driver that runs, and a directory for kubelet's.
struct Running {
    args: CsiArgs,
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(), run::RunError>>,
    mounts: Mounts,
}

/// A directory below which nothing is mounted any more once it is dropped.
struct Mounts(TempDir);

impl Drop for Mounts {
    fn drop(&mut self) {
        let list = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let points = list.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(self.0.path())) {
            _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("sockets")).unwrap();
        let args = CsiArgs {
            node: "node-1".to_owned(),
            source: path("sockets"),
            kubelet: path("kubelet"),
            log_level: "info".to_owned(),
            log_json: false,
        };
        let (end, ended) = oneshot::channel();
        let stop = async { drop(ended.await) };
        let task = tokio::spawn(run::run(args.clone(), stop));
        let registration = args.registration();
        let wait = Wait::up_to(core::time::Duration::from_secs(20));
        wait.until_async("it listens", async || UnixStream::connect(&registration)).await;
        Self { args, end, task, mounts: Mounts(folder) }
    }

    async fn channel(path: &Path) -> Channel {
        let endpoint = Endpoint::from_shared(format!("unix:{}", path.display())).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(Self::channel(&self.args.socket()).await)
    }

    /// The path of a volume, whose parent kubelet has made.
    fn target(&self, pod: &str) -> PathBuf {
        let parent = self.args.pods().join(pod).join("volumes/kubernetes.io~csi/uview");
        std::fs::create_dir_all(&parent).unwrap();
        parent.join("mount")
    }

    async fn publish(&self, target: &Path) -> Result<NodePublishVolumeResponse, tonic::Status> {
        let request = inline(&target.display().to_string());
        self.node().await.node_publish_volume(request).await.map(tonic::Response::into_inner)
    }

    async fn unpublish(&self, target: &Path) -> Result<(), tonic::Status> {
        let target_path = target.display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id: "csi-1".to_owned(), target_path };
        self.node().await.node_unpublish_volume(request).await.map(drop)
    }
}

/// Whether the tests may mount; if not, it is said.
fn may_mount() -> bool {
    let probe = Mounts(tempfile::tempdir().unwrap());
    let works = rustix::mount::mount_bind(probe.0.path(), probe.0.path()).is_ok();
    if !works {
        support::harness::not_run("mounts need root, and a system that lets it mount");
    }
    works
}

#[tokio::test]
async fn kubelet_learns_of_the_driver_and_forgets_it_when_it_ends() {
    let running = Running::start().await;
    let mut registration = RegistrationClient::new(Running::channel(&running.args.registration()).await);

    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    registration.notify_registration_status(status).await.unwrap();
    let channel = Running::channel(Path::new(&info.endpoint)).await;
    let mut identity = IdentityClient::new(channel.clone());
    assert_eq!(identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner().name, DRIVER);
    let ready = async |identity: &mut IdentityClient<Channel>| {
        identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready.unwrap().value
    };
    assert!(ready(&mut identity).await);
    std::fs::remove_dir(&running.args.source).unwrap();
    assert!(!ready(&mut identity).await, "there is nothing to mount");
    let node = NodeClient::new(channel).node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(node.node_id, "node-1");

    running.end.send(()).unwrap();
    running.task.await.unwrap().unwrap();
    assert!(!running.args.registration().exists() && !running.args.socket().exists());
    drop(running.mounts);
}

#[tokio::test]
async fn what_is_not_asked_for_rightly_is_refused_with_a_reason_and_what_is_not_there_is_unimplemented() {
    let running = Running::start().await;
    let target = running.target("3fa8");

    let mut request = inline(&target.display().to_string());
    request.readonly = false;
    let writable = running.node().await.node_publish_volume(request).await.unwrap_err();
    assert_eq!(writable.code(), Code::InvalidArgument);
    assert!(writable.message().contains("readOnly: true"), "{writable}");
    for outside in [Path::new("/etc"), running.mounts.0.path()] {
        assert_eq!(running.publish(outside).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(running.unpublish(outside).await.unwrap_err().code(), Code::InvalidArgument);
    }
    std::fs::remove_dir(&running.args.source).unwrap();
    let nothing = running.publish(&target).await.unwrap_err();
    assert_eq!(nothing.code(), Code::Unavailable);
    assert!(!target.exists(), "nothing is left of it");

    let mut client = tonic::client::Grpc::new(Running::channel(&running.args.socket()).await);
    for method in ["/csi.v1.Node/NodeStageVolume", "/csi.v1.Controller/CreateVolume"] {
        client.ready().await.unwrap();
        let codec = ProstCodec::<NodeGetInfoRequest, NodeGetInfoRequest>::default();
        let request = tonic::Request::new(NodeGetInfoRequest {});
        let answer = client.unary(request, PathAndQuery::from_static(method), codec).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unimplemented, "{method}");
    }
}

#[tokio::test]
async fn a_pod_gets_the_sockets_and_cannot_write_among_them() {
    if !may_mount() {
        return;
    }
    let running = Running::start().await;
    let (first, second) = (running.target("pod-1"), running.target("pod-2"));
    // What is mounted there reaches a node, too, which has a view of its own.
    let node = running.mounts.0.path().join("node");
    std::fs::create_dir(&node).unwrap();
    rustix::mount::mount_bind(running.args.pods(), running.args.pods()).unwrap();
    rustix::mount::mount_change(running.args.pods(), rustix::mount::MountPropagationFlags::SHARED).unwrap();
    rustix::mount::mount_bind(running.args.pods(), &node).unwrap();
    let on_node = node.join(first.strip_prefix(running.args.pods()).unwrap());
    let is_guarded_on_node = || {
        let list = std::fs::read("/proc/thread-self/mountinfo").unwrap();
        crate::mounts::at(&list, on_node.as_os_str().as_encoded_bytes()).map(|mount| mount.is_guarded)
    };
    // Twice, as kubelet does if an answer is lost.
    for target in [&first, &first, &second] {
        running.publish(target).await.unwrap();
    }

    assert_eq!(is_guarded_on_node(), Some(true));

    // A socket of later is reached through the directory.
    let listener = UnixListener::bind(running.args.source.join("services.sock")).unwrap();
    let mut client = UnixStream::connect(first.join("services.sock")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    server.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    let error = std::fs::write(first.join("new"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    std::fs::write(running.args.source.join("own"), "").unwrap();
    assert!(second.join("own").exists(), "the directory itself is as it was");

    for target in [&first, &first] {
        running.unpublish(target).await.unwrap();
        assert!(!target.exists());
    }
    assert_eq!(is_guarded_on_node(), None);
    assert!(second.join("own").exists() && running.args.source.join("own").exists());
    running.unpublish(&second).await.unwrap();
    assert!(running.args.source.join("own").exists());
}

#[tokio::test]
async fn a_mount_that_was_interrupted_is_completed_and_what_others_put_there_stays() {
    if !may_mount() {
        return;
    }
    let running = Running::start().await;
    let target = running.target("pod-1");
    std::fs::create_dir(&target).unwrap();
    rustix::mount::mount_bind(&running.args.source, &target).unwrap();
    std::fs::write(target.join("while-it-was-for-writing"), "").unwrap();

    running.publish(&target).await.unwrap();

    let error = std::fs::write(target.join("new"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    running.unpublish(&target).await.unwrap();
    assert!(running.args.source.join("while-it-was-for-writing").exists());

    let (foreign, file) = (running.target("pod-2"), running.target("pod-3"));
    std::fs::create_dir(&foreign).unwrap();
    rustix::mount::mount_bind(running.mounts.0.path(), &foreign).unwrap();
    std::fs::create_dir(&file).unwrap();
    std::fs::write(file.join("of-somebody"), "").unwrap();
    for target in [&foreign, &file] {
        assert_eq!(running.publish(target).await.unwrap_err().code(), Code::AlreadyExists);
    }
    assert_eq!(running.unpublish(&file).await.unwrap_err().code(), Code::Internal, "it is not empty");
    assert!(file.join("of-somebody").exists());
}

/// Plays kubelet's part beside a driver in its container: `cargo xtask kubernetes` runs it on a node, whose kubelet may
/// be older than 1.26 and send a path as authority, which HTTP/2 does not allow.
#[tokio::test]
#[ignore = "it needs a driver in a container; UVIEW_KUBELET_DIR names kubelet's directory"]
#[expect(clippy::disallowed_methods, reason = "only the environment says where the node's kubelet is")]
async fn a_driver_in_its_container_mounts_on_the_node_and_takes_the_mount_away() {
    let kubelet = PathBuf::from(std::env::var_os("UVIEW_KUBELET_DIR").expect("UVIEW_KUBELET_DIR"));
    let registration = kubelet.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
    let mut registration = RegistrationClient::new(Running::channel(&registration).await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    let mut node = NodeClient::new(Running::channel(Path::new(&info.endpoint)).await);
    let pod = kubelet.join("pods").join(format!("uview-test-{}", std::process::id()));
    let volumes = pod.join("volumes/kubernetes.io~csi/sockets");
    std::fs::create_dir_all(&volumes).unwrap();
    let target = volumes.join("mount").display().to_string();
    let options = || {
        let list = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let mut lines = list.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.find(|parts| parts[4] == target).map(|parts| parts[5].to_owned())
    };

    let published = node.node_publish_volume(inline(&target)).await;
    let (mounted, has_socket) = (options(), Path::new(&target).join("services.sock").exists());
    let request = NodeUnpublishVolumeRequest { volume_id: "csi-1".to_owned(), target_path: target.clone() };
    let unpublished = node.node_unpublish_volume(request).await;
    let left = options();
    let mut writable = inline(&target);
    writable.readonly = false;
    let refused = node.node_publish_volume(writable).await;
    std::fs::remove_dir_all(&pod).unwrap();

    published.unwrap();
    unpublished.unwrap();
    let mounted = mounted.expect("the mount reaches the node");
    println!("{mounted}");
    let has = |option: &str| mounted.split(',').any(|of| of == option);
    assert!(has_socket && ["ro", "nosuid", "nodev", "noexec"].iter().all(|option| has(option)), "{mounted}");
    assert_eq!(left, None, "it is still mounted");
    assert!(refused.unwrap_err().message().contains("readOnly: true"));
}
