//! The words of the command line. A noun alone lists; verbs follow it.

use std::ffi::OsString;
use std::io::{Write, stderr};
use std::process::ExitCode;

use braid_cluster::view::stores::Kind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::exit::{self, Outcome};
use crate::hide;
use crate::whole::Whole;

/// The tree of commands.
#[derive(Parser)]
#[command(name = "braid", version, about = "Braid: a distributed parallel file system", long_about = None)]
#[command(after_help = exit::HELP, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub whole: Whole,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Create a cluster in DIR on this machine, or continue it, and run it in one process
    Up(cmd::up::Up),
    /// Run this host's part of a cluster of several
    Backend(cmd::backend::Backend),
    /// Stop the cluster in DIR cleanly, or this host's part of one
    Down(cmd::down::Down),
    /// Show the cluster at a glance
    Status {
        #[command(subcommand)]
        noun: Option<StatusNoun>,
    },
    /// Make a cluster of several hosts; add, empty and remove hosts and drives; show them
    Cluster {
        #[command(subcommand)]
        noun: ClusterNoun,
    },
    /// Show what happened in the cluster, as its hosts have kept it
    #[command(after_help = cmd::events::MOMENTS)]
    Events {
        #[command(flatten)]
        events: cmd::events::Events,
        #[command(subcommand)]
        verb: Option<EventsVerb>,
    },
    /// List file systems; add, change and remove them
    #[command(visible_alias = "filesystem")]
    Fs {
        #[command(subcommand)]
        verb: Option<FsVerb>,
    },
    /// Read what a bucket holds without the cluster that wrote it, for the day that it is gone
    Bucket {
        #[command(subcommand)]
        verb: BucketVerb,
    },
    /// Mount a file system on a directory of this machine
    Mount(cmd::mount::Mount),
    /// Unmount
    Umount(cmd::umount::Umount),
    /// Print the completion script for a shell
    Completion(cmd::completion::Completion),
    /// Print the manual page, or write all pages into DIR
    Man(cmd::man::Man),
}

#[derive(Subcommand)]
pub enum ClusterNoun {
    /// Make a cluster of hosts whose `braid backend` waits for it
    Create(cmd::cluster_create::Create),
    /// Take more hosts in, whose `braid backend` waits for it
    Add(cmd::cluster_add::Add),
    /// Empty a host and take it out of the cluster
    #[command(visible_aliases = ["delete", "destroy"])]
    Remove(cmd::cluster_remove::Remove),
    /// Write back what etcd has lost, or has in an old form after a restore, by what the hosts have kept
    Recover(cmd::cluster_recover::Recover),
    /// Print a new join secret, for a cluster whose hosts and clients talk over TLS
    JoinSecret,
    /// List the hosts
    #[command(visible_aliases = ["hosts", "container", "containers"])]
    Host,
    /// List the drives; add and remove them
    #[command(visible_alias = "drives")]
    Drive {
        #[command(subcommand)]
        verb: Option<DriveVerb>,
    },
    /// List what fails together
    #[command(visible_alias = "failure-domains")]
    FailureDomain,
    /// Show or set how many failure domains have their room kept free
    HotSpare(cmd::cluster_hot_spare::HotSpare),
    /// Change how fast data is checked and made anew
    Update(cmd::cluster_update::Update),
    /// List the partitions of the namespace
    #[command(visible_alias = "partitions")]
    Partition,
}

#[derive(Subcommand)]
pub enum StatusNoun {
    /// Show what is being made anew after drives failed or are to be emptied
    Rebuild,
    /// List the parts of files that cannot be read because too few drives are left, or because their object is missing or
    /// damaged
    Lost,
}

#[derive(Subcommand)]
pub enum EventsVerb {
    /// Show what this host has kept
    #[command(after_help = cmd::events::MOMENTS)]
    Local(cmd::events::Events),
    /// List the types of events that there are
    Types,
    /// Tell an event of your own
    Trigger(cmd::events_trigger::Trigger),
}

