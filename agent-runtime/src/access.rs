//! Who is at the other end of a connection, and what they may do there.
//!
//! | role | may |
//! | --- | --- |
//! | worker | fetch regions, and send verdicts about them |
//! | operator | change LMAPs, register hooks, have traces kept; everything a viewer may |
//! | viewer | read status, lists, rows, receipt |
//! | peer | be the host agent of another node, under a name in its certificate; measure delay with a NIC agent |
//!
//! On one machine, the kernel says which user and groups a peer has. Over TCP, a certificate does. Root and the agent's
//! own user have every role. A peer that is nobody in particular (plain TCP, which `insecure: true` allows) has every
//! role, too: that is what the word is for. An account of a cluster has no role here: its cluster says what it may.

mod cgroup;
mod identity;
mod peer;

use core::fmt;

use nix::unistd::{Group, User};
use serde::Deserialize;

pub use cgroup::is_below;
pub use identity::Identity;
pub use peer::{Peer, peer, peer_process};

/// A name in a certificate (URI) that gives a role: `uview:worker`, `uview:operator`, `uview:viewer` or `uview:peer`.
pub(crate) const ROLE_SCHEME: &str = "uview:";

/// Longest name of a certificate that a refusal repeats: that of a host has 253 characters at most.
const MAX_LISTED: usize = 253;

/// The group that may read, unless the configuration says otherwise.
const DEFAULT_VIEWERS: &str = "uview";

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A NIC agent: fetches regions, sends verdicts.
    Worker,
    /// Changes LMAPs, registers hooks, has traces kept, and reads.
    Operator,
    /// Reads, and changes nothing.
    Viewer,
    /// The host agent of another node, or a NIC agent with which this one measures.
    Peer,
}

impl Role {
    /// All roles, as they are listed in the configuration.
    pub const ALL: [Self; 4] = [Self::Worker, Self::Operator, Self::Viewer, Self::Peer];

    /// Name in messages and in certificates.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Peer => "peer",
        }
    }

    /// The full key of its members in the configuration.
    pub(crate) fn access_key(self) -> String {
        format!("access.{}", self.key())
    }

    /// Key of its members in the configuration.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Worker => "workers",
            Self::Operator => "operators",
            Self::Viewer => "viewers",
            Self::Peer => "peers",
        }
    }
}

/// The name of a user; `None` if the system does not know it.
fn user_name(uid: u32) -> Option<String> {
    User::from_uid(uid.into()).ok().flatten().map(|user| user.name)
}

/// Who has which role on this node. Root and the agent's own user have every role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Who may be a NIC agent.
    pub workers: Members,
    /// Who may change LMAPs and register hooks.
    pub operators: Members,
    /// Who may read.
    pub viewers: Members,
    /// Who may be the host agent of another node, or measure with this NIC agent. Only certificates count: they connect
    /// over TCP.
    pub peers: Members,
}

impl Default for AccessConfig {
    fn default() -> Self {
        let viewers = Members { groups: vec![NameOrId::Name(DEFAULT_VIEWERS.to_owned())], ..Members::default() };
        Self { workers: Members::default(), operators: Members::default(), viewers, peers: Members::default() }
    }
}

impl AccessConfig {
    /// The members that have `role` by themselves.
    #[must_use]
    pub const fn members(&self, role: Role) -> &Members {
        match role {
            Role::Worker => &self.workers,
            Role::Operator => &self.operators,
            Role::Viewer => &self.viewers,
            Role::Peer => &self.peers,
        }
    }

    /// All users and groups with `role` that this system does not know.
    #[must_use]
    pub fn unknown_names(&self, role: Role) -> Vec<UnknownName> {
        let members = self.members(role);
        let user = |name: &NameOrId| resolve_user(role, name).err();
        let group = |name: &NameOrId| resolve_group(role, name).err();
        members.users.iter().filter_map(user).chain(members.groups.iter().filter_map(group)).collect()
    }
}

/// Users, groups and certificates that have a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Members {
    /// Users of this machine, by name or number.
    pub users: Vec<NameOrId>,
    /// Groups of this machine, by name or number.
    pub groups: Vec<NameOrId>,
    /// DNS names or URIs of certificates.
    pub certificates: Vec<String>,
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("root, the agent's user")?;
        for (kind, names) in [("user", &self.users), ("group", &self.groups)] {
            names.iter().try_for_each(|name| write!(f, ", {kind} {name}"))?;
        }
        self.certificates.iter().try_for_each(|name| write!(f, ", certificate {name}"))
    }
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum NameOrId {
    /// A user or group number.
    Id(u32),
    /// A user or group name.
    Name(String),
}

