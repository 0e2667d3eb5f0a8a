//! Simulated disks.
