//! One file per command.

pub mod backend;
pub mod cluster_create;
pub mod cluster_drive;
pub mod cluster_drive_add;
pub mod cluster_drive_remove;
pub mod cluster_host;
pub mod cluster_join_secret;
pub mod cluster_partition;
pub mod completion;
pub mod down;
pub mod fs_add;
pub mod fs_group_add;
pub mod fs_group_list;
pub mod fs_group_remove;
pub mod fs_group_update;
pub mod fs_list;
pub mod fs_remove;
pub mod fs_update;
pub mod man;
pub mod mount;
pub mod status;
pub mod status_rebuild;
pub mod umount;
pub mod up;
