//! Calls that change something.

use wire::proto::operators::{
    AddMetricRequest, ConfigLmapRequest, DeleteLmapRequest, DeleteMetricRequest, DrainWorkerRequest, FitAgainRequest,
    MetricConfig, NewLmapRequest, ServiceMetrics, SetIntervalReply, SetIntervalRequest, SetModelReply, SetModelRequest,
    TriggerReply, TriggerRequest, UndrainWorkerRequest,
};

use super::{AgentError, Connection};
use crate::replies::printable;

impl Connection {
    /// Moves all LMAPs of a worker to others. Returns how many it has.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if there is no such worker, or it is the last one.
    pub async fn drain(&mut self, worker: u32, force: bool) -> Result<u32, AgentError> {
        match self.client.drain_worker(DrainWorkerRequest { worker, force }).await {
            Ok(reply) => Ok(reply.into_inner().lmaps),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Lets a worker have LMAPs again.
    ///
    /// # Errors
    ///
    /// As [`drain`](Self::drain).
    pub async fn undrain(&mut self, worker: u32) -> Result<(), AgentError> {
        match self.client.undrain_worker(UndrainWorkerRequest { worker }).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Sets how a metric of an LMAP is watched. Returns the ids of its series.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if no replica has the metric, or if it cannot be
    /// aggregated so.
    pub async fn set_metric(&mut self, lmap: u32, metric: MetricConfig) -> Result<Vec<u32>, AgentError> {
        let request = AddMetricRequest { lmap, metric: Some(metric), r#type: String::new() };
        match self.client.add_metric(request).await {
            Ok(reply) => Ok(reply.into_inner().metrics),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Stops watching a series, or takes a derived column back.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if the LMAP has no such series.
    pub async fn delete_metric(&mut self, lmap: u32, metric: u32) -> Result<(), AgentError> {
        match self.client.delete_metric(DeleteMetricRequest { lmap, metric }).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }
    /// Makes an LMAP.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if it cannot be made so.
    pub async fn new_lmap(&mut self, request: NewLmapRequest) -> Result<(), AgentError> {
        match self.client.new_lmap(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Lets an LMAP watch these metrics of several services.
    ///
    /// # Errors
    ///
    /// As [`new_lmap`](Self::new_lmap).
    pub async fn config_lmap(&mut self, lmap: u32, services: Vec<ServiceMetrics>) -> Result<(), AgentError> {
        match self.client.config_lmap(ConfigLmapRequest { lmap, services, ..ConfigLmapRequest::default() }).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Deletes an LMAP.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if there is none.
    pub async fn delete_lmap(&mut self, lmap: u32) -> Result<(), AgentError> {
        match self.client.delete_lmap(DeleteLmapRequest { lmap }).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Declares what an LMAP sees now to be normal: it learns anew from 120 rows, and judges as before meanwhile.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent cannot be asked, has no such LMAP, or no worker runs it.
    pub async fn fit_again(&mut self, lmap: u32) -> Result<(), AgentError> {
        match self.client.fit_again(FitAgainRequest { lmap }).await {
            Ok(_) => Ok(()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Sets the interval of an LMAP. Returns what is in effect.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if it is out of bounds.
    pub async fn set_interval(&mut self, request: SetIntervalRequest) -> Result<SetIntervalReply, AgentError> {
        match self.client.set_interval(request).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Gives an LMAP a trained model; an empty one takes back the one that it has. Returns how it fits.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if it does not fit, or is no model.
    pub async fn set_model(&mut self, lmap: u32, model: Vec<u8>) -> Result<SetModelReply, AgentError> {
        match self.client.set_model(SetModelRequest { lmap, model }).await {
            Ok(reply) => Ok(printable(reply.into_inner())),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }

    /// Has the traces through a service kept for a time. Returns what is in effect.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status); [`AgentError::Declined`] if the service is not known, a bound does not hold, or
    /// traces are not buffered.
    pub async fn trigger(&mut self, request: TriggerRequest) -> Result<TriggerReply, AgentError> {
        match self.client.trigger(request).await {
            Ok(reply) => Ok(reply.into_inner()),
            Err(status) => Err(self.peer.error(&status).await),
        }
    }
}
