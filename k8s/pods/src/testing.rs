//! Pods for tests.

use std::collections::BTreeMap;

use crate::pod::{Pod, PodId, Stage};
use crate::scraping::ScrapeRequest;
use crate::workload::{Workload, WorkloadKind};

/// Id of the one container of [`pod`].
pub(crate) const ID: &str = "3fa85f6457174562b3fc2c963f66afa63fa85f6457174562b3fc2c963f66afa6";

/// A ready replica of `shop/payment`.
pub(crate) fn pod(number: u64) -> Pod {
    let id = format!("{number:032x}");
    Pod {
        id: PodId::new(&id).unwrap(),
        uid: id,
        namespace: "shop".to_owned(),
        name: format!("payment-{number}"),
        node: "node-1".to_owned(),
        workload: Workload { kind: WorkloadKind::Deployment, name: "payment".to_owned() },
        service: "shop/payment".to_owned(),
        version: "1".to_owned(),
        addresses: Vec::new(),
        containers: BTreeMap::from([(ID.to_owned(), "app".to_owned())]),
        container: Some("app".to_owned()),
        restarts: true,
        initial: Vec::new(),
        is_own: false,
        has_host_network: false,
        stage: Stage::Ready,
        runtime_class: String::new(),
        scrape: ScrapeRequest::None,
        labels: Box::default(),
        ports: Vec::new(),
    }
}