#[derive(Subcommand)]
pub enum DriveVerb {
    /// Add a drive to the host that is asked
    #[command(visible_aliases = ["create", "new"])]
    Add(cmd::cluster_drive_add::Add),
    /// Empty a drive and take it out of the cluster
    #[command(visible_aliases = ["delete", "destroy", "deactivate"])]
    Remove(cmd::cluster_drive_remove::Remove),
    /// Keep a drive that is being emptied
    Activate(cmd::cluster_drive_activate::Activate),
}

#[derive(Subcommand)]
pub enum FsVerb {
    /// Add a file system
    #[command(visible_aliases = ["create", "new"])]
    Add(cmd::fs_add::Add),
    /// Change name, group or capacity of a file system
    Update(cmd::fs_update::Update),
    /// Remove a file system and everything in it
    #[command(visible_aliases = ["delete", "destroy"])]
    Remove(cmd::fs_remove::Remove),
    /// List groups of file systems; add, change and remove them
    #[command(visible_alias = "groups")]
    Group {
        #[command(subcommand)]
        verb: Option<GroupVerb>,
    },
    /// List the object stores that take cold data, set them up and attach them; show what is done and held there, and
    /// where files are
    Tier {
        #[command(subcommand)]
        kind: Option<TierKind>,
    },
}

#[derive(Subcommand)]
pub enum TierKind {
    /// Buckets that speak S3
    S3 {
        #[command(flatten)]
        which: cmd::fs_tier::Which,
        #[command(subcommand)]
        verb: Option<StoreVerb<cmd::fs_tier_s3::Add, cmd::fs_tier_s3::Update>>,
    },
    /// Containers of Azure Blob
    Azure {
        #[command(flatten)]
        which: cmd::fs_tier::Which,
        #[command(subcommand)]
        verb: Option<StoreVerb<cmd::fs_tier_azure::Add, cmd::fs_tier_azure::Update>>,
    },
    /// Directories
    Dir {
        #[command(flatten)]
        which: cmd::fs_tier::Which,
        #[command(subcommand)]
        verb: Option<StoreVerb<cmd::fs_tier_dir::Add, cmd::fs_tier_dir::Update>>,
    },
    /// Show what the hosts do at an object store, and what they did last
    #[command(visible_alias = "operations")]
    Ops(cmd::fs_tier_ops::Ops),
    /// Show what file systems hold in object stores, and how much of it is in use
    #[command(after_help = cmd::fs_tier_capacity::RECLAIMED)]
    Capacity(cmd::fs_tier_capacity::Capacity),
    /// Compare what lies in an object store with what the cluster knows of it
    #[command(after_help = cmd::fs_tier_audit::ABOUT)]
    Audit(cmd::fs_tier_audit::Audit),
    /// Show where files are: on flash, in objects, or both
    Location(cmd::fs_tier_location::Location),
    /// Bring files back to flash
    Fetch(cmd::fs_tier_fetch::Fetch),
    /// Give up the place of files on flash: what they hold is in objects only then
    Release(cmd::fs_tier_release::Release),
    /// Say where a file is and why, what a read of it costs, and when it moves next
    Explain(cmd::fs_tier_explain::Explain),
}

/// What is done to object stores, of whatever kind; adding and changing depend on it.
#[derive(Subcommand)]
pub enum StoreVerb<A: Args, U: Args> {
    /// Add a store, after trying it: an object of one byte is written, read and removed
    #[command(visible_aliases = ["create", "new"], after_help = cmd::fs_tier_words::SECRETS)]
    Add(Box<A>),
    /// Change a store; what is not named stays. It is tried first if it will be reached in another way
    #[command(after_help = cmd::fs_tier_words::SECRETS)]
    Update(Box<U>),
    /// Forget a store that no file system uses
    #[command(visible_aliases = ["delete", "destroy"])]
    Remove(cmd::fs_tier_remove::Remove),
    /// Give a file system a store for its cold data
    #[command(visible_alias = "assign")]
    Attach(cmd::fs_tier_attach::Attach),
    /// Take a store away from a file system: what lies there is brought elsewhere first
    #[command(visible_alias = "unassign")]
    Detach(cmd::fs_tier_detach::Detach),
}

