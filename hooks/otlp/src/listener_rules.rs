//! Who may be scraped as which service: whoever listens is judged as a sender of spans is, by the same rules.

use agent_runtime::reload::Reloadable;
use agent_runtime::socket_owner::Listener;
use wire::time::Nanos;

use crate::cgroups::Cgroups;
use crate::holders::Holder;
use crate::pod_senders::SenderPod;
use crate::senders::{Peer, Sender, SenderRules};

/// Rules about listeners that are scraped.
#[derive(Debug)]
pub struct ListenerRules {
    rules: Reloadable<SenderRules>,
    cgroups: Cgroups,
}

/// Whoever listens may not be the service, by the rules of now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} listens there, and services.identities gives the name to others")]
pub struct ForeignListener(String);

impl ListenerRules {
    /// Those of `rules`, as they are at each look.
    #[must_use]
    pub fn new(rules: Reloadable<SenderRules>) -> Self {
        Self { rules, cgroups: Cgroups::of_this_machine() }
    }

    /// Whether a page of `listener` may have values of `service` at `now`: no rule names the service, or one that fits
    /// the listener lets it. `None`: nobody knows who listens.
    ///
    /// # Errors
    ///
    /// [`ForeignListener`] if the name belongs to others.
    pub async fn check(&self, listener: Option<Listener>, service: &str, now: Nanos) -> Result<(), ForeignListener> {
        let rules = self.rules.load();
        if !rules.is_owned(service) {
            return Ok(());
        }
        let Some(Listener { address, owner }) = listener else {
            return Err(ForeignListener("nobody known".to_owned()));
        };
        let cgroup = match owner.and_then(|owner| owner.cgroup).filter(|_| rules.need_cgroups()) {
            Some(id) => self.cgroups.path(id, &rules, now).await,
            None => None,
        };
        let uid = owner.map(|owner| owner.uid);
        // It is scraped and sends nothing: it holds nothing.
        let (pod, holder) = (SenderPod::Unwatched, Holder::ThisMachine);
        let sender = Sender::Peer(Peer { address, uid, cgroup, token: None, pod, holder });
        if rules.may_send(&sender, service) { Ok(()) } else { Err(ForeignListener(sender.to_string())) }
    }
}

#[cfg(test)]
mod tests {
    use agent_runtime::socket_owner::SocketOwner;

    use super::*;
    use crate::senders::SenderRule;

    #[tokio::test]
    async fn a_name_that_a_rule_has_is_that_of_listeners_that_fit_one_and_other_names_are_everybodys() {
        let rule = |service: &str| SenderRule { services: Some(vec![service.to_owned()]), ..SenderRule::default() };
        let payment = SenderRule { uid: Some(7), ..rule("payment") };
        let cart = SenderRule { peers: vec!["10.1.0.0/16".parse().unwrap()], ..rule("cart") };
        let live = Reloadable::new(SenderRules::new(&[payment, cart]));
        let listeners = ListenerRules::new(live.clone());
        let at = |address: &str, uid: Option<u32>| {
            let owner = uid.map(|uid| SocketOwner { uid, cgroup: None });
            Some(Listener { address: address.parse().unwrap(), owner })
        };
        let check = async |listener: Option<Listener>, service: &'static str| {
            listeners.check(listener, service, Nanos(0)).await.map_err(|foreign| foreign.to_string())
        };
        let others = |who: &str| Err(format!("{who} listens there, and services.identities gives the name to others"));

        for (listener, service, expected) in [
            (at("127.0.0.1", Some(7)), "payment", Ok(())),
            (at("127.0.0.1", Some(8)), "payment", others("user 8 (127.0.0.1)")),
            (at("127.0.0.1", None), "payment", others("an unknown user (127.0.0.1)")),
            (at("10.1.2.3", None), "payment", others("10.1.2.3")),
            (at("10.1.2.3", None), "cart", Ok(())),
            (at("10.2.2.3", None), "cart", others("10.2.2.3")),
            (None, "cart", others("nobody known")),
            (None, "frontend", Ok(())),
        ] {
            assert_eq!(check(listener, service).await, expected, "{listener:?} {service}");
        }
        live.replace(SenderRules::new(&[]));
        assert_eq!(check(at("127.0.0.1", Some(8)), "payment").await, Ok(()), "by the rules of now");
    }
}
