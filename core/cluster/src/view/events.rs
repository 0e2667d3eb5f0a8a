//! Events, as an administrator asks for them and sees them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

views! {
    /// Events of the hosts.
    pub struct EventsView {
        /// In the order that was asked for.
        pub events: Vec<EventView>,
        /// Hosts that do not answer, whether they live or not: what they have kept is missing.
        pub silent_hosts: Vec<String>,
    }

    /// Something that happened.
    #[derive(Eq)]
    pub struct EventView {
        /// Counts up in the host that keeps it.
        pub id: u64,
        /// When, milliseconds since 1970, by the clock of that host.
        pub at_ms: u64,
        /// `debug`, `info`, `warning`, `minor`, `major` or `critical`.
        pub severity: String,
        /// What it is about, such as `ObjectStorage`.
        pub category: String,
        /// What it is, such as `ObjectStoreStatusDown`.
        #[serde(rename = "type")]
        pub kind: String,
        /// Name of the host that keeps it.
        pub host: String,
        /// How often it happened: more than once if it stands for repeats of one just before.
        pub count: u64,
        /// One sentence.
        pub text: String,
        /// Names of what it is about, such as `filesystem`, `object_store`, `object`.
        pub about: BTreeMap<String, String>,
    }

    /// A type of events.
    #[derive(Eq)]
    pub struct EventTypeView {
        /// Its name.
        #[serde(rename = "type")]
        pub name: String,
        /// What it is about.
        pub category: String,
        /// How much it usually matters.
        pub severity: String,
        /// What happened.
        pub description: String,
    }

    /// An event that somebody tells.
    #[serde(deny_unknown_fields)]
    pub struct EventSpec {
        /// One sentence.
        pub text: String,
    }
}

/// Which events are asked for. Lists are separated by commas; moments are RFC 3339 (`2026-11-25T16:41:59Z`, a day alone
/// means its beginning), or so long ago (`1h`, `-1h`, `1d5h`), or `now`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// Those that matter so much, and more: `debug`, `info` (default), `warning`, `minor`, `major` or `critical`.
    pub severity: Option<String>,
    /// Only of these categories.
    pub category: Option<String>,
    /// Only of these types.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Not of these types.
    pub exclude_type: Option<String>,
    /// From then on.
    pub start_time: Option<String>,
    /// Until then.
    pub end_time: Option<String>,
    /// At most so many (default 50, at most 1000).
    pub num_results: Option<u32>,
    /// `desc` (default): the newest, and they first; `asc`: the oldest.
    pub direction: Option<String>,
    /// With those of severity `debug`, if no severity is given.
    pub show_internal: bool,
    /// Only about this file system.
    pub filesystem: Option<String>,
    /// Only of the host that is asked.
    pub local: bool,
}
