//! Starts here.
fn main() {}
