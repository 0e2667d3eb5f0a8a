//! Partition <-> partition. May be lost, late or doubled; every message is safe to repeat.

/// A message between partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMsg {}
