//! Who may use whom. The table is the house: an edge that is not in it fails.

use super::Finding;
use serde_json::Value;
use std::path::Path;

const SIM: &[&str] =
    &["base", "io", "erasure", "drive", "replica", "meta", "cluster", "client", "wire", "host", "linear"];

/// Crate, and the crates of the house it may name in its `Cargo.toml`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("io", &["base"]),
    ("erasure", &[]),
    ("drive", &["base", "io"]),
    ("replica", &["base", "io"]),
    ("meta", &["base", "replica", "erasure"]),
    ("tier", &["base", "io"]),
    ("cluster", &["base", "io"]),
    ("client", &["base", "io", "erasure"]),
    ("wire", &["base", "io", "replica", "client"]),
    ("host", &["base", "io", "erasure", "drive", "replica", "meta", "tier", "cluster", "client", "wire"]),
    ("fuse", &["base", "client"]),
    ("s3", &["base", "client"]),
    ("nfs", &["base", "client"]),
    ("smb", &["base", "client"]),
    ("csi", &["base", "client"]),
    ("admin", &["base", "cluster", "client"]),
    (
        "braid",
        &[
            "base", "io", "erasure", "drive", "replica", "meta", "tier", "cluster", "client", "wire", "host", "fuse",
            "admin",
        ],
    ),
    ("linear", &["base", "io"]),
    ("sim", SIM),
    ("xtask", &[]),
    ("bench", &["linear"]),
];

/// One crate of the workspace and the crates of the workspace it names, without the `braid-` in front.
pub struct Room {
    /// `Cargo.toml` below the workspace.
    pub manifest: String,
    /// Short name.
    pub name: String,
    /// Short names of its dependencies of every kind.
    pub uses: Vec<String>,
}

/// Asks cargo for the rooms and their edges.
pub fn read(root: &Path) -> Result<Vec<Room>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let text = super::output(root, &cargo, &["metadata", "--format-version", "1", "--no-deps", "--offline"])?;
    let value: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let packages = value["packages"].as_array().ok_or("cargo metadata has no packages")?;
    Ok(packages.iter().map(|package| room(root, package)).collect())
}

fn room(root: &Path, package: &Value) -> Room {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let manifest =
        Path::new(manifest).strip_prefix(root).map_or(manifest.to_owned(), |path| path.display().to_string());
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Only dependencies of the workspace have a path.
    let inside = dependencies.iter().filter(|dependency| dependency["path"].is_string());
    let uses = inside.map(|dependency| short(&dependency["name"])).collect();
    Room { manifest, name: short(&package["name"]), uses }
}

fn short(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    name.strip_prefix("braid-").unwrap_or(name).to_owned()
}

/// Each edge is in the table, and so is each room.
pub fn check(rooms: &[Room]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in rooms {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == room.name) else {
            let message = format!("crate '{}' is not in the dependency table of xtask", room.name);
            findings.push(Finding::new(&room.manifest, 1, message));
            continue;
        };
        // A room may name itself: its tests switch on a feature that way.
        let foreign = room.uses.iter().filter(|used| **used != room.name);
        for used in foreign.filter(|used| !allowed.contains(&used.as_str())) {
            let message = format!("'{}' may not use '{used}'; it may use: {}", room.name, allowed.join(", "));
            findings.push(Finding::new(&room.manifest, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_of(name: &str, uses: &[&str]) -> Room {
        let uses = uses.iter().map(|used| (*used).to_owned()).collect();
        Room { manifest: format!("core/{name}/Cargo.toml"), name: name.to_owned(), uses }
    }

    #[test]
    fn allowed_edges_pass() {
        assert_eq!(check(&[room_of("base", &[]), room_of("meta", &["base", "replica", "erasure"])]), []);
    }

    #[test]
    fn a_door_may_not_reach_meta() {
        let found = check(&[room_of("fuse", &["base", "client", "meta"])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("'fuse' may not use 'meta'"));
    }

    #[test]
    fn an_unknown_room_is_found() {
        assert_eq!(check(&[room_of("cellar", &[])]).len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // A room may only use rooms that can be built without it: repeatedly take away rooms without open edges.
        let mut open: Vec<_> = ALLOWED.to_vec();
        while !open.is_empty() {
            let names: Vec<&str> = open.iter().map(|(name, _)| *name).collect();
            let before = open.len();
            open.retain(|(_, uses)| uses.iter().any(|used| names.contains(used)));
            assert!(open.len() < before, "a cycle among {names:?}");
        }
    }

    #[test]
    fn the_workspace_can_be_read() {
        let rooms = read(&crate::gate::workspace_root()).expect("cargo metadata works in this workspace");
        assert!(rooms.iter().any(|room| room.name == "io" && room.uses == ["base"]));
    }
}
