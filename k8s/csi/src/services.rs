//! The interfaces of the driver: who it is, what it mounts, and how kubelet learns of it.

use std::path::PathBuf;
use std::sync::Arc;

use agent_runtime::access::Identity as Caller;
use agent_runtime::chain;
use tonic::{Request, Response, Status};

use crate::arguments::DRIVER;
use crate::proto::csi::identity_server::Identity;
use crate::proto::csi::node_server::Node;
use crate::proto::csi::probe_response::Ready;
use crate::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    ProbeRequest, ProbeResponse,
};
use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use crate::publisher::{PublishError, Publisher};
use crate::volume::{self, VolumeError};

/// Version of the interface that kubelet asks for.
const INTERFACE: &str = "1.0.0";

/// The driver. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) node: String,
    pub(crate) socket: PathBuf,
    pub(crate) pods: PathBuf,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) own_uid: u32,
}

impl From<VolumeError> for Status {
    fn from(error: VolumeError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

impl From<PublishError> for Status {
    fn from(error: PublishError) -> Self {
        let text = chain(&error);
        match error {
            PublishError::NoSource(_) => Self::unavailable(text),
            PublishError::Foreign(_) => Self::already_exists(text),
            PublishError::System { .. } => Self::internal(text),
        }
    }
}

impl Driver {
    /// Refuses whoever is neither root, as kubelet is, nor the driver's own user.
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        match request.extensions().get::<Caller>() {
            Some(Caller::User { uid, .. }) if *uid == 0 || *uid == self.own_uid => Ok(()),
            _ => Err(Status::permission_denied("only kubelet may call this driver: root")),
        }
    }

    /// Runs `change` where it may wait for the kernel.
    async fn change(
        &self,
        change: impl FnOnce(&Publisher) -> Result<(), PublishError> + Send + 'static,
    ) -> Result<(), Status> {
        let publisher = Arc::clone(&self.publisher);
        let changed = tokio::task::spawn_blocking(move || change(&publisher)).await;
        let changed = changed.map_err(|_| Status::internal("the call ended without a reply"))?;
        Ok(changed.inspect_err(|error| tracing::warn!(error = chain(error), "a volume stays as it is"))?)
    }
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        self.admit(&request)?;
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name: DRIVER.to_owned(), vendor_version }))
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(GetPluginCapabilitiesResponse {}))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.admit(&request)?;
        let ready = Ready { value: self.publisher.is_ready() };
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.admit(&request)?;
        let target = volume::publication(&request.into_inner(), &self.pods)?;
        let path = target.clone();
        self.change(move |publisher| publisher.publish(&path)).await?;
        tracing::info!(target = %target.display(), "volume published");
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        self.admit(&request)?;
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        let target = volume::target(&volume_id, &target_path, &self.pods)?;
        let path = target.clone();
        self.change(move |publisher| publisher.unpublish(&path)).await?;
        tracing::info!(target = %target.display(), "volume unpublished");
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(NodeGetCapabilitiesResponse {}))
    }

    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(NodeGetInfoResponse { node_id: self.node.clone() }))
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        self.admit(&request)?;
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.socket.display().to_string(),
            supported_versions: vec![INTERFACE.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.admit(&request)?;
        match request.into_inner() {
            RegistrationStatus { plugin_registered: true, .. } => tracing::info!("kubelet knows the driver"),
            RegistrationStatus { error, .. } => tracing::error!(error, "kubelet does not take the driver"),
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
