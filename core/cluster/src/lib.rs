//! Who is in, who owns what, at which term
