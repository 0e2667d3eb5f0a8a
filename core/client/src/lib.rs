//! The file system as a library
