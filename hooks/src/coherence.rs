//! Keeps a trace whole on all nodes or on none: nodes gossip their decisions.
//!
//! Each node has a tail buffer with the spans of its own services. A node decides about a trace of which it has spans.
//! Nodes with spans of the frontend decide because of LMAPs and of latency; any node decides because of an error or on
//! request of a service. The other nodes follow.
//!
//! | module | what |
//! | --- | --- |
//! | [`Member`] | one node of the cluster: which message to send to which peer, what to do with a received one |
//! | [`PendingDecisions`] | decisions of this node, held back until another node has them |
//! | [`EntryLog`] | recent entries of all nodes: applied here once and in order, relayed to peers that lack them |
//! | [`Refusals`] | words of peers that were not believed |
//! | [`TenantTraces`] | carries out decisions and received entries on the traces of one tenant |
//! | [`PathJoin`] | joins, by trace, the entry span on one node with the services on others |
//! | [`GossipMessage`] | a message between two nodes; bounded when it is decoded |
//!
//! *Protocol.* Anti-entropy gossip. Every run of a node numbers its entries: decisions, verdicts of its LMAPs, pieces
//! of paths. Two nodes exchange [`GossipMessage`]s. A message carries a version vector (the sender's position in the
//! log of each run) and the entries that the receiver lacked by its last version vector. So a lost message needs no
//! retransmission: the next exchange carries its entries. Entries of a dead node are relayed by the nodes that received
//! them from it: what they have from each other they do not pass on. What a peer does not take is relayed again at the
//! idle interval. A restarted node gets everything that is still remembered, with a mark on the entries that its
//! predecessor had carried out. No node is elected: each replica of a frontend decides about the traces that entered
//! there, and an entry at another replica is another trace.
//!
//! *Trust.* A peer may lie, also one with a certificate. Every member keeps these properties, whatever others say:
//!
//! 1. A node is heard under a name that its connection's identity has ([`Speaker`]), and under no other.
//! 2. What this node takes of an honest node that speaks to it is not lessened by anybody else: only the run itself
//!    moves or clears its log, leaves, restarts and is acknowledged. What others relay of it ([`Member::receive`]) is
//!    carried out while it is silent, and stored nowhere; each relayer has a position of its own.
//! 3. What this node finds, and what other nodes find, selects the same traces whatever a node says that it has
//!    evicted: its level holds for its own verdicts ([`Member::peer_eviction_levels`]).
//! 4. What one peer can use up is bounded: decisions ([`MemberSettings::peer_decisions`]), memory
//!    ([`MemberSettings::memory`]), and space in messages.
//! 5. An honest member's message is accepted by every honest member.
//!
//! What a node has evicted only that node knows. So a trace that others select is kept without its spans, and it marks
//! the trace; a level that held for others' findings would obey a node that lies.
//!
//! A liar can have too much kept and marked, tell nodes different things about traces that it decides itself, and hide
//! what a restarted node may lack. What is not believed is counted and named ([`Refusals`]). Tested in
//! `tests/coherence` (a fourth member that lies) and by the fuzz target `gossip_member`.
//!
//! *Guarantee.* A decision is released only when another node has it, or when no other node is alive. So the death of
//! one node never leaves the others ignorant of what it kept. A trace that may be incomplete is marked: by a node that
//! dropped, evicted or forgot its spans; by a node whose predecessor was killed, unless that one had carried out the
//! decision two seconds before its last message (later exports may not have left it), or the trace began after the
//! restart; by the deciding node if a peer did not acknowledge the decision as long as decisions are remembered. No
//! node waits for a peer that has been silent longer than [`MemberSettings::lease`], nor longer than
//! [`MemberSettings::patience`].
//!
//! *Cost.* A decision takes 46 bytes to each node, and its reason once per message. It takes about 120 bytes of memory
//! on every node for [`MemberSettings::remember`]. A verdict takes about 60 bytes a second for each service in alarm,
//! whatever number of traces it has kept. A version vector takes 30 bytes for each run of the last minutes, in every
//! message. Measured with everything (version vectors, paths, entries sent twice): 10,000 traces a second, 39,000 of
//! them kept in a minute, took 120 bytes per kept trace and receiving node (`tests/coherence`, the ignored one).

mod allowance;
mod codec;
mod entry_log;
mod hearsay;
mod item;
mod levels;
mod member;
mod message;
mod path_join;
mod peer;
mod pending;
mod refusal;
mod relays;
mod settings;
mod speaker;
mod tenant;

pub use codec::{DecodeError, MAX_MESSAGE_BYTES};
pub use entry_log::EntryLog;
pub use item::{Decision, Entry, Item, KnownPath, OperationRef, PathPiece, Run, RunId, ServiceVerdict};
pub use member::{Effect, Member, MemberCounts, ReceiveError};
pub use message::{Entries, GossipMessage, VersionVector};
pub use path_join::PathJoin;
pub use pending::PendingDecisions;
pub use refusal::{Refusal, Refusals};
pub use settings::MemberSettings;
pub use speaker::Speaker;
pub use tenant::{Export, TenantTraces};
