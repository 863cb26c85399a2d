//! Kept items, grouped by the resource and scope that they came with, until they are requests for the upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::id::OriginId;

use crate::codec::Export;
use crate::export_buffer::Batch;
use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::origins::{Origin, Origins};

/// Items of one origin.
#[derive(Debug)]
struct Group {
    origin: Option<Arc<Origin>>,
    items: Vec<Box<[u8]>>,
}

/// Encoded items of one signal.
#[derive(Debug, Default)]
pub(crate) struct GroupedItems {
    groups: BTreeMap<OriginId, Group>,
    bytes: usize,
}

impl GroupedItems {
    /// Adds an encoded item of the origin `id`.
    pub(crate) fn add(&mut self, id: OriginId, item: &[u8], origins: &Origins) {
        let group = self.groups.entry(id).or_insert_with(|| Group { origin: origins.get(id), items: Vec::new() });
        group.items.push(item.into());
        self.bytes += item.len();
    }

    /// Bytes of all items.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drains them into a request for each client's headers, which must not be sent with another client's items, and
    /// for each holder, whose share of the queue they are of. `more` items have a resource, no headers, and are the
    /// agent's.
    pub(crate) fn drain(&mut self, more: &[Vec<u8>], resource: &[u8]) -> impl Iterator<Item = Batch> + use<> {
        let mut exports: BTreeMap<(ForwardedHeaders, Holder), Export> = BTreeMap::new();
        for group in core::mem::take(&mut self.groups).into_values() {
            let items: Vec<&[u8]> = group.items.iter().map(|item| &**item).collect();
            let origin = group.origin.as_deref();
            let (resource, scope) = origin.map_or_else(Default::default, |o| (o.resource(), o.scope()));
            let forwarded = ForwardedHeaders::from_bytes(origin.map_or_else(Default::default, Origin::forwarded));
            let holder = origin.map_or(Holder::AGENT, |origin| origin.holder().clone());
            exports.entry((forwarded, holder)).or_default().add(resource, scope, &items);
        }
        if !more.is_empty() {
            let items: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
            exports.entry((ForwardedHeaders::default(), Holder::AGENT)).or_default().add(resource, &[], &items);
        }
        self.bytes = 0;
        exports.into_iter().map(|((forwarded, holder), export)| {
            let (request, spans) = (export.bytes().to_vec(), export.spans());
            Batch { request, spans, forwarded, holder }
        })
    }
}