#[derive(Subcommand)]
pub enum GroupVerb {
    /// Add a group
    #[command(visible_aliases = ["create", "new"])]
    Add(cmd::fs_group_add::Add),
    /// Change name or rules of a group
    Update(cmd::fs_group_update::Update),
    /// Remove a group that no file system is in
    #[command(visible_aliases = ["delete", "destroy"])]
    Remove(cmd::fs_group_remove::Remove),
}

#[derive(Subcommand)]
pub enum BucketVerb {
    /// List the objects with data, or what they have of which files
    Ls(cmd::bucket_ls::Ls),
    /// Write the bytes of a file, put together out of all objects
    Cat(cmd::bucket_cat::Cat),
    /// Read all objects and check every byte
    Verify(cmd::bucket_verify::Verify),
}

/// Reads the command line, runs it, ends with its code.
pub fn run() -> ExitCode {
    let words = abbreviated(std::env::args_os());
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout, mistakes to stderr; a reader that went away needs neither.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE));
        }
    };
    match hide::take(&words).and_then(|()| dispatch(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                // Without stderr there is nobody to tell.
                let _ = writeln!(stderr(), "braid: {failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}

/// `-v` alone means the version, as people try it.
fn abbreviated(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    match words.as_slice() {
        [program, only] if only == "-v" => vec![program.clone(), OsString::from("--version")],
        _ => words,
    }
}

fn dispatch(cli: Cli) -> Outcome {
    let whole = &cli.whole;
    match cli.command {
        Command::Up(command) => cmd::up::run(whole, &command),
        Command::Backend(command) => cmd::backend::run(whole, &command),
        Command::Down(command) => cmd::down::run(whole, &command),
        Command::Status { noun: None } => cmd::status::run(whole),
        Command::Status { noun: Some(StatusNoun::Rebuild) } => cmd::status_rebuild::run(whole),
        Command::Status { noun: Some(StatusNoun::Lost) } => cmd::status_lost::run(whole),
        Command::Cluster { noun: ClusterNoun::Create(command) } => cmd::cluster_create::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::Add(command) } => cmd::cluster_add::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::Remove(command) } => cmd::cluster_remove::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::Recover(command) } => cmd::cluster_recover::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::FailureDomain } => cmd::cluster_failure_domain::run(whole),
        Command::Cluster { noun: ClusterNoun::JoinSecret } => cmd::cluster_join_secret::run(whole),
        Command::Cluster { noun: ClusterNoun::Host } => cmd::cluster_host::run(whole),
        Command::Cluster { noun: ClusterNoun::Drive { verb } } => match verb {
            None => cmd::cluster_drive::run(whole),
            Some(DriveVerb::Add(command)) => cmd::cluster_drive_add::run(whole, &command),
            Some(DriveVerb::Remove(command)) => cmd::cluster_drive_remove::run(whole, &command),
            Some(DriveVerb::Activate(command)) => cmd::cluster_drive_activate::run(whole, &command),
        },
        Command::Cluster { noun: ClusterNoun::HotSpare(command) } => cmd::cluster_hot_spare::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::Update(command) } => cmd::cluster_update::run(whole, &command),
        Command::Cluster { noun: ClusterNoun::Partition } => cmd::cluster_partition::run(whole),
        Command::Events { events, verb: None } => cmd::events::run(whole, &events, false),
        Command::Events { events, verb: Some(verb) } => cmd::events::none(&events).and_then(|()| match verb {
            EventsVerb::Local(events) => cmd::events::run(whole, &events, true),
            EventsVerb::Types => cmd::events_types::run(whole),
            EventsVerb::Trigger(command) => cmd::events_trigger::run(whole, &command),
        }),
        Command::Fs { verb: None } => cmd::fs_list::run(whole),
        Command::Fs { verb: Some(FsVerb::Add(command)) } => cmd::fs_add::run(whole, &command),
        Command::Fs { verb: Some(FsVerb::Update(command)) } => cmd::fs_update::run(whole, &command),
        Command::Fs { verb: Some(FsVerb::Remove(command)) } => cmd::fs_remove::run(whole, &command),
        Command::Fs { verb: Some(FsVerb::Group { verb }) } => match verb {
            None => cmd::fs_group_list::run(whole),
            Some(GroupVerb::Add(command)) => cmd::fs_group_add::run(whole, &command),
            Some(GroupVerb::Update(command)) => cmd::fs_group_update::run(whole, &command),
            Some(GroupVerb::Remove(command)) => cmd::fs_group_remove::run(whole, &command),
        },
        Command::Fs { verb: Some(FsVerb::Tier { kind }) } => match kind {
            None => cmd::fs_tier::run(whole, None, None),
            Some(TierKind::S3 { which, verb }) => {
                store(whole, (Kind::S3, which), verb, (cmd::fs_tier_s3::add, cmd::fs_tier_s3::update))
            }
            Some(TierKind::Azure { which, verb }) => {
                store(whole, (Kind::Azure, which), verb, (cmd::fs_tier_azure::add, cmd::fs_tier_azure::update))
            }
            Some(TierKind::Dir { which, verb }) => {
                store(whole, (Kind::Dir, which), verb, (cmd::fs_tier_dir::add, cmd::fs_tier_dir::update))
            }
            Some(TierKind::Ops(command)) => cmd::fs_tier_ops::run(whole, &command),
            Some(TierKind::Capacity(command)) => cmd::fs_tier_capacity::run(whole, &command),
            Some(TierKind::Audit(command)) => cmd::fs_tier_audit::run(whole, &command),
            Some(TierKind::Location(command)) => cmd::fs_tier_location::run(whole, &command),
            Some(TierKind::Fetch(command)) => cmd::fs_tier_fetch::run(whole, &command),
            Some(TierKind::Release(command)) => cmd::fs_tier_release::run(whole, &command),
            Some(TierKind::Explain(command)) => cmd::fs_tier_explain::run(whole, &command),
        },
        Command::Bucket { verb: BucketVerb::Ls(command) } => cmd::bucket_ls::run(whole, &command),
        Command::Bucket { verb: BucketVerb::Cat(command) } => cmd::bucket_cat::run(whole, &command),
        Command::Bucket { verb: BucketVerb::Verify(command) } => cmd::bucket_verify::run(whole, &command),
        Command::Mount(command) => cmd::mount::run(whole, &command),
        Command::Umount(command) => cmd::umount::run(whole, &command),
        Command::Completion(command) => cmd::completion::run(&command, Cli::command()),
        Command::Man(command) => cmd::man::run(&command, Cli::command()),
    }
}

/// What carries out a command.
type Run<T> = fn(&Whole, &T) -> Outcome;

/// What is done to object stores of one kind.
fn store<A: Args, U: Args>(
    whole: &Whole,
    (kind, which): (Kind, cmd::fs_tier::Which),
    verb: Option<StoreVerb<A, U>>,
    (add, update): (Run<A>, Run<U>),
) -> Outcome {
    match verb {
        None => cmd::fs_tier::run(whole, Some(kind), which.name.as_deref()),
        Some(StoreVerb::Add(command)) => add(whole, &command),
        Some(StoreVerb::Update(command)) => update(whole, &command),
        Some(StoreVerb::Remove(command)) => cmd::fs_tier_remove::run(whole, &command),
        Some(StoreVerb::Attach(command)) => cmd::fs_tier_attach::run(whole, &command),
        Some(StoreVerb::Detach(command)) => cmd::fs_tier_detach::run(whole, &command),
    }
}
