//! Stores each resource and scope once: spans of one origin are exported with the same bytes around them.

use std::collections::HashMap;
use std::sync::Arc;

use agent_runtime::shares::{ShareError, Shares};
use hooks::id::OriginId;
use wire::time::Nanos;

use crate::codec::{Group, identify};
use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::pod_senders::PodSender;

/// Bookkeeping bytes per origin, beside its own.
const COST: usize = 192;

/// What a request came with, beside what it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery<'a> {
    /// Headers to forward.
    pub(crate) forwarded: &'a ForwardedHeaders,
    /// The pod that sends for itself.
    pub(crate) pod: Option<&'a PodSender>,
    /// Whose share what is stored of it is of.
    pub(crate) holder: &'a Holder,
}

/// Resource, scope and forwarded headers of a span, as received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    bytes: Arc<[u8]>,
    /// Offset of the scope.
    scope: usize,
    /// Offset of the forwarded headers: the end of the scope.
    forwarded: usize,
    /// Offset of what names the sender: the end of the forwarded headers.
    sender: usize,
    holder: Holder,
    /// The resource with the attributes of the pod that sent it.
    identified: Option<Box<[u8]>>,
}

impl Origin {
    /// The `ResourceSpans` without its scopes, with what is known of the pod that sent it.
    pub(crate) fn resource(&self) -> &[u8] {
        self.identified.as_deref().unwrap_or(&self.bytes[HEAD..self.scope])
    }

    /// Bytes that it takes.
    fn cost(&self) -> u64 {
        (self.bytes.len() + self.identified.as_ref().map_or(0, |identified| identified.len()) + COST) as u64
    }

    /// The `ScopeSpans` without its spans.
    pub(crate) fn scope(&self) -> &[u8] {
        &self.bytes[self.scope..self.forwarded]
    }

    /// The client's forwarded headers, encoded.
    pub(crate) fn forwarded(&self) -> &[u8] {
        &self.bytes[self.forwarded..self.sender]
    }

    /// Whose share its items are of.
    pub(crate) const fn holder(&self) -> &Holder {
        &self.holder
    }
}

/// The key of an origin begins with the lengths of its resource and scope. Otherwise two origins that split the same
/// bytes elsewhere would collide.
const HEAD: usize = 2 * size_of::<u64>();

#[derive(Debug)]
struct OriginEntry {
    origin: Arc<Origin>,
    seen: Nanos,
}

/// Maps origins to ids and back. Bounded by bytes, of which one sender may have three times what is free: a client that
/// sends another resource with each request fills its share and no more.
#[derive(Debug)]
pub(crate) struct Origins {
    shares: Shares<Holder>,
    refusal: Option<ShareError<Holder>>,
    ids: HashMap<Arc<[u8]>, OriginId>,
    by_id: HashMap<OriginId, OriginEntry>,
    last: u32,
    scratch: (Vec<u8>, Vec<u8>),
}

