//! What the administrator sets for the whole cluster.

use braid_base::limits::SCRUB_BYTES_PER_S;
use braid_base::{Error, ErrorKind, Result};

use crate::capacity::OnDrives;
use crate::coordinator::{CAS_ATTEMPTS_MAX, Coordinator, contended};
use crate::facts::{DriveState, Settings};
use crate::records;
use crate::snapshot::Snapshot;
use crate::view::{SettingsChange, SettingsView};

/// What holds now.
pub fn read(coordinator: &dyn Coordinator) -> Result<Settings> {
    Ok(records::read::<Settings>(coordinator, Settings::KEY)?.map(|stored| stored.value).unwrap_or_default())
}

/// Changes what `change` names. `raw_of` says how many data bytes a drive of so many bytes has, `stored` what users
/// have stored: `Refused` if it would not fit any more beside the spare failure domains, or nobody knows, unless that is
/// to be put up with.
pub fn update(
    coordinator: &dyn Coordinator,
    change: &SettingsChange,
    stored: OnDrives,
    raw_of: impl Fn(u64) -> u64,
) -> Result<Settings> {
    for _ in 0..CAS_ATTEMPTS_MAX {
        let now = Snapshot::read(coordinator)?;
        if let Some(spares) = change.hot_spares {
            check_spares(&now, spares, change.skip_resource_validation, stored, &raw_of)?;
        }
        let stored = records::read::<Settings>(coordinator, Settings::KEY)?;
        let mut settings = stored.as_ref().map(|stored| stored.value.clone()).unwrap_or_default();
        if let Some(bytes) = change.rebuild_bytes_per_s {
            settings.rebuild_bytes_per_s = (bytes > 0).then_some(bytes);
        }
        settings.scrub_bytes_per_s = change.scrubber_bytes_per_s.or(settings.scrub_bytes_per_s);
        settings.spares = change.hot_spares.unwrap_or(settings.spares);
        let written = match stored {
            Some(stored) => records::update(coordinator, stored.revision, &settings).map(drop),
            None => records::create(coordinator, &settings).map(drop),
        };
        match written {
            Ok(()) => return Ok(settings),
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::Exists) => {}
            Err(error) => return Err(error),
        }
    }
    Err(contended(Settings::KEY))
}

fn check_spares(
    now: &Snapshot,
    spares: u16,
    force: bool,
    stored: OnDrives,
    raw_of: &impl Fn(u64) -> u64,
) -> Result<()> {
    let serves = now.drives.iter().filter(|drive| matches!(drive.state, DriveState::Adding | DriveState::Active));
    let domains = serves.map(|drive| drive.domain).collect::<std::collections::BTreeSet<_>>().len();
    if usize::from(spares) >= domains.max(1) {
        let words = format!("hot spares: fewer than the {domains} failure domains expected, found {spares}");
        return Err(Error::new(ErrorKind::Invalid, words));
    }
    let (net, used) = (now.net_with(usize::from(spares), raw_of), stored.bytes);
    if let Some(words) = stored.objection().filter(|_| !force && spares > 0) {
        return Err(Error::new(ErrorKind::Refused, format!("hot spares: {words}; or say --skip-resource-validation")));
    }
    if net < used && !force {
        let words = format!(
            "with {spares} spare failure domains {net} bytes can be stored, but {used} are: remove some, add drives, or \
             say --skip-resource-validation"
        );
        return Err(Error::new(ErrorKind::Refused, words));
    }
    Ok(())
}

impl Settings {
    /// Bytes per second that a drive is read with to check what lies there.
    pub fn scrub_rate(&self) -> u64 {
        self.scrub_bytes_per_s.unwrap_or(SCRUB_BYTES_PER_S)
    }

    /// As the administrator sees them.
    pub fn view(&self) -> SettingsView {
        SettingsView {
            rebuild_bytes_per_s: self.rebuild_bytes_per_s,
            scrubber_bytes_per_s: self.scrub_rate(),
            hot_spares: self.spares,
        }
    }
}
