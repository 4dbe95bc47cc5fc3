//! Tests that `docs/configuration.md` lists every key, with the kind of its value and what an untrusted file may set.

use std::collections::BTreeSet;

use super::keys::{self, Key, Kind, UntrustedRule};

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// The heading of the tables of keys.
const KEYS: &str = "## Keys\n";

/// The heading of the table of keys without effect.
const KEYS_WITHOUT_EFFECT: &str = "## Keys without effect\n";

/// The cells of each row, with the third-level heading above it. Leaves out heads and rulers of tables.
fn rows(part: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut section, mut rows) = ("", Vec::new());
    for line in part.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = heading;
        } else if let Some(row) = line.strip_prefix("| `") {
            rows.push((section, row.split('|').map(|cell| cell.trim().trim_end_matches('`')).collect()));
        }
    }
    rows
}

fn value(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Flag => "boolean",
        Kind::Size => "size",
        Kind::Volumes => "volumes",
        Kind::Url => "URL",
        Kind::Runtime => "`auto`, `docker`, `local`, `ssh`, `remote`",
        Kind::UnknownHosts => "`refuse`, `accept-new`, `ask`",
        Kind::Servers => "servers",
        Kind::Confirmation => "`never`, `low`, `medium`, `high`, `always`",
        Kind::Router => "`noop_router`, `multimodal_router`",
        Kind::List => "list of strings",
        Kind::Table => "table",
        Kind::Tables => "list of tables",
        Kind::Any => "any",
    }
}

/// What a folder may set; empty if the key needs trust.
fn folder_may_set(key: Key) -> String {
    match keys::untrusted_rule(key.section, key.name) {
        None => String::new(),
        Some(UntrustedRule::Any) => "any value".to_owned(),
        Some(UntrustedRule::StaysOff) => "off".to_owned(),
        Some(UntrustedRule::Only(flag)) => format!("`{flag}`"),
        Some(UntrustedRule::OnlyText(text)) => format!("`{text}`"),
        Some(UntrustedRule::Lowers(_)) => "lower".to_owned(),
        Some(UntrustedRule::BuiltInAgent) => "built-in agent".to_owned(),
        Some(UntrustedRule::FileInFolder) => "file in the folder".to_owned(),
    }
}

fn assert_same(documented: &BTreeSet<String>, actual: &BTreeSet<String>) {
    let missing: Vec<_> = actual.difference(documented).collect();
    let outdated: Vec<_> = documented.difference(actual).collect();
    assert!(
        missing.is_empty() && outdated.is_empty(),
        "docs/configuration.md lacks these rows (section, key, value, what a folder may set):\n{missing:#?}\n\
         and has these, which are not so:\n{outdated:#?}"
    );
}

#[test]
fn tables_of_keys_are_what_the_program_reads() {
    let (_, tables) = PAGE.split_once(KEYS).unwrap();
    let (tables, _) = tables.split_once(KEYS_WITHOUT_EFFECT).unwrap();
    let documented = rows(tables).into_iter().map(|(section, cells)| {
        assert_eq!(
            cells.len(),
            6,
            "a row of {section} is: key, value, default, folder, description: {cells:?}"
        );
        format!("{section} {}: {} ({})", cells[0], cells[1].trim_matches('`'), cells[3].trim_matches('`'))
    });
    let actual = keys::all().filter(|key| key.has_effect).map(|key| {
        let value = value(key.kind).trim_matches('`');
        format!("{} {}: {value} ({})", key.section, key.name, folder_may_set(key).trim_matches('`'))
    });
    assert_same(&documented.collect(), &actual.collect());
}

#[test]
fn keys_without_effect_are_listed() {
    let (_, table) = PAGE.split_once(KEYS_WITHOUT_EFFECT).unwrap();
    let documented = rows(table).into_iter().flat_map(|(_, cells)| {
        let section = cells[0].trim_matches(['[', ']']);
        cells[1]
            .split(", ")
            .map(move |name| format!("{section} {}", name.trim_matches('`')))
            .collect::<Vec<_>>()
    });
    let actual = keys::all().filter(|key| !key.has_effect).map(|key| format!("{} {}", key.section, key.name));
    assert_same(&documented.collect(), &actual.collect());
}
