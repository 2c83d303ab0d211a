//! Where a node asks for its slot, and as whom.

/// Where a node asks for its slot, and as whom: what a person needs to find it at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotPlace {
    /// The server, without what is secret in its URL.
    pub server: String,
    /// The group.
    pub group: String,
    /// The id; `None` while the machine id cannot be read.
    pub id: Option<String>,
}
