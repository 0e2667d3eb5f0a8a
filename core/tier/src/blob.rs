//! The bytes of an object, and its key.