impl fmt::Display for NameOrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// A user or a group that this system does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access.{role}.{kind} names {name:?}, which this system does not know: create it, or leave it out")]
pub struct UnknownName {
    role: &'static str,
    kind: &'static str,
    name: String,
}

impl UnknownName {
    /// The full name of its key in the configuration.
    #[must_use]
    pub fn key(&self) -> String {
        format!("access.{}.{}", self.role, self.kind)
    }

    /// The name that the system does not know.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the default group of viewers, which need not exist.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.role == Role::Viewer.key() && self.kind == "groups" && self.name == DEFAULT_VIEWERS
    }

    fn new(role: Role, kind: &'static str, name: &str) -> Self {
        Self { role: role.key(), kind, name: name.to_owned() }
    }
}

fn resolve_user(role: Role, user: &NameOrId) -> Result<u32, UnknownName> {
    match user {
        NameOrId::Id(id) => Ok(*id),
        NameOrId::Name(name) => {
            let found = User::from_name(name).ok().flatten();
            found.map(|user| user.uid.as_raw()).ok_or_else(|| UnknownName::new(role, "users", name))
        }
    }
}

fn resolve_group(role: Role, group: &NameOrId) -> Result<u32, UnknownName> {
    match group {
        NameOrId::Id(id) => Ok(*id),
        NameOrId::Name(name) => {
            let found = Group::from_name(name).ok().flatten();
            found.map(|group| group.gid.as_raw()).ok_or_else(|| UnknownName::new(role, "groups", name))
        }
    }
}

/// Members with names resolved to numbers.
#[derive(Clone, Debug, Default)]
struct RoleMembers {
    users: Vec<u32>,
    groups: Vec<u32>,
    certificates: Vec<String>,
}

impl RoleMembers {
    fn resolve(role: Role, members: &Members) -> Result<Self, UnknownName> {
        let groups = members.groups.iter().map(|group| resolve_group(role, group));
        Ok(Self {
            users: members.users.iter().map(|user| resolve_user(role, user)).collect::<Result<_, _>>()?,
            groups: groups
                .filter(|group| !group.as_ref().is_err_and(UnknownName::is_default))
                .collect::<Result<_, _>>()?,
            certificates: members.certificates.clone(),
        })
    }

    fn has(&self, role: Role, identity: &Identity) -> bool {
        match identity {
            Identity::Anyone => true,
            Identity::Account(_) => false,
            Identity::User { uid, groups } => {
                self.users.contains(uid) || groups.iter().any(|group| self.groups.contains(group))
            }
            Identity::Certificate(names) => names
                .iter()
                .any(|name| name.strip_prefix(ROLE_SCHEME) == Some(role.name()) || self.certificates.contains(name)),
        }
    }
}

/// Why somebody may not do something, and how to grant it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} may not {what}: it needs the role {role}. To grant it: {grant}", role = .role.name())]
pub struct Denied {
    who: String,
    what: &'static str,
    role: Role,
    grant: String,
}

/// Who has which role, with names resolved.
#[derive(Clone, Debug)]
pub struct Access {
    own_uid: u32,
    workers: RoleMembers,
    operators: RoleMembers,
    viewers: RoleMembers,
    peers: RoleMembers,
    config: AccessConfig,
}

impl Access {
    /// Resolves the names of users and groups. A group of viewers that this system does not have is left out if it is
    /// the default one (`uview`).
    ///
    /// # Errors
    ///
    /// [`UnknownName`] for a user or group that the configuration names and this system does not know.
    pub fn resolve(config: &AccessConfig) -> Result<Self, UnknownName> {
        Ok(Self {
            own_uid: nix::unistd::geteuid().as_raw(),
            workers: RoleMembers::resolve(Role::Worker, &config.workers)?,
            operators: RoleMembers::resolve(Role::Operator, &config.operators)?,
            viewers: RoleMembers::resolve(Role::Viewer, &config.viewers)?,
            peers: RoleMembers::resolve(Role::Peer, &config.peers)?,
            config: config.clone(),
        })
    }

