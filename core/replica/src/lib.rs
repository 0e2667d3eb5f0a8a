//! One replicated, durable log and its key-value view
