//! Comparison of `.deny.toml`, the configuration of cargo-deny, with the bans and licences of
//! `policy`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::policy;
use crate::workspace::Workspace;

const FILE: &str = ".deny.toml";

pub(super) fn disagreements(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.read(Path::new(FILE))?;
    let deny: Table = text
        .parse()
        .with_context(|| format!("cannot parse {FILE}"))?;
    Ok(compare(&deny))
}

fn compare(deny: &Table) -> Vec<String> {
    let bans = policy::BANS.iter().map(|(name, _)| *name).collect();
    let licences = policy::LICENCES.iter().copied().collect();
    [("bans", "deny", bans), ("licenses", "allow", licences)]
        .into_iter()
        .flat_map(|(section, list, ours)| {
            differences(section, list, &entries(deny, section, list), &ours)
        })
        .collect()
}

fn differences(
    section: &str,
    list: &str,
    theirs: &BTreeSet<&str>,
    ours: &BTreeSet<&str>,
) -> Vec<String> {
    let differing = theirs.symmetric_difference(ours);
    differing
        .map(|name| format!("{name} is in only one of {FILE}'s {section}.{list} and our policy"))
        .collect()
}

/// Returns the names in a list whose entries are names or tables with the key `crate`.
fn entries<'a>(deny: &'a Table, section: &str, list: &str) -> BTreeSet<&'a str> {
    let list = deny
        .get(section)
        .and_then(|section| section.get(list))
        .and_then(Value::as_array);
    let name = |entry: &'a Value| entry.as_str().or_else(|| entry.get("crate")?.as_str());
    list.into_iter().flatten().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_is_reported_when_only_one_list_allows_it() {
        let bans: Vec<String> = policy::BANS
            .iter()
            .map(|(name, _)| format!("{{ crate = {name:?} }}"))
            .collect();
        let licences = &policy::LICENCES[1..];
        let text = format!(
            "bans.deny = [{}]\nlicenses.allow = {licences:?}",
            bans.join(", ")
        );
        let faults = compare(&text.parse().unwrap());
        assert_eq!(
            faults,
            ["0BSD is in only one of .deny.toml's licenses.allow and our policy"]
        );
    }
}