    /// Whether `who` has `role`.
    #[must_use]
    pub fn has(&self, who: &Identity, role: Role) -> bool {
        if matches!(who, Identity::User { uid, .. } if *uid == 0 || *uid == self.own_uid) {
            return true;
        }
        match role {
            Role::Worker => self.workers.has(role, who),
            Role::Operator => self.operators.has(role, who),
            Role::Viewer => self.viewers.has(role, who) || self.operators.has(Role::Operator, who),
            Role::Peer => self.peers.has(role, who),
        }
    }

    /// Refuses `who` unless it has `role`. `what` completes "may not …".
    ///
    /// # Errors
    ///
    /// [`Denied`], which says how to grant the role.
    pub fn require(&self, who: &Identity, role: Role, what: &'static str) -> Result<(), Denied> {
        if self.has(who, role) {
            return Ok(());
        }
        let name = match who {
            Identity::User { uid, .. } => user_name(*uid),
            _ => None,
        };
        let who_is = name.map_or_else(|| who.to_string(), |name| format!("user {name}"));
        Err(Denied { who: who_is, what, role, grant: self.grant(who, role) })
    }

    /// The command, or the lines of the configuration, that give `who` the role.
    fn grant(&self, who: &Identity, role: Role) -> String {
        let (key, members) = (role.key(), self.config.members(role));
        match who {
            Identity::User { uid, .. } => {
                let user = user_name(*uid).unwrap_or_else(|| uid.to_string());
                match members.groups.first() {
                    Some(NameOrId::Name(group)) if Group::from_name(group).ok().flatten().is_none() => {
                        format!(
                            "groupadd --system {group} && usermod -aG {group} {user}, let the agent look it up again (SIGHUP), log in again"
                        )
                    }
                    Some(group) => format!("usermod -aG {group} {user}, then log in again"),
                    None => format!("`access: {{{key}: {{users: [{user}]}}}}` in the agent's configuration"),
                }
            }
            Identity::Certificate(_) | Identity::Account(_) | Identity::Anyone => {
                let uri = format!("a certificate with the URI {ROLE_SCHEME}{}", role.name());
                match listable(who) {
                    Some(name) => {
                        let line = format!("access: {{{key}: {{certificates: ['{name}']}}}}");
                        format!("`{line}` in the agent's configuration, or {uri}")
                    }
                    None => format!("{uri}, or its name in `access.{key}.certificates` of the agent's configuration"),
                }
            }
        }
    }
}

