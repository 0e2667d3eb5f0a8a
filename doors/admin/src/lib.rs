//! REST, events and metrics