impl Origins {
    /// Empty; holds at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let shares = Shares::new("bytes of resources and scopes", "a limit of the program", limit as u64);
        let (ids, by_id) = (HashMap::new(), HashMap::new());
        Self { shares, refusal: None, ids, by_id, last: 0, scratch: Default::default() }
    }

    /// The id of the origin of `group`, which came with `delivery` at `now`. `None` if it is new and its sender
    /// has no room for it. Only a new one is given the attributes of its pod.
    pub(crate) fn id(&mut self, group: &Group<'_>, delivery: &Delivery<'_>, now: Nanos) -> Option<OriginId> {
        let Delivery { forwarded, pod, holder } = *delivery;
        let (key, piece) = &mut self.scratch;
        group.resource.copy(piece);
        key.clear();
        key.extend_from_slice(&(piece.len() as u64).to_le_bytes());
        key.extend_from_slice(&[0; HEAD / 2]);
        key.extend_from_slice(piece);
        let scope = key.len();
        group.scope.copy(piece);
        key[HEAD / 2..HEAD].copy_from_slice(&(piece.len() as u64).to_le_bytes());
        key.extend_from_slice(piece);
        let end = key.len();
        key.extend_from_slice(forwarded.bytes());
        let sender = key.len();
        holder.write(key);
        if let Some(pod) = pod {
            key.extend_from_slice(&pod.fingerprint().to_le_bytes());
        }
        if let Some(id) = self.ids.get(key.as_slice()) {
            if let Some(known) = self.by_id.get_mut(id) {
                known.seen = now;
            }
            return Some(*id);
        }
        let identified = pod.map(|pod| identify(&key[HEAD..scope], pod.attributes()).into());
        let bytes: Arc<[u8]> = key.as_slice().into();
        let (holder, forwarded) = (holder.clone(), end);
        let origin = Origin { bytes: Arc::clone(&bytes), scope, forwarded, sender, holder, identified };
        if let Err(error) = self.shares.take(origin.holder.clone(), origin.cost()) {
            self.refusal = Some(error);
            return None;
        }
        let (id, origin) = (self.next(), Arc::new(origin));
        self.ids.insert(bytes, id);
        self.by_id.insert(id, OriginEntry { origin, seen: now });
        Some(id)
    }

    /// The origin with this `id`; `None` if it was forgotten.
    pub(crate) fn get(&self, id: OriginId) -> Option<Arc<Origin>> {
        self.by_id.get(&id).map(|known| Arc::clone(&known.origin))
    }

    /// Forgets origins that were not seen for `age` before `now`; `age` is longer than spans wait.
    pub(crate) fn forget(&mut self, age: Nanos, now: Nanos) {
        let (ids, shares) = (&mut self.ids, &mut self.shares);
        self.by_id.retain(|_, known| {
            let kept = now.since(known.seen).is_none_or(|unseen| unseen < age);
            if !kept {
                ids.remove(&known.origin.bytes);
                shares.release(&known.origin.holder, known.origin.cost());
            }
            kept
        });
    }

    /// Memory of all origins in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.shares.used() as usize
    }

    /// The last refusal since the last call.
    pub(crate) const fn take_refusal(&mut self) -> Option<ShareError<Holder>> {
        self.refusal.take()
    }

    /// An unused id. After 2^32 origins the first ones are long forgotten.
    fn next(&mut self) -> OriginId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = OriginId(self.last);
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::id::Owner;

    use crate::codec::scan;

    use super::*;

    /// A request of one span; `resource` and `scope` are the schema URLs.
    fn request(resource: &str, scope: &str) -> Vec<u8> {
        let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        let span = [field(1, &[1; 16]), field(2, &[1; 8])].concat();
        let scope = [field(2, &span), field(3, scope.as_bytes())].concat();
        field(1, &[field(2, &scope), field(3, resource.as_bytes())].concat())
    }

    fn id(origins: &mut Origins, request: &[u8], now: Nanos) -> Option<OriginId> {
        id_with(origins, request, &ForwardedHeaders::default(), now)
    }

    fn id_with(origins: &mut Origins, request: &[u8], forwarded: &ForwardedHeaders, now: Nanos) -> Option<OriginId> {
        let mut found = None;
        let delivery = Delivery { forwarded, pod: None, holder: &Holder::AGENT };
        scan(request, |group, _| found = origins.id(group, &delivery, now)).unwrap();
        found
    }

    #[test]
    fn the_same_surroundings_have_one_id_until_they_are_forgotten() {
        let mut origins = Origins::new(10_000);
        let first = id(&mut origins, &request("a", "b"), Nanos(0)).unwrap();

        assert_eq!(id(&mut origins, &request("a", "b"), Nanos(5)), Some(first));
        let other = id(&mut origins, &request("ab", ""), Nanos(5)).unwrap();
        assert_ne!(first, other);
        let origin = origins.get(first).unwrap();
        assert_eq!((origin.resource(), origin.scope()), (&[26, 1, b'a'][..], &[26, 1, b'b'][..]));

        origins.forget(Nanos(10), Nanos(14));
        assert!(origins.get(first).is_some());
        origins.forget(Nanos(10), Nanos(15));
        assert!(origins.get(first).is_none());
        assert_eq!(origins.bytes(), 0);
        assert_ne!(id(&mut origins, &request("a", "b"), Nanos(20)), Some(first));
    }

    #[test]
    fn what_comes_with_other_headers_is_of_another_origin() {
        let mut origins = Origins::new(10_000);
        let mut id = |scope: &str, forwarded: &[u8]| {
            id_with(&mut origins, &request("a", scope), &ForwardedHeaders::from_bytes(forwarded), Nanos(0)).unwrap()
        };
        let (first, other, none) = (id("b", b"x:1\n"), id("b", b"x:2\n"), id("b", b""));

        assert!(first != other && other != none && first != none);
        assert_eq!(id("b", b"x:1\n"), first);
        let origin = origins.get(first).unwrap();
        assert_eq!((origin.scope(), origin.forwarded()), (&[26, 1, b'b'][..], &b"x:1\n"[..]));
    }

    #[test]
    fn the_same_resource_from_another_pod_is_of_another_origin_and_names_its_pod() {
        let mut origins = Origins::new(10_000);
        let pod = |name: &'static str| PodSender::new("shop/payment", name, [("k8s.pod.name", name)].into_iter());
        let mut from = |pod: Option<&PodSender>| {
            let mut found = None;
            let headers = ForwardedHeaders::from_bytes(b"x:1\n");
            let delivery = Delivery { forwarded: &headers, pod, holder: &Holder::AGENT };
            scan(&request("a", "b"), |group, _| found = origins.id(group, &delivery, Nanos(0))).unwrap();
            found.unwrap()
        };
        let ids = [from(Some(&pod("p"))), from(Some(&pod("q"))), from(None)];

        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!(from(Some(&pod("p"))), ids[0]);
        let [first, .., plain] = ids.map(|id| origins.get(id).unwrap());
        assert_eq!((first.forwarded(), plain.forwarded()), (&b"x:1\n"[..], &b"x:1\n"[..]));
        assert_eq!((first.scope(), plain.resource()), (plain.scope(), &[26, 1, b'a'][..]));
        assert!(first.resource().windows(14).any(|text| text == b"k8s.pod.name\x12\x03"), "{:?}", first.resource());
        origins.forget(Nanos(1), Nanos(5));
        assert_eq!(origins.bytes(), 0);
    }

    #[test]
    fn what_draws_another_resource_each_time_fills_its_room_and_no_more() {
        let mut origins = Origins::new(2_000);
        let taken: Vec<_> = (0..100).map(|n| id(&mut origins, &request(&n.to_string(), ""), Nanos(0))).collect();

        assert!(taken[0].is_some() && taken[99].is_none());
        assert!(origins.bytes() <= 2_000);
        // Known origins stay usable.
        assert_eq!(id(&mut origins, &request("0", ""), Nanos(1)), taken[0]);
    }

    #[test]
    fn what_one_sender_fills_leaves_room_for_another_with_the_same_resource() {
        let mut origins = Origins::new(4_000);
        let mut from = |uid: u32, resource: &str| {
            let holder = Holder::Owner(Owner::User(uid));
            let delivery = Delivery { forwarded: &ForwardedHeaders::default(), pod: None, holder: &holder };
            let mut found = None;
            scan(&request(resource, ""), |group, _| found = origins.id(group, &delivery, Nanos(0))).unwrap();
            found
        };
        let flood: Vec<_> = (0..100).map(|number| from(7, &number.to_string())).collect();
        let (first, other) = (flood[0].unwrap(), from(8, "0").unwrap());

        assert!(flood[99].is_none() && first != other);
        let refusal = origins.take_refusal().unwrap().to_string();
        assert!(refusal.contains("user 7 has most"), "{refusal}");
        assert_eq!(origins.get(other).unwrap().holder(), &Holder::Owner(Owner::User(8)));
        origins.forget(Nanos(1), Nanos(5));
        assert_eq!(origins.bytes(), 0);
    }
}
