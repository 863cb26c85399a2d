//! Limits on what services may register.

use agent_runtime::config::range;
use serde::Deserialize;

use super::ConfigError;
use crate::control_plane::Limits;

/// Limits on what services may register. More is refused. One owner may hold at most three times what is free of what
/// is limited for the whole node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Concurrent connections of services.
    pub connections: usize,
    /// Services of the node, counted for each of their owners.
    pub services: usize,
    /// Series of the node, counted for each replica.
    pub series: usize,
    /// Regions of the node.
    pub regions: usize,
    /// Bytes of all regions of the node.
    pub region_bytes: u64,
    /// Replicas that one owner may register per second.
    pub registrations_per_s: u32,
    /// Series that one owner may register per second.
    pub series_per_s: u32,
    /// Replicas of one service, at most 1024.
    pub replicas_per_service: usize,
    /// Regions of one replica.
    pub regions_per_replica: usize,
    /// Bytes of all regions of one service.
    pub bytes_per_service: u64,
    /// Series of one service, at most 4096.
    pub series_per_service: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            connections: limits.connections,
            services: limits.services,
            series: limits.series,
            regions: limits.regions,
            region_bytes: limits.region_bytes,
            registrations_per_s: limits.registrations_per_s,
            series_per_s: limits.series_per_s,
            replicas_per_service: limits.replicas_per_service,
            regions_per_replica: limits.regions_per_replica,
            bytes_per_service: limits.bytes_per_service,
            series_per_service: limits.series_per_service,
        }
    }
}

impl LimitsConfig {
    /// The limits of the control plane.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range.
    pub(super) fn limits(&self) -> Result<Limits, ConfigError> {
        let (replicas, series) = (self.replicas_per_service, self.series_per_service);
        let (most_replicas, most_series) = (wire::control::MAX_REPLICAS, wire::control::MAX_METRICS);
        for (key, found) in [
            ("services.limits.connections", self.connections),
            ("services.limits.services", self.services),
            ("services.limits.series", self.series),
            ("services.limits.regions", self.regions),
            ("services.limits.registrations_per_s", self.registrations_per_s as usize),
            ("services.limits.series_per_s", self.series_per_s as usize),
        ] {
            range(found > 0, key, &found, "must be at least 1")?;
        }
        let wanted = "must be 1 to 1024";
        range((1..=most_replicas).contains(&replicas), "services.limits.replicas_per_service", &replicas, wanted)?;
        let wanted = "must be 33 to 4096; 32 of them are reserved for process metrics";
        let possible = Limits::OWN_SERIES + 1..=most_series;
        range(possible.contains(&series), "services.limits.series_per_service", &series, wanted)?;
        Ok(Limits {
            connections: self.connections,
            services: self.services,
            series: self.series,
            regions: self.regions,
            region_bytes: self.region_bytes,
            registrations_per_s: self.registrations_per_s,
            series_per_s: self.series_per_s,
            replicas_per_service: replicas,
            regions_per_replica: self.regions_per_replica,
            bytes_per_service: self.bytes_per_service,
            series_per_service: series,
            ..Limits::default()
        })
    }
}
