//! The top-level modules of a crate depend on each other in one direction: a reader can begin at the bottom.
//!
//! An edge is a path in code that is compiled outside tests: `crate::b::…`, `super::b::…` from the top level, or
//! a name that the crate's root takes from `b`. The root and its modules may know each other.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::source::Source;

/// An edge that closes a circle and stays for now: crate, from, to, since when, why.
type Allowed = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Edges that wait to be untangled. An entry that no circle needs any more is a finding too.
const ALLOWED: &[Allowed] = &[
    // The rooms of a partition call each other with the whole state in hand: an operation touches data, locks and
    // peers in one step. Untangled when `State` hands each room its part.
    ("core/meta", "data", "state", "2026-11-21", STATE),
    ("core/meta", "peers", "state", "2026-11-21", STATE),
    ("core/meta", "leases", "state", "2026-11-21", STATE),
    // Inodes and entries are read and stored by `ops::inode` and `ops::dentry`, which belong below all rooms.
    ("core/meta", "data", "ops", "2026-11-21", INODES),
    ("core/meta", "locks", "ops", "2026-11-21", INODES),
    ("core/meta", "peers", "ops", "2026-11-21", INODES),
    ("core/meta", "leases", "ops", "2026-11-21", INODES),
];
const STATE: &str = "a room's functions take the whole state, which holds the room";
const INODES: &str = "inodes and entries are stored by modules inside ops; an operation across partitions reuses ops";

/// Where one module names another: path and line of the first place.
type Place = (String, usize);

/// The modules of one crate: what each names, and where.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Place>>,
}

/// Each crate's modules form no circle but through an allowed edge.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    check_with(sources, ALLOWED)
}

fn check_with(sources: &[Source], allowed: &[Allowed]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((room, _)) = source.path.split_once("/src/") {
            crates.entry(room).or_default().push(source);
        }
    }
    let mut findings = Vec::new();
    for (room, sources) in &crates {
        let mut graph = graph(room, sources);
        for (_, from, to, since, why) in allowed.iter().filter(|entry| entry.0 == *room) {
            // Only an edge of a circle may be listed: what it leads to must lead back.
            if graph.path(to, from).is_none() || !graph.cut(from, to) {
                let message = format!(
                    "'{from}' to '{to}' of {room}, allowed since {since} ({why}), is in no circle: take it off"
                );
                findings.push(Finding::new("xtask/src/tidy/cycles.rs", 1, message));
            }
        }
        findings.extend(graph.circles());
    }
    findings
}

fn graph(room: &str, sources: &[&Source]) -> Graph {
    let below = |source: &Source| source.path[room.len() + "/src/".len()..].to_owned();
    let modules: BTreeSet<String> = sources.iter().filter_map(|source| top(&below(source))).collect();
    // What the root shows of its modules: `pub use b::{C, D}` makes `crate::C` a way into b.
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for source in sources.iter().filter(|source| top(&below(source)).is_none()) {
        for (_, path) in paths(source, "use ") {
            if let [first, .., last] = path.as_slice()
                && modules.contains(first)
            {
                shown.insert(last.clone(), first.clone());
            }
        }
    }
    let mut graph = Graph::default();
    for source in sources {
        let place = below(source);
        let Some(from) = top(&place) else { continue };
        let at_top = !place.contains('/');
        let mut named = paths(source, "crate::");
        if at_top {
            named.extend(paths(source, "super::"));
        }
        for (line, path) in named {
            let Some(first) = path.first() else { continue };
            let to = if modules.contains(first) { Some(first) } else { shown.get(first) };
            if let Some(to) = to.filter(|to| **to != from) {
                let edges = graph.edges.entry(from.clone()).or_default();
                edges.entry(to.clone()).or_insert_with(|| (source.path.clone(), line + 1));
            }
        }
    }
    graph
}

/// The top-level module of a file below `src/`; none for the root itself.
fn top(below: &str) -> Option<String> {
    let first = below.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    (!matches!(first, "lib" | "main")).then(|| first.to_owned())
}

/// The paths that begin with `start` in code outside tests: 0-based line, and the names behind `start`. Groups in
/// braces are spread out.
fn paths(source: &Source, start: &str) -> Vec<(usize, Vec<String>)> {
    let mut text = String::new();
    let mut lines = Vec::new();
    for (at, line) in source.code.iter().enumerate().filter(|(at, _)| !source.test[*at]) {
        lines.extend(std::iter::repeat_n(at, line.len() + 1));
        text.push_str(line);
        text.push('\n');
    }
    let mut found = Vec::new();
    for (at, _) in text.match_indices(start) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
            continue;
        }
        let mut rest = &text[at + start.len()..];
        spread(&mut rest, &[], &mut |path| found.push((lines[at], path)));
    }
    found
}

