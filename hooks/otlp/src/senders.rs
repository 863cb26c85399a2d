//! Who may send spans in a service's name. Pure.
//!
//! A service that a rule names belongs to the senders that a rule lets be it. Spans of others pass on to the upstream
//! unchanged, and are not counted as that service's: neither in its metrics nor in its paths and latencies.

use core::fmt;
use core::net::IpAddr;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use agent_runtime::access::is_below;
use hyper::HeaderMap;
use subtle::ConstantTimeEq as _;
use wire::id::Owner;

use crate::holders::Holder;
use crate::pod_senders::{PodSender, SenderPod, is_of_pod};
use crate::tenants::{Network, TenantId, Tenants};

/// Header (or gRPC metadata) with a sender's token.
pub const TOKEN_HEADER: &str = "uview-token";
/// The name under which spans of senders that may not use their service's name are sampled.
pub const UNVERIFIED: &str = "_unverified";
/// OpenTelemetry's name for a service without `service.name`.
pub(crate) const UNKNOWN: &str = "unknown_service";
/// Services of one request that are named in a problem.
const NAMED: usize = 8;

/// A secret that a sender shows. Never printed; compared in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl Token {
    /// The token `secret`; `None` if it is empty, or a header cannot carry it.
    #[must_use]
    pub fn new(secret: &str) -> Option<Self> {
        let is_visible = !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic());
        is_visible.then(|| Self(secret.as_bytes().into()))
    }

    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Lets some senders use the names of services. One of its conditions is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderRule {
    /// Every sender fits.
    pub anyone: bool,
    /// Processes of this user, that connect from this machine. With a cgroup, they have to be in it, too.
    pub uid: Option<u32>,
    /// Processes of this machine that connected while they were in or below this cgroup (v2 path).
    pub cgroup: Option<String>,
    /// Senders with these addresses.
    pub peers: Vec<Network>,
    /// Senders that show this token.
    pub token: Option<Token>,
    /// The services; any if `None`.
    pub services: Option<Vec<String>>,
}

/// Who sent a request. It is judged by the rules from which its token is known, and by no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The agent itself, for a service that registered, and whose that is.
    Agent(Owner),
    /// A client, and the first rule whose token it showed.
    Peer(Peer),
}

/// A client, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    pub(crate) uid: Option<u32>,
    /// Path of its cgroup, if a rule names that, or one above it.
    pub(crate) cgroup: Option<Arc<str>>,
    /// Place of the first rule whose token it showed.
    pub(crate) token: Option<usize>,
    pub(crate) pod: SenderPod,
    /// Whose share its connection is of.
    pub(crate) holder: Holder,
}

impl Sender {
    /// The pod that sends for itself.
    pub(crate) const fn pod(&self) -> Option<&Arc<PodSender>> {
        match self {
            Self::Peer(Peer { pod: SenderPod::Pod(pod), .. }) => Some(pod),
            _ => None,
        }
    }

    /// Whether pods are watched, and this is none of them.
    const fn is_no_pod(&self) -> bool {
        matches!(self, Self::Peer(Peer { pod: SenderPod::Nobody, .. }))
    }

    /// Whose share its requests are of: a pod's own, wherever it connects from.
    pub(crate) fn holder(&self) -> Holder {
        match self {
            Self::Agent(owner) => Holder::Owner(*owner),
            Self::Peer(Peer { pod: SenderPod::Pod(pod), .. }) => Holder::Pod(Arc::clone(pod.title())),
            Self::Peer(peer) => peer.holder.clone(),
        }
    }

    /// Its address, or `agent`.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Agent(_) => "agent".to_owned(),
            Self::Peer(peer) => peer.address.to_canonical().to_string(),
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Peer(Peer { address, uid, cgroup, pod, .. }) = self else { return f.write_str("the agent") };
        if let SenderPod::Pod(pod) = pod {
            return write!(f, "pod {}", pod.title());
        }
        let address = address.to_canonical();
        match uid {
            Some(uid) => write!(f, "user {uid}")?,
            None if address.is_loopback() => write!(f, "an unknown user")?,
            None => return write!(f, "{address}"),
        }
        if let Some(cgroup) = cgroup {
            write!(f, " in {cgroup}")?;
        }
        write!(f, " ({address})")
    }
}

