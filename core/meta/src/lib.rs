//! Runs a partition: names, extents, packs, layers, quotas