/// Reads one path or group off `rest` and hands out each whole path in it.
fn spread(rest: &mut &str, before: &[String], each: &mut dyn FnMut(Vec<String>)) {
    let mut path = before.to_vec();
    loop {
        *rest = rest.trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            *rest = group;
            while !rest.trim_start().starts_with('}') && !rest.trim_start().is_empty() {
                let len = rest.len();
                spread(rest, &path, each);
                *rest = rest.trim_start().trim_start_matches(',');
                if rest.len() == len {
                    return;
                }
            }
            *rest = rest.trim_start().strip_prefix('}').unwrap_or("");
            return;
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        *rest = after;
        if !name.is_empty() {
            path.push(name.to_owned());
        }
        match rest.strip_prefix("::") {
            Some(deeper) if !name.is_empty() => *rest = deeper,
            _ => break,
        }
    }
    // `Name as Other` ends where the list goes on.
    if let Some(renamed) = rest.trim_start().strip_prefix("as ") {
        *rest = renamed.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    }
    each(path);
}

impl Graph {
    /// Takes the edge out; false if there is none.
    fn cut(&mut self, from: &str, to: &str) -> bool {
        self.edges.get_mut(from).is_some_and(|edges| edges.remove(to).is_some())
    }

    /// The shortest way from one module to another, both ends included.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![from.to_owned()]];
        let mut seen = BTreeSet::from([from.to_owned()]);
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let last = way.last()?;
                for next in self.edges.get(last).into_iter().flat_map(BTreeMap::keys) {
                    let whole = [way.as_slice(), std::slice::from_ref(next)].concat();
                    if next == to {
                        return Some(whole);
                    }
                    if seen.insert(next.clone()) {
                        longer.push(whole);
                    }
                }
            }
            ways = longer;
        }
        None
    }

    /// One finding for each circle: found, reported and cut until none is left.
    fn circles(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        loop {
            let modules: Vec<String> = self.edges.keys().cloned().collect();
            let shortest = modules.iter().filter_map(|module| self.path(module, module)).min_by_key(Vec::len);
            let Some(circle) = shortest else { return findings };
            let places = circle.windows(2).filter_map(|pair| {
                let (path, line) = self.edges.get(&pair[0])?.get(&pair[1])?;
                Some(format!("{path}:{line}"))
            });
            let message = format!(
                "modules in a circle: {} ({}); move what both need into a module below them",
                circle.join(" -> "),
                places.collect::<Vec<_>>().join(", ")
            );
            let (path, line) = self.edges[&circle[0]][&circle[1]].clone();
            findings.push(Finding::new(&path, line, message));
            self.cut(&circle[0], &circle[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::parse(&format!("core/x/src/{path}"), text)).collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        check_with(&room(files), &[])
    }

    #[test]
    fn one_direction_passes() {
        let files = [("lib.rs", "mod a;\nmod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "struct B; // crate::a::A")];
        assert_eq!(found(&files), []);
    }

    #[test]
    fn a_circle_is_found_with_its_places() {
        let files = [("a.rs", "\nuse crate::b::B;"), ("b.rs", "use crate::c;"), ("c/d.rs", "fn f() { crate::a::g() }")];
        let found = found(&files);
        assert_eq!(found.len(), 1);
        let wanted = "a -> b -> c -> a (core/x/src/a.rs:2, core/x/src/b.rs:1, core/x/src/c/d.rs:1)";
        assert!(found[0].message.contains(wanted), "{}", found[0]);
    }

    #[test]
    fn groups_super_and_names_of_the_root_count() {
        let back = ("b.rs", "use crate::a::A;");
        let groups = "use crate::{\n    c::{self, D as E},\n    b::B,\n};";
        assert_eq!(found(&[("a.rs", groups), back, ("c.rs", "")]).len(), 1);
        assert_eq!(found(&[("a.rs", "use super::b::B;"), back]).len(), 1);
        assert_eq!(found(&[("lib.rs", "mod b;\npub use b::{B, C};"), ("a.rs", "use crate::C;"), back]).len(), 1);
    }

    #[test]
    fn parents_children_and_tests_may_look_back() {
        assert_eq!(found(&[("lib.rs", "pub use a::A;"), ("a.rs", "use crate::root_fn;")]), []);
        assert_eq!(found(&[("a.rs", "mod b;\nuse b::B;"), ("a/b.rs", "use super::A;\nuse crate::a::C;")]), []);
        let test = "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        assert_eq!(found(&[("a.rs", test), ("b.rs", "use crate::a::A;")]), []);
    }

    #[test]
    fn an_allowed_edge_passes_until_it_is_needless() {
        let circle = room(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]);
        let allowed = [("core/x", "a", "b", "2026-11-21", "why")];
        assert_eq!(check_with(&circle, &allowed), []);
        let line = room(&[("a.rs", "use crate::b::B;"), ("b.rs", "")]);
        assert!(check_with(&line, &allowed)[0].message.contains("is in no circle"));
    }
}