/// The first name of a certificate that can be listed between quotes as it is, and gives no role by itself.
fn listable(who: &Identity) -> Option<&str> {
    let Identity::Certificate(names) = who else { return None };
    let fits = |name: &&str| {
        let is_plain = name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '\'' | '`'));
        is_plain && (1..=MAX_LISTED).contains(&name.len()) && !name.starts_with(ROLE_SCHEME)
    };
    names.iter().map(String::as_str).find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Identity {
        Identity::User { uid, groups: groups.to_vec() }
    }

    #[test]
    fn the_default_group_of_viewers_need_not_exist_and_others_do() {
        let resolved = |text: &str| Access::resolve(&serde_saphyr::from_str(text).unwrap()).is_ok();
        // It may exist on the machine that runs the test, too.
        assert!(resolved("{viewers: {users: [7001], groups: [uview]}}"));
        assert!(!resolved("{viewers: {groups: [uview-of-nowhere]}}"));
        assert!(!resolved("{operators: {users: [nobody-at-all]}}"));
    }

    fn access(text: &str) -> Access {
        Access::resolve(&serde_saphyr::from_str(text).unwrap()).unwrap()
    }

    const ROLES: [Role; 4] = [Role::Worker, Role::Operator, Role::Viewer, Role::Peer];

    #[test]
    fn root_and_the_agents_own_user_may_do_everything_and_others_nothing() {
        let access = Access::resolve(&AccessConfig::default()).unwrap();

        for role in ROLES {
            assert!(access.has(&user(0, &[]), role) && access.has(&user(access.own_uid, &[]), role));
            assert!(!access.has(&user(54_321, &[54_321]), role), "{role:?}");
        }
    }

    #[test]
    fn a_role_comes_from_a_user_or_a_group_and_an_operator_may_read() {
        let access = access("{workers: {users: [7001]}, operators: {groups: [7002]}, viewers: {users: [7003]}}");

        let roles = |who: &Identity| ROLES.map(|role| access.has(who, role));
        assert_eq!(roles(&user(7001, &[])), [true, false, false, false]);
        assert_eq!(roles(&user(9999, &[1, 7002])), [false, true, true, false]);
        assert_eq!(roles(&user(7003, &[])), [false, false, true, false]);
    }

    #[test]
    fn a_certificate_has_the_roles_in_its_names_and_those_that_are_listed() {
        let access = access("{operators: {certificates: [alice.example]}, peers: {certificates: [node-7]}}");
        let holder = |names: &[&str]| Identity::of_certificate(names.iter().map(|name| (*name).to_owned()));

        let roles = |names: &[&str]| ROLES.map(|role| access.has(&holder(names), role));
        assert_eq!(roles(&["nic-1", "uview:worker"]), [true, false, false, false]);
        assert_eq!(roles(&["alice.example"]), [false, true, true, false]);
        assert_eq!(roles(&["uview:peer"]), [false, false, false, true]);
        assert_eq!(roles(&["node-7"]), [false, false, false, true]);
        assert_eq!(roles(&["mallory.example", "uview:workers", "uview:node/node-7"]), [false; 4]);
    }

    #[test]
    fn an_account_of_a_cluster_has_no_role_of_this_node() {
        let access = access("{operators: {certificates: ['system:serviceaccount:a:b'], users: [7001]}}");
        let account = Identity::Account("system:serviceaccount:a:b".to_owned());

        assert_eq!(ROLES.map(|role| access.has(&account, role)), [false; 4]);
    }

    #[test]
    fn names_of_nodes_are_the_dns_names_and_those_behind_the_scheme_and_no_roles() {
        let names = ["node-1", "uview:peer", "uview:node/node-2", "uview:other", "uview:node/uview:peer"];
        let identity = Identity::of_certificate(names.map(str::to_owned).into_iter());

        assert_eq!(identity.node_names().collect::<Vec<_>>(), ["node-1", "node-2", "uview:peer"]);
        assert_eq!(Identity::Anyone.node_names().count() + user(0, &[]).node_names().count(), 0);
    }

    #[test]
    fn a_refusal_says_who_what_and_how_to_grant_it() {
        let access = access("{operators: {groups: [7002]}}");

        let denied = access.require(&user(54_321, &[]), Role::Operator, "delete an LMAP").unwrap_err().to_string();

        assert!(denied.starts_with("user 54321 may not delete an LMAP: it needs the role operator."), "{denied}");
        assert!(denied.ends_with("usermod -aG 7002 54321, then log in again"), "{denied}");
        let denied = access.require(&user(54_321, &[]), Role::Worker, "be a worker").unwrap_err().to_string();
        assert!(denied.contains("`access: {workers: {users: [54321]}}`"), "{denied}");
        let stranger = Identity::Certificate(Vec::new());
        let denied = access.require(&stranger, Role::Viewer, "read the status").unwrap_err().to_string();
        assert!(denied.contains("uview:viewer"), "{denied}");
    }

    #[test]
    fn the_line_that_a_refused_certificate_gets_grants_it_the_role() {
        let holder = |names: &[&str]| Identity::of_certificate(names.iter().map(|name| (*name).to_owned()));
        let denied = |names: &[&str]| {
            let nobody = access("{}");
            nobody.require(&holder(names), Role::Worker, "be a worker").unwrap_err().to_string()
        };

        for names in [&["nic-1.example"][..], &["uview:viewer", "*.example"], &["a'b", "spiffe://shop/nic"]] {
            let denied = denied(names);
            let line = denied.split('`').nth(1).unwrap().strip_prefix("access: ").unwrap();
            assert!(access(line).has(&holder(names), Role::Worker), "{denied}");
            assert!(denied.ends_with("or a certificate with the URI uview:worker"), "{denied}");
        }
        // Others get the words.
        let long = "a".repeat(254);
        for names in [&["uview:viewer"][..], &["a'b", "a`b", "a\u{1b}b", "a b", "", long.as_str()]] {
            assert!(denied(names).contains("its name in `access.workers.certificates`"), "{names:?}");
        }
    }

    #[test]
    fn a_name_that_the_system_does_not_know_is_refused_with_its_key() {
        let config = serde_saphyr::from_str("{operators: {users: [nobody-of-that-name]}}").unwrap();

        let error = Access::resolve(&config).unwrap_err().to_string();

        assert!(error.contains("access.operators.users") && error.contains("nobody-of-that-name"), "{error}");
    }

    #[test]
    fn names_of_a_certificate_are_printed_without_control_characters() {
        let identity = Identity::Certificate(vec!["a\u{1b}[2J".to_owned()]);

        assert_eq!(identity.to_string(), "certificate a\\u{1b}[2J");
    }
}
