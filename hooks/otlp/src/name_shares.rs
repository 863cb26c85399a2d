//! Names of services within the shares of who brings them up: whoever invents many has no room left before others have
//! none. Pure.

use std::collections::HashMap;

use agent_runtime::shares::{ShareError, Shares};
use hooks::id::ServiceId;
use hooks::paths::Names;
use wire::time::Nanos;

use crate::holders::Holder;

/// Who brought up which services of a table of names. What came into it otherwise, such as by verdicts, is the agent's.
#[derive(Debug)]
pub(crate) struct NameShares {
    shares: Shares<Holder>,
    holders: HashMap<ServiceId, Holder>,
    refusal: Option<ShareError<Holder>>,
}

impl NameShares {
    /// Nobody has brought up a name. There are `limit` of them; `what` and the `key` of the configuration that sets it
    /// are for errors.
    pub(crate) fn new(what: &'static str, key: &'static str, limit: usize) -> Self {
        Self { shares: Shares::new(what, key, limit as u64), holders: HashMap::new(), refusal: None }
    }

    /// The id of the service `name`, seen at `now`, in `names`. If it is new, it is of the share of `holder`, and
    /// [`OTHER`](hooks::paths::OTHER) without room there. Allocates nothing for a name that is known.
    pub(crate) fn service(&mut self, names: &mut Names, name: &str, holder: &Holder, now: Nanos) -> ServiceId {
        if names.has_service(name) {
            return names.service(name, now);
        }
        let others = (names.services() as u64).saturating_sub(self.shares.used());
        self.shares.add(Holder::AGENT, others);
        if let Err(error) = self.shares.check(holder.clone(), 1) {
            self.refusal = Some(error);
            return names.other_service(now);
        }
        let id = names.service(name, now);
        // A name that cannot be used is of nobody.
        if names.service_name(id) == name {
            self.shares.add(holder.clone(), 1);
            self.holders.insert(id, holder.clone());
        }
        id
    }

    /// The names of `services` were forgotten.
    pub(crate) fn forget(&mut self, services: &[ServiceId]) {
        for service in services {
            let holder = self.holders.remove(service).unwrap_or(Holder::AGENT);
            self.shares.release(&holder, 1);
        }
    }

    /// The last refusal since the last call.
    pub(crate) const fn take_refusal(&mut self) -> Option<ShareError<Holder>> {
        self.refusal.take()
    }
}

#[cfg(test)]
mod tests {
    use hooks::paths::{NameLimits, OTHER};
    use proptest::prelude::*;
    use wire::id::Owner;

    use super::*;

    const LIMIT: usize = 64;
    const AGE: Nanos = Nanos::from_secs(3600);

    fn user(uid: u32) -> Holder {
        Holder::Owner(Owner::User(uid))
    }

    fn table() -> (NameShares, Names) {
        let names = Names::new(NameLimits { services: LIMIT, age: AGE, ..NameLimits::default() });
        (NameShares::new("names of services", "otlp.derived.services", LIMIT), names)
    }

    /// What `name` is called when `holder` brings it up.
    fn named(table: &mut (NameShares, Names), name: &str, holder: &Holder, now: Nanos) -> String {
        let (shares, names) = table;
        let id = shares.service(names, name, holder, now);
        names.service_name(id).to_owned()
    }

    #[test]
    fn whoever_invents_names_leaves_room_for_others_and_is_named() {
        let mut table = table();
        let now = Nanos::from_secs(1);
        let own = (0..1_000).filter(|n| named(&mut table, &format!("invented-{n}"), &user(7), now) != OTHER).count();

        assert_eq!(own, 48, "three quarters");
        let error = table.0.take_refusal().unwrap().to_string();
        assert!(error.contains("user 7 has most, 48") && error.contains("raise otlp.derived.services"), "{error}");
        assert_eq!(table.0.take_refusal(), None);
        assert_eq!(named(&mut table, "payment", &user(8), now), "payment");
        // A known name costs nobody anything.
        assert_eq!(named(&mut table, "invented-0", &user(8), now), "invented-0");
        assert_eq!(table.0.shares.held(&user(8)), 1);
    }

    #[test]
    fn names_that_are_forgotten_or_cannot_be_used_are_in_no_share() {
        let mut table = table();
        for name in ["", "a\nb", &"x".repeat(200)] {
            assert_eq!(named(&mut table, name, &user(7), Nanos::ZERO), OTHER);
        }
        assert_eq!(table.0.shares.held(&user(7)), 0);
        assert_eq!(named(&mut table, "a", &user(7), Nanos::ZERO), "a");
        // Of a verdict.
        table.1.service("b", Nanos::ZERO);
        assert_eq!(named(&mut table, "c", &user(7), Nanos::ZERO), "c");
        assert_eq!((table.0.shares.held(&user(7)), table.0.shares.held(&Holder::AGENT)), (2, 2), "_other and b");

        let forgotten = table.1.forget(AGE);
        table.0.forget(&forgotten.services);

        assert_eq!((table.0.shares.used(), table.0.holders.len()), (0, 0));
    }

    proptest! {
        /// Whatever comes and goes, the shares have as many names as the table, and there is room for a newcomer.
        #[test]
        fn a_newcomer_is_named_whatever_two_others_do(
            steps in prop::collection::vec((0..2_u32, 0..400_u32, 0..20_u64), 1..600),
        ) {
            let mut table = table();
            let mut now = Nanos::ZERO;
            for (uid, number, seconds) in steps {
                now = now.plus(Nanos::from_secs(seconds));
                named(&mut table, &format!("{uid}-{number}"), &user(uid), now);
                let forgotten = table.1.forget(now);
                table.0.forget(&forgotten.services);
            }
            prop_assert_eq!(named(&mut table, "newcomer", &user(99), now), "newcomer");
            prop_assert!(table.0.shares.used() <= LIMIT as u64 + 1);
            prop_assert_eq!(table.1.services() as u64, table.0.shares.used());
        }
    }
}
