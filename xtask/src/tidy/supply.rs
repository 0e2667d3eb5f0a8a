//! What comes from outside: licences, forbidden crates, sources, as `deny.toml` lists them (decisions/0007).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::Finding;

/// What Braid is built for; what only other systems need is not part of it.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// `deny.toml`, as far as it is used here.
struct Rules {
    licences: Vec<String>,
    forbidden: Vec<String>,
}

/// A crate that goes into some program of the workspace.
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
    /// Names of dependencies that take any version; those with a path do not count.
    wildcards: Vec<String>,
}

/// Reads the rules and the crates, and compares.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let rules = rules(&text)?;
    let mut crates = BTreeMap::new();
    for platform in PLATFORMS {
        for found in read(root, platform)? {
            crates.insert((found.name.clone(), found.version.clone()), found);
        }
    }
    Ok(crates.values().flat_map(|found| judge(&rules, found)).collect())
}

fn read(root: &Path, platform: &str) -> Result<Vec<Crate>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", platform];
    let value: Value = serde_json::from_str(&super::output(root, &cargo, &arguments)?)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let packages = value["packages"].as_array().ok_or("cargo metadata has no packages")?;
    Ok(packages.iter().map(one).collect())
}

fn one(package: &Value) -> Crate {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let wild = dependencies.iter().filter(|one| one["req"] == "*" && !one["path"].is_string());
    Crate {
        name: text("name").unwrap_or_default(),
        version: text("version").unwrap_or_default(),
        licence: text("license"),
        source: text("source"),
        wildcards: wild.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect(),
    }
}

fn judge(rules: &Rules, found: &Crate) -> Vec<Finding> {
    let mut messages = Vec::new();
    match &found.licence {
        None => messages.push("it names no licence".to_owned()),
        Some(licence) if !allows(&rules.licences, licence) => {
            messages.push(format!("its licence '{licence}' is not among those that may come in"));
        }
        Some(_) => {}
    }
    if rules.forbidden.contains(&found.name) {
        messages.push("it is forbidden by [bans]".to_owned());
    }
    // The crates of the workspace have no source. The registry's name stands in halves, see `places`.
    let registry = ["registry+https://github.com/rust-lang/crates", ".io-index"].concat();
    if let Some(source) = found.source.as_ref().filter(|source| **source != registry) {
        messages.push(format!("it comes from '{source}', not from the registry"));
    }
    messages.extend(found.wildcards.iter().map(|name| format!("it takes any version of '{name}'")));
    let finding = |message| Finding::new("deny.toml", 1, format!("{} {}: {message}", found.name, found.version));
    messages.into_iter().map(finding).collect()
}

/// Can the conditions of an SPDX expression be met with `allowed` alone? An unreadable one cannot.
fn allows(allowed: &[String], expression: &str) -> bool {
    // Before SPDX expressions a slash meant a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(allowed, &mut rest) == Some(true) && rest.is_empty()
}

fn either(allowed: &[String], rest: &mut &[&str]) -> Option<bool> {
    let mut met = both(allowed, rest)?;
    while let Some(after) = rest.strip_prefix(&["OR"]) {
        *rest = after;
        met |= both(allowed, rest)?;
    }
    Some(met)
}

fn both(allowed: &[String], rest: &mut &[&str]) -> Option<bool> {
    let mut met = licence(allowed, rest)?;
    while let Some(after) = rest.strip_prefix(&["AND"]) {
        *rest = after;
        met &= licence(allowed, rest)?;
    }
    Some(met)
}

fn licence(allowed: &[String], rest: &mut &[&str]) -> Option<bool> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    if *first == "(" {
        let met = either(allowed, rest)?;
        *rest = rest.strip_prefix(&[")"])?;
        return Some(met);
    }
    let mut name = (*first).to_owned();
    if let [with, exception, after @ ..] = *rest
        && *with == "WITH"
    {
        name = format!("{name} WITH {exception}");
        *rest = after;
    }
    Some(allowed.contains(&name))
}

/// The lists of `deny.toml` that are used here. Only its shape is read: sections, lists in brackets, strings.
fn rules(text: &str) -> Result<Rules, String> {
    let licences = list(text, "licenses", "allow")?;
    let entries = list(text, "bans", "deny")?;
    // `{ crate = "name", reason = "why" }`: the strings alternate.
    let forbidden = entries.iter().step_by(2).cloned().collect();
    Ok(Rules { licences, forbidden })
}

fn list(text: &str, section: &str, key: &str) -> Result<Vec<String>, String> {
    let missing = || format!("deny.toml: no list '{key}' in [{section}]");
    let start = format!("[{section}]");
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let inside = lines.skip_while(|line| line.trim() != start).skip(1).take_while(|line| !line.starts_with('['));
    let body = inside.collect::<Vec<_>>().join("\n");
    let opening = format!("\n{key} = [");
    let from = format!("\n{body}").find(&opening).ok_or_else(missing)? + opening.len() - 1;
    let to = body[from..].find("\n]").ok_or_else(missing)?;
    let strings = body[from..from + to].split('"').skip(1).step_by(2);
    Ok(strings.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[graph]\nall-features = true\n\n[licenses]\n# allow = [\nallow = [\n  \"MIT\", # plain\n  \
        \"Apache-2.0 WITH LLVM-exception\",\n  \"ISC\",\n]\n\n[bans]\ndeny = [\n  # gone\n  { crate = \"bincode\", \
        reason = \"ended\" },\n  { crate = \"openssl-sys\", reason = \"other\" },\n]\n";

    fn found(name: &str, licence: &str, source: Option<&str>) -> Crate {
        let licence = (!licence.is_empty()).then(|| licence.to_owned());
        let source = source.map(str::to_owned);
        Crate { name: name.to_owned(), version: "1.0.0".to_owned(), licence, source, wildcards: Vec::new() }
    }

    fn count(one: &Crate) -> usize {
        judge(&rules(TEXT).expect("readable"), one).len()
    }

    #[test]
    fn the_lists_are_read() {
        let rules = rules(TEXT).expect("readable");
        assert_eq!(rules.licences, ["MIT", "Apache-2.0 WITH LLVM-exception", "ISC"]);
        assert_eq!(rules.forbidden, ["bincode", "openssl-sys"]);
        assert!(super::rules("[licenses]\n[bans]\n").is_err());
    }

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = rules(TEXT).expect("readable").licences;
        let yes = ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "MIT AND ISC", "(GPL-3.0 OR MIT) AND ISC"];
        assert!(yes.iter().all(|text| allows(&allowed, text)));
        assert!(allows(&allowed, "Apache-2.0 WITH LLVM-exception OR GPL-3.0"));
        let no = ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "MIT ISC", "", "MIT OR", "GPL-3.0 OR MIT AND X"];
        assert!(no.iter().all(|text| !allows(&allowed, text)));
    }

    #[test]
    fn each_rule_finds_its_crate() {
        assert_eq!(count(&found("a", "MIT", None)), 0);
        assert_eq!(count(&found("a", "", None)), 1);
        assert_eq!(count(&found("a", "GPL-3.0", None)), 1);
        assert_eq!(count(&found("bincode", "MIT", None)), 1);
        assert_eq!(count(&found("a", "MIT", Some("git+https://example.org/a"))), 1);
        assert_eq!(count(&Crate { wildcards: vec!["b".to_owned()], ..found("a", "MIT", None) }), 1);
    }

    #[test]
    fn the_workspace_passes() {
        assert_eq!(check(&crate::gate::workspace_root()), Ok(Vec::new()));
    }
}
