//! The drives of a host, from path to thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use braid_base::ids::{DriveId, Guid};
use braid_base::limits::DRIVE_OPEN_WAIT_MS;
use braid_base::msg::event::{Event, EventType};
use braid_base::{Error, ErrorKind, Result};
use braid_cluster::facts::{Drive as DriveRecord, DriveState};
use braid_drive::{DriveActor, Running};
use braid_io::clock;
use braid_io::limited::{self, each_or_late};
use braid_io::reactor::{Backend, Ending, Place};
use braid_meta::Leave;

use super::events::Events;
use super::setup::HostConfig;
use super::wire::{Mark, Switch};

/// A drive that this host runs.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// Its number.
    pub id: DriveId,
    /// Where it is.
    pub path: PathBuf,
    /// Which drive must be found there.
    pub uuid: Guid,
}

/// A drive that was started, and as what it was found.
pub(super) struct Opened {
    pub(super) id: DriveId,
    pub(super) running: Running,
    pub(super) mark: Mark,
}

/// Why a drive leaves, if it does.
pub(super) fn leaves(drive: &DriveRecord) -> Option<Leave> {
    match drive.state {
        DriveState::Failed => Some(Leave::Failed),
        DriveState::Draining if drive.abandoned => Some(Leave::Abandoned),
        DriveState::Draining => Some(Leave::Draining),
        DriveState::Adding | DriveState::Active | DriveState::Removed => None,
    }
}

/// What a host has of its drives beside the doors to them.
#[derive(Default)]
pub(super) struct Own {
    /// All of them, and where they are: those that were away at its start, and those that were added since, too.
    specs: Mutex<Vec<DriveSpec>>,
    /// What is waited for at the end: their threads.
    endings: Mutex<Vec<Ending>>,
}

