//! Names, attributes and locks of partitions: against a plain tree, against lost, doubled and reordered
//! messages, against restarts, and with each rule of operations across partitions left out.

mod attributes;
mod check;
mod crowd;
mod filelocks;
mod model;
mod once;
mod sequence;
mod world;