/// All rules, by service.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SenderRules {
    rules: Vec<SenderRule>,
    /// Rules that name a service.
    owned: HashMap<Box<str>, Vec<usize>>,
    /// Rules for any service.
    general: Vec<usize>,
}

impl SenderRules {
    /// The table of `rules`.
    #[must_use]
    pub fn new(rules: &[SenderRule]) -> Self {
        let mut table = Self { rules: rules.to_vec(), ..Self::default() };
        for (place, rule) in rules.iter().enumerate() {
            match &rule.services {
                None => table.general.push(place),
                Some(services) => {
                    for service in services {
                        table.owned.entry(service.as_str().into()).or_default().push(place);
                    }
                }
            }
        }
        table
    }

    /// Whether owners of senders' sockets have to be known.
    pub(crate) fn need_owners(&self) -> bool {
        !self.owned.is_empty() && self.rules.iter().any(|rule| rule.uid.is_some() || rule.cgroup.is_some())
    }

    /// Whether cgroups of senders have to be known.
    pub(crate) fn need_cgroups(&self) -> bool {
        !self.owned.is_empty() && self.rules.iter().any(|rule| rule.cgroup.is_some())
    }

    /// The cgroups that rules name; none if no service belongs to anybody.
    pub(crate) fn cgroups(&self) -> BTreeSet<&str> {
        let named = self.rules.iter().filter_map(|rule| rule.cgroup.as_deref());
        named.filter(|_| !self.owned.is_empty()).collect()
    }

    /// Whether a rule names `service`: then it belongs to somebody.
    pub(crate) fn is_owned(&self, service: &str) -> bool {
        self.owned.contains_key(service)
    }

    /// The first rule whose token is in `headers`.
    pub(crate) fn token(&self, headers: &HeaderMap) -> Option<usize> {
        let shown = headers.get(TOKEN_HEADER)?.as_bytes();
        self.rules.iter().position(|rule| rule.token.as_ref().is_some_and(|token| token.is(shown)))
    }

    /// Whether `sender` may use the name `service`. O(rules for that service); allocates nothing.
    pub(crate) fn may_send(&self, sender: &Sender, service: &str) -> bool {
        let Some(named) = self.owned.get(service) else { return true };
        named.iter().chain(&self.general).any(|place| self.fits(*place, sender))
    }

    fn fits(&self, place: usize, sender: &Sender) -> bool {
        let Some(rule) = self.rules.get(place) else { return false };
        let Sender::Peer(peer) = sender else { return true };
        let shown = peer.token.and_then(|place| self.rules.get(place)?.token.as_ref());
        rule.anyone
            || rule.has_process(peer)
            || rule.peers.iter().any(|network| network.holds(peer.address))
            || rule.token.is_some() && rule.token.as_ref() == shown
    }
}

impl SenderRule {
    /// Whether it names the process of `peer`: by its user, by its cgroup, or by both.
    fn has_process(&self, peer: &Peer) -> bool {
        let is_in = |above: &String| peer.cgroup.as_ref().is_some_and(|path| is_below(path, above));
        (self.uid.is_some() || self.cgroup.is_some())
            && self.uid.is_none_or(|uid| peer.uid == Some(uid))
            && self.cgroup.as_ref().is_none_or(is_in)
    }
}

/// Spans of one request that their sender may not send in their service's name.
#[derive(Debug)]
pub(crate) struct SenderCheck<'a> {
    rules: &'a SenderRules,
    tenants: &'a Tenants,
    tenant: TenantId,
    pub(crate) sender: Sender,
    /// Services by detector names, and how many spans. What is over the limit counts with the last one.
    pub(crate) refused: Vec<(String, u64)>,
}

impl<'a> SenderCheck<'a> {
    pub(crate) const fn new(rules: &'a SenderRules, tenants: &'a Tenants, tenant: TenantId, sender: Sender) -> Self {
        Self { rules, tenants, tenant, sender, refused: Vec::new() }
    }