impl Own {
    /// One that was not there before.
    pub(super) fn add(&self, spec: &DriveSpec) {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner).push(spec.clone());
    }

    /// One that has started.
    pub(super) fn started(&self, ending: Ending) {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner).push(ending);
    }

    /// The threads of all that have started.
    pub(super) fn take_endings(&self) -> Vec<Ending> {
        std::mem::take(&mut *self.endings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// After this, milliseconds, what is away is looked for again: a drive may come back while the host runs.
const AGAIN_MS: u64 = 10_000;

type Opening = limited::Late<DriveSpec, Result<Opened>>;
type Open = Arc<dyn Fn(&DriveSpec) -> Result<Opened> + Send + Sync>;

/// Drives of this host that are used when they open.
pub(super) struct Late {
    open: Open,
    own: Arc<Own>,
    /// Those that are being opened, and what brings them.
    under_way: Vec<(BTreeSet<DriveId>, Opening)>,
    /// What came of those that were begun last, as far as it came at once.
    at_once: Vec<(DriveSpec, Result<Opened>)>,
    /// What was said of those that did not open last.
    said: BTreeMap<DriveId, String>,
    again_ms: u64,
}

/// Starts the drives of a host, all at the same time; those that do not open, or not in time, are left out. The ones that are
/// awaited, and the ones that come late, come with the second part.
pub(super) fn start_all(config: &HostConfig, runtime: &tokio::runtime::Handle, events: &Events) -> (Vec<Opened>, Late) {
    let (cluster, runtime) = (config.cluster, runtime.clone());
    let open: Open = Arc::new(move |spec: &DriveSpec| start(cluster, &runtime, spec));
    let run = |wait_ms, specs: &[DriveSpec]| {
        let open = Arc::clone(&open);
        each_or_late("open-drive", wait_ms, specs.to_vec(), move |spec: &DriveSpec| open(spec))
    };
    let (early, awaited) = run(0, &config.awaited);
    let (found, late) = run(DRIVE_OPEN_WAIT_MS, &config.drives);
    let under_way = vec![(not_yet(&early), awaited), (not_yet(&found), late)];
    let own = Arc::new(Own::default());
    config.drives.iter().chain(&config.awaited).chain(&config.absent).for_each(|spec| own.add(spec));
    let (said, at_once, again_ms) = (BTreeMap::new(), Vec::new(), clock::mono_ms() + AGAIN_MS);
    let mut late = Late { open, own, under_way, at_once, said, again_ms };
    let mut opened: Vec<Opened> = early.into_iter().filter_map(|(spec, result)| late.or_told(&spec, result?)).collect();
    for (spec, result) in found {
        match result {
            Some(result) => opened.extend(late.or_told(&spec, result)),
            None => {
                let (id, path, wait_s) = (spec.id, spec.path.display(), DRIVE_OPEN_WAIT_MS / 1_000);
                let text = format!(
                    "drive {id} ({path}) did not open within {wait_s} s: this host serves without it until it does; look \
                     at the device, and replace it if this goes on"
                );
                events.tell(Event::new(EventType::DRIVE_DOWN, text).about("drive", id));
            }
        }
    }
    (opened, late)
}

impl Late {
    /// All drives of this host.
    pub(super) fn own(&self) -> &Arc<Own> {
        &self.own
    }

    /// Those that have opened since.
    pub(super) fn opened(&mut self) -> Vec<Opened> {
        let mut ended = std::mem::take(&mut self.at_once);
        for (ids, late) in &mut self.under_way {
            let found = late.ended();
            found.iter().for_each(|(spec, _)| _ = ids.remove(&spec.id));
            ended.extend(found);
        }
        self.under_way.retain(|(ids, _)| !ids.is_empty());
        ended.into_iter().filter_map(|(spec, result)| self.or_told(&spec, result)).collect()
    }

    /// Now and then begins to open those of which `is_away` is true. Nobody else has them open then: what a drive that went
    /// away had under way ends first, or they do not open (`OpenMode::alone`).
    pub(super) fn look_again(&mut self, now_ms: u64, is_away: impl Fn(DriveId) -> bool) {
        if now_ms < self.again_ms {
            return;
        }
        self.again_ms = now_ms + AGAIN_MS;
        let busy = |id| self.under_way.iter().any(|(ids, _)| ids.contains(&id));
        let mut away = self.own.specs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        away.retain(|spec| is_away(spec.id) && !busy(spec.id));
        if !away.is_empty() {
            let open = Arc::clone(&self.open);
            let (found, late) = each_or_late("open-drive", 0, away, move |spec: &DriveSpec| open(spec));
            self.under_way.push((not_yet(&found), late));
            self.at_once.extend(found.into_iter().filter_map(|(spec, result)| Some((spec, result?))));
        }
    }

    /// What opened; else why not is told, once.
    fn or_told(&mut self, spec: &DriveSpec, result: Result<Opened>) -> Option<Opened> {
        match result {
            Ok(opened) => {
                self.said.remove(&spec.id);
                Some(opened)
            }
            Err(error) => {
                let text = error.to_string();
                if self.said.get(&spec.id) != Some(&text) {
                    tracing::warn!("drive {} is left out until it opens: {text}", spec.id);
                    self.said.insert(spec.id, text);
                }
                None
            }
        }
    }
}

/// Those of which nothing has come so far.
fn not_yet(found: &[(DriveSpec, Option<Result<Opened>>)]) -> BTreeSet<DriveId> {
    found.iter().filter(|(_, result)| result.is_none()).map(|(spec, _)| spec.id).collect()
}

/// Starts the drive of `spec`. Blocks.
pub(super) fn start(cluster: Guid, runtime: &tokio::runtime::Handle, spec: &DriveSpec) -> Result<Opened> {
    let running = DriveActor::open(&spec.path, Some(cluster), &Place::beside(runtime), Backend::Auto)?;
    if running.superblock.drive != spec.uuid {
        let found = running.superblock.drive;
        let words = format!("{}: expected drive {}, found drive {found}", spec.path.display(), spec.uuid);
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(Opened { id: spec.id, running, mark: Mark::of(&spec.path)? })
}

impl Switch {
    /// A drive of this host that was not there before is used from now on.
    pub(super) fn take_in(&self, opened: Opened, own: &Own) {
        let Opened { id, running, mark } = opened;
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, mark);
        self.drives.write().unwrap_or_else(PoisonError::into_inner).insert(id, running.drive);
        own.started(running.ending);
    }
}
