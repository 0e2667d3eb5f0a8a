//! Shards in slots on one flash device
