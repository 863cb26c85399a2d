//! Who is at the other end of a connection, as far as it says.

/// Whose words a connection may carry, as far as it says.
#[derive(Clone, Copy, Debug)]
pub enum Speaker<'a> {
    /// The holder of a certificate with these names: it may speak for nodes of these names, and for no other.
    Named(&'a [&'a str]),
    /// Anybody: the operator has opened the address to everybody (`coherence.insecure`). Nothing said under a name is
    /// known to come from its node.
    Anyone,
}

impl Speaker<'_> {
    /// Whether it may speak in the name of `node`.
    #[must_use]
    pub fn may_speak_for(self, node: &str) -> bool {
        match self {
            Self::Named(names) => names.contains(&node),
            Self::Anyone => true,
        }
    }
}
