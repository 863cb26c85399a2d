//! What became of the calls to each address, for people to look at.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Characters of a reason that are kept: others may have written it.
const REASON: usize = 200;

/// An address that is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallState {
    /// As it is configured: `host:port`.
    pub configured: String,
    /// Who replied there last.
    pub replied: Responder,
    /// Why the last call failed; `None` if it did not.
    pub problem: Option<String>,
}

/// Who replied at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Responder {
    /// Nobody so far.
    #[default]
    Nobody,
    /// This node itself, which is not called again.
    ThisNode,
    /// The node with this name.
    Node(Arc<str>),
}

/// All addresses that are called. It is written when something changes, and not with each call.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<SocketAddr, CallState>>);

impl Calls {
    /// Each address, and what became of the calls to it.
    #[must_use]
    pub fn list(&self) -> Vec<(SocketAddr, CallState)> {
        self.lock().iter().map(|(address, called)| (*address, called.clone())).collect()
    }

    /// `address`, which `configured` stands for, is called from now on.
    pub(crate) fn begin(&self, address: SocketAddr, configured: String) {
        self.lock().insert(address, CallState { configured, ..CallState::default() });
    }

    /// `address` is not called any more.
    pub(crate) fn end(&self, address: SocketAddr) {
        self.lock().remove(&address);
    }

    /// Somebody replied at `address`.
    pub(crate) fn replied(&self, address: SocketAddr, who: Responder) {
        if let Some(called) = self.lock().get_mut(&address) {
            (called.replied, called.problem) = (who, None);
        }
    }

    /// A call to `address` failed.
    pub(crate) fn failed(&self, address: SocketAddr, why: &str) {
        if let Some(called) = self.lock().get_mut(&address) {
            called.problem = Some(why.chars().take(REASON).collect());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, CallState>> {
        // Nothing under this lock panics; if something did, the list would still be usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
