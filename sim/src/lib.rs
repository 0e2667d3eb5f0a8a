//! The whole cluster in one thread, from one seed
