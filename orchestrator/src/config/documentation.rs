//! Tests that `docs/configuration.md` lists every key, with the kind of its value, its default, and
//! what an untrusted file may set.

use std::collections::{BTreeMap, BTreeSet};

use sandbox_remote::RemoteRuntimeConfig;

use super::keys::{self, Key, Kind, UntrustedRule};
use super::settings::Settings;
use super::shown::{KEYS, KEYS_WITHOUT_EFFECT, PAGE, rows};
use super::{Config, LlmSettings, Overrides};
use crate::compose;

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
        format!(
            "{section} {}: {} ({})",
            cells[0],
            cells[1].trim_matches('`'),
            cells[3].trim_matches('`')
        )
    });
    let actual = keys::all().filter(|key| key.has_effect).map(|key| {
        let value = value(key.kind).trim_matches('`');
        format!(
            "{} {}: {value} ({})",
            key.section,
            key.name,
            folder_may_set(key).trim_matches('`')
        )
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
    let actual = keys::all()
        .filter(|key| !key.has_effect)
        .map(|key| format!("{} {}", key.section, key.name));
    assert_same(&documented.collect(), &actual.collect());
}

/// Defaults that the table describes because no single value of the key is the default, and
/// defaults of keys whose effect [`resolve`] does not show.
fn described_defaults() -> BTreeMap<(&'static str, &'static str), String> {
    let remote = RemoteRuntimeConfig::new("http://h".parse().unwrap(), String::new().into());
    let [analyzer, model_analyzer] = [compose::ANALYZER_TIMEOUT, compose::MODEL_ANALYZER_TIMEOUT]
        .map(|timeout| timeout.as_secs());
    BTreeMap::from([
        (("core", "max_budget_per_task"), "none".to_owned()),
        (("llm", "base_url"), "the provider's".to_owned()),
        (("llm", "top_k"), String::new()),
        (("llm", "max_input_tokens"), "by model".to_owned()),
        (("llm", "max_output_tokens"), "by model".to_owned()),
        (("llm", "native_tool_calling"), "by model".to_owned()),
        (("llm", "disable_vision"), "by model".to_owned()),
        (("llm", "input_cost_per_token"), "by model".to_owned()),
        (("llm", "output_cost_per_token"), "by model".to_owned()),
        (("llm", "seed"), String::new()),
        (
            ("llm", "log_completions_folder"),
            "`completions` in the state folder".to_owned(),
        ),
        (("llm", "for_routing"), "false".to_owned()),
        (("agent", "codeact_enable_jupyter"), String::new()),
        (("agent", "codeact_enable_browsing"), String::new()),
        (("agent", "codeact_enable_llm_editor"), String::new()),
        (
            ("agent", "enable_som_visual_browsing"),
            "`false`; `true` for `VisualBrowsingAgent`".to_owned(),
        ),
        (("condenser", "attention_window"), "by type".to_owned()),
        (("condenser", "llm_config"), "the agent's model".to_owned()),
        (
            ("sandbox", "base_container_image"),
            sandbox_docker::DEFAULT_IMAGE.to_owned(),
        ),
        (("sandbox", "platform"), "the engine's".to_owned()),
        (("sandbox", "cuda_visible_devices"), "all".to_owned()),
        (
            ("sandbox", "ssh_unknown_hosts"),
            "`ask` at a terminal, else `refuse`".to_owned(),
        ),
        (
            ("sandbox", "remote_runtime_init_timeout"),
            remote.init_timeout.as_secs().to_string(),
        ),
        (
            ("sandbox", "remote_runtime_api_timeout"),
            remote.api_timeout.as_secs().to_string(),
        ),
        (
            ("sandbox", "remote_runtime_resource_factor"),
            remote.resource_factor.to_string(),
        ),
        (
            ("mcp", "max_listed_tool_tokens"),
            "a tenth of the window".to_owned(),
        ),
        (("store", "blobs"), "`blobs` in the state folder".to_owned()),
        (
            ("security", "security_analyzer_timeout"),
            format!("{analyzer}; {model_analyzer} for `invariant` and `grayswan`"),
        ),
    ])
}

/// Settings without which a key has no effect.
fn required_settings(section: &str, name: &str) -> &'static str {
    match (section, name) {
        ("llm", "model") => "",
        ("llm", "ollama_base_url") => "llm.model = 'ollama/m'",
        ("llm", _) => "llm.model = 'm'",
        ("agent", "enable_mcp") => "mcp.shttp_servers = ['http://h']",
        ("condenser", "max_events") => "condenser.type = 'recent'",
        ("condenser", "keep_first" | "max_size" | "max_event_length") => "condenser.type = 'llm'",
        ("sandbox", "pause_closed_runtimes") => "sandbox.keep_runtime_alive = true",
        _ => "",
    }
}

