//! One host: the thin shell that runs drives, replicas and partitions
