//! The FUSE door: translates kernel requests to client calls