/// Loads the settings and formats the result: the configuration and the requests to models.
fn resolve(settings: &str) -> String {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), settings).unwrap();
    let overrides = Overrides {
        config_file: Some(file.path().to_owned()),
        ..Default::default()
    };
    let variable = |name: &str| (name == "HOME").then(|| "/nowhere".to_owned());
    match Config::load(&overrides, variable) {
        Ok(mut config) => {
            let requests: Vec<_> = compose::provider_models(&config)
                .map(|(_, llm)| format!("{llm:?}"))
                .collect();
            let logs_completions = config.llm.logs_completions;
            // These differ even if the effect is the same.
            config.files.clear();
            config.llm = LlmSettings::from_group(&Settings::default(), &Settings::default());
            format!("{config:?} {requests:?} {logs_completions}")
        }
        Err(error) => error.to_string(),
    }
}

fn to_toml(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Flag | Kind::Integer | Kind::Number => value.to_owned(),
        _ => format!("'{value}'"),
    }
}

/// A value that is not the default.
fn other_value(kind: Kind, default: &str) -> String {
    match kind {
        Kind::Flag => (default != "true").to_string(),
        Kind::Integer | Kind::Number => (default.parse::<u64>().unwrap() + 1).to_string(),
        Kind::Size => "7g".to_owned(),
        Kind::Url => "http://other".to_owned(),
        Kind::Runtime => "local".to_owned(),
        Kind::Router => "multimodal_router".to_owned(),
        _ => "/other".to_owned(),
    }
}

/// Compares a default with the program: setting it changes nothing, and setting another value does.
fn problem_of_default(key: Key, default: &str) -> Option<&'static str> {
    let Key {
        section,
        name,
        kind,
        ..
    } = key;
    if default.is_empty() {
        let has_no_default = !matches!(
            kind,
            Kind::Flag | Kind::Integer | Kind::Number | Kind::Size | Kind::Runtime | Kind::Router
        );
        return (!has_no_default).then_some("has no default in the table");
    }
    let required = required_settings(section, name);
    let with = |value: &str| {
        resolve(&format!(
            "{required}\n{section}.{name} = {}\n",
            to_toml(kind, value)
        ))
    };
    let without = resolve(required);
    if with(default) != without {
        Some("has another default in the program")
    } else if with(&other_value(kind, default)) == without {
        Some("has no effect that this test sees")
    } else {
        None
    }
}

#[test]
fn defaults_in_the_tables_are_those_of_the_program() {
    let (_, tables) = PAGE.split_once(KEYS).unwrap();
    let (tables, _) = tables.split_once(KEYS_WITHOUT_EFFECT).unwrap();
    let described = described_defaults();
    let problems = rows(tables).into_iter().filter_map(|(section, cells)| {
        let (name, default) = (cells[0], cells[2].trim_matches('`'));
        let problem = match described.get(&(section, name)) {
            Some(expected) if expected.trim_matches('`') == default => return None,
            Some(expected) => format!("is documented as {default:?}, and is {expected:?}"),
            None => problem_of_default(keys::find(section, name)?, default)?.to_owned(),
        };
        Some(format!("{section}.{name} {problem}"))
    });
    let problems: Vec<_> = problems.collect();
    assert!(
        problems.is_empty(),
        "docs/configuration.md, column Default:\n{}",
        problems.join("\n")
    );
}