    /// The service that everything from this sender is of, whatever it says: that of its pod. A tenant that is called
    /// as its namespace has another one of that name.
    pub(crate) fn service(&self) -> Option<Cow<'_, str>> {
        let service = self.sender.pod()?.service();
        let replaced = self.tenants.replacement_name(self.tenant, service);
        Some(replaced.map_or(Cow::Borrowed(service), Cow::Owned))
    }

    /// Whether a group of spans may be counted as the tenant's `service`. Names with a namespace are those of pods,
    /// unless a rule says whose they are.
    pub(crate) fn may_send(&self, service: &str) -> bool {
        let is_no_pod = self.sender.is_no_pod();
        if self.rules.owned.is_empty() && !is_no_pod {
            return true;
        }
        let name = self.tenants.detector_name(self.tenant, service);
        let own = service.strip_prefix(self.tenants.name(self.tenant)).and_then(|rest| rest.strip_prefix('/'));
        let is_others = is_no_pod && is_of_pod(own.unwrap_or(service)) && !self.rules.owned.contains_key(&*name);
        !is_others && self.rules.may_send(&self.sender, &name)
    }

    /// Counts one span of `service` that may not.
    pub(crate) fn refuse(&mut self, service: &str) {
        let name = self.tenants.detector_name(self.tenant, service);
        let is_full = self.refused.len() >= NAMED;
        let known = self.refused.iter().position(|(known, _)| **known == *name);
        match known.or(is_full.then_some(NAMED - 1)) {
            Some(place) => self.refused[place].1 += 1,
            None => self.refused.push((name.into_owned(), 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(services: &[&str]) -> SenderRule {
        let services = services.iter().map(ToString::to_string).collect();
        SenderRule { services: Some(services), ..SenderRule::default() }
    }

    fn peer(address: &str, uid: Option<u32>) -> Sender {
        Sender::Peer(Peer {
            address: address.parse().unwrap(),
            uid,
            cgroup: None,
            token: None,
            pod: SenderPod::Unwatched,
            holder: Holder::ThisMachine,
        })
    }

    #[test]
    fn a_name_belongs_to_those_that_a_rule_names_and_other_names_to_everybody() {
        let payment = SenderRule { uid: Some(0), ..rule(&["payment"]) };
        let cart = SenderRule { peers: vec!["10.1.0.0/16".parse().unwrap()], ..rule(&["cart", "payment"]) };
        let admin = SenderRule { uid: Some(7), ..SenderRule::default() };
        let rules = SenderRules::new(&[payment, cart, admin]);

        for (sender, service, allowed) in [
            (peer("127.0.0.1", Some(0)), "payment", true),
            (peer("127.0.0.1", Some(65_534)), "payment", false),
            (peer("127.0.0.1", None), "payment", false),
            (peer("127.0.0.1", Some(7)), "payment", true),
            (peer("10.1.2.3", None), "payment", true),
            (peer("::ffff:10.1.2.3", None), "cart", true),
            (peer("10.2.2.3", None), "cart", false),
            (peer("127.0.0.1", Some(0)), "cart", false),
            (peer("10.2.2.3", None), "frontend", true),
            (Sender::Agent(Owner::User(65_534)), "payment", true),
        ] {
            assert_eq!(rules.may_send(&sender, service), allowed, "{sender} {service}");
        }
        assert!(rules.need_owners());
        assert!(!SenderRules::new(&[rule(&["x"])]).need_owners());
    }

    #[test]
    fn a_rule_with_a_cgroup_fits_who_is_in_or_below_it_and_is_its_user_if_it_names_one() {
        let payment = SenderRule { cgroup: Some("/pods/payment".to_owned()), ..rule(&["payment"]) };
        let cart = SenderRule { uid: Some(7), cgroup: Some("/pods/".to_owned()), ..rule(&["cart"]) };
        let rules = SenderRules::new(&[payment, cart]);
        let may = |uid: Option<u32>, cgroup: Option<&str>, service: &str| {
            let (address, cgroup) = ("127.0.0.1".parse().unwrap(), cgroup.map(Arc::from));
            let (pod, holder) = (SenderPod::Unwatched, Holder::ThisMachine);
            rules.may_send(&Sender::Peer(Peer { address, uid, cgroup, token: None, pod, holder }), service)
        };

        for cgroup in ["/pods/payment", "/pods/payment/7"] {
            assert!(may(Some(1), Some(cgroup), "payment") && may(None, Some(cgroup), "payment"), "{cgroup}");
        }
        for cgroup in [None, Some("/"), Some("/pods"), Some("/pods/payment-2"), Some("/x/pods/payment")] {
            assert!(!may(Some(1), cgroup, "payment"), "{cgroup:?}");
        }
        assert!(may(Some(7), Some("/pods"), "cart") && may(Some(7), Some("/pods/a"), "cart"));
        assert!(!may(Some(7), None, "cart") && !may(Some(8), Some("/pods"), "cart") && !may(None, None, "cart"));
        assert_eq!(rules.cgroups().into_iter().collect::<Vec<_>>(), ["/pods/", "/pods/payment"]);
        assert!(rules.need_owners());
        let for_all = SenderRule { cgroup: Some("/a".to_owned()), ..SenderRule::default() };
        assert!(SenderRules::new(&[for_all]).cgroups().is_empty(), "no service belongs to anybody");
    }

    #[test]
    fn a_token_opens_the_rules_that_have_it_and_is_not_printed() {
        let with = |token: &str, service: &str| SenderRule { token: Token::new(token), ..rule(&[service]) };
        let rules = SenderRules::new(&[with("abc", "payment"), with("xyz", "cart"), with("abc", "shop")]);
        let shown = |token: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(TOKEN_HEADER, hyper::header::HeaderValue::from_static(token));
            let address = "10.0.0.1".parse().unwrap();
            Sender::Peer(Peer {
                address,
                uid: None,
                cgroup: None,
                token: rules.token(&headers),
                pod: SenderPod::Unwatched,
                holder: Holder::ThisMachine,
            })
        };

        let allowed = |token| ["payment", "cart", "shop"].map(|service| rules.may_send(&shown(token), service));
        assert_eq!(allowed("abc"), [true, false, true]);
        assert_eq!(allowed("xyz"), [false, true, false]);
        assert_eq!(allowed("abcd"), [false; 3]);
        assert_eq!(rules.token(&HeaderMap::new()), None);
        assert!(!format!("{rules:?}").contains("abc"));
        assert_eq!((Token::new(""), Token::new("a b"), Token::new("a\n")), (None, None, None));
    }

    #[test]
    fn spans_that_may_not_are_counted_by_service_for_a_few_services() {
        let tenants = Tenants::new(&[]).unwrap();
        let rules = SenderRules::new(&[rule(&["payment"])]);
        let mut check = SenderCheck::new(&rules, &tenants, 0, peer("127.0.0.1", Some(5)));

        assert!(check.may_send("cart") && !check.may_send("payment"));
        for number in 0..20 {
            check.refuse(&format!("service-{}", number / 2));
        }

        assert_eq!(check.refused.len(), NAMED);
        assert_eq!((&*check.refused[0].0, check.refused[0].1, check.refused[NAMED - 1].1), ("service-0", 2, 6));
    }

    #[test]
    fn a_pod_is_its_own_service_and_nobody_else_may_use_a_name_with_a_namespace() {
        let tenants =
            Tenants::new(&[crate::tenants::Tenant { name: "bank".to_owned(), ..Default::default() }]).unwrap();
        let rules = SenderRules::new(&[SenderRule { anyone: true, ..rule(&["shop/open"]) }]);
        let from = |pod: SenderPod| {
            let (address, holder) = ("10.1.0.7".parse().unwrap(), Holder::Address([10, 1, 0, 7].into()));
            Sender::Peer(Peer { address, uid: None, cgroup: None, token: None, pod, holder })
        };
        let of = |service: &str| SenderPod::Pod(Arc::new(PodSender::new(service, "p", core::iter::empty())));
        let check = |pod| SenderCheck::new(&rules, &tenants, 0, from(pod));

        let named = |service: &str| check(of(service)).service().map(Cow::into_owned);
        assert_eq!(named("shop/payment").as_deref(), Some("shop/payment"));
        assert_eq!(named("bank/teller").as_deref(), Some("default/bank/teller"), "not the tenant's");
        assert_eq!(from(of("shop/payment")).holder().to_string(), "pod p of shop/payment");
        assert_eq!(from(SenderPod::Forwarder).holder().to_string(), "10.1.0.7");
        for (pod, expected) in [
            (SenderPod::Nobody, [false, true, true]),
            (SenderPod::Forwarder, [true, true, true]),
            (SenderPod::Unwatched, [true, true, true]),
        ] {
            let check = check(pod.clone());
            assert_eq!(["shop/payment", "payment", "shop/open"].map(|name| check.may_send(name)), expected, "{pod:?}");
            assert_eq!(check.service(), None);
        }
        let tenant = SenderCheck::new(&rules, &tenants, 1, from(SenderPod::Nobody));
        assert_eq!(["bank/teller", "bank/shop/x"].map(|name| tenant.may_send(name)), [true, false]);
    }
}
