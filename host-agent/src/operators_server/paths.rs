//! Operations and the services on their paths, as the OTLP endpoint has learnt them from spans.

use otlp::Edge;
use wire::proto::operators as proto;

fn service(service: otlp::PathService) -> proto::PathService {
    proto::PathService { service: service.service, age_ms: service.age.as_millis(), operations: service.called }
}

/// All operations of all tenants; `None` unless traces are buffered.
pub(super) fn reply(edge: &Edge) -> Option<proto::PathsReply> {
    let mut operations = Vec::new();
    for (tenant, name) in edge.tenants() {
        let known = edge.operations(tenant)?;
        operations.extend(known.into_iter().map(|path| proto::PathOperation {
            tenant: name.to_owned(),
            service: path.service,
            operation: path.operation,
            requests: path.requests,
            services: path.services.into_iter().map(service).collect(),
        }));
    }
    Some(proto::PathsReply { operations })
}
