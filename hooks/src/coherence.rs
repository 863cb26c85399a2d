//! Kept whole everywhere or nowhere: what one node decides, all nodes do.
//!
//! Each node has a tail buffer with the spans of its own services. A trace is decided where something of it is seen: by the nodes that have the
//! frontend's spans (**leaders**) for what LMAPs say and for latency, by any node for an error or on a service's wish. Everyone else **follows**.
//!
//! | module | what |
//! | --- | --- |
//! | [`Member`] | one node among others: what to say to whom, and what comes of what is heard |
//! | [`Leader`] | what this node decided, held back until another node knows of it |
//! | [`Follower`] | what every node said lately, each thing once and in order, to be applied here and told on |
//! | [`Here`] | what is decided and heard, carried out on one tenant's traces |
//! | [`Pieces`] | paths whose entry span one node has and whose services another |
//! | [`Words`] | what nodes say to each other, bounded when it is read |
//!
//! *Protocol.* Every run of a node numbers what it says: decisions, verdicts of its LMAPs, pieces of paths. Two nodes exchange [`Words`]: which numbers
//! of whom each has (the digest), and what the other lacks by its last digest. So a message that is lost is said again, unasked, with the
//! next exchange; what a node said before it died is told on by whoever heard it; a node that comes back gets everything that is
//! remembered, with a note on what its predecessor had dealt with. No node is elected: of a frontend's replicas each node leads for the
//! traces that entered there, and an operation's entry at another replica is another trace.
//!
//! *Guarantee.* What is decided is released only when another node has it (or nobody is there to tell), so that no death of one node leaves the others
//! ignorant of what it kept. Whatever may be missing is marked: by a node that has dropped, evicted or forgotten its part; by a node
//! whose predecessor was killed, unless that had dealt with the decision two seconds before it was heard last (what it gave out later may not have left
//! it), or the trace began later; by the decider where a node was not told
//! as long as decisions are remembered. Nobody waits for a node that is silent longer than [`MemberSettings::patience`].
//!
//! *Cost.* A decision takes 46 bytes on the way to each node, and its reason once per message; about 120 bytes of memory on every node for
//! [`MemberSettings::remember`]. A verdict takes about 60 bytes a second for each service in alarm, whatever number of traces it has kept. A digest takes
//! 30 bytes for each run of the last minutes, in every message. With everything (digests, paths, what was said twice), 10,000 traces a second
//! of which 39,000 were kept in a minute took 120 bytes for each of these and each node that was told (`tests/coherence`, the ignored one).

mod codec;
mod follower;
mod here;
mod item;
mod leader;
mod member;
mod pieces;
mod words;

pub use codec::{MAX_WORDS_BYTES, WordsError};
pub use follower::{Follower, Heard};
pub use here::{Here, Sent};
pub use item::{Asked, Decision, Entry, Item, KnownPath, Output, PathPiece, Run};
pub use leader::Leader;
pub use member::{Effect, HearError, Member, MemberCounts, MemberSettings};
pub use pieces::Pieces;
pub use words::{Digest, Said, Words};
