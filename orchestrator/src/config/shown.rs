//! Every key with its value and the source of the value, for `glovebox config show`.
//!
//! Defaults come from `docs/configuration.md`, which a test compares with the program. Values that
//! may be secret are masked.

use std::collections::BTreeMap;

use super::keys::{self, Key, Kind};
use super::layers::Layers;
use super::settings::{ConfigError, Origin, Setting, Settings};
use super::{Overrides, agent, environment};
use engine::agent::AgentDefinition;

/// The page with the tables of keys.
pub(super) const PAGE: &str = include_str!("../../../docs/configuration.md");

/// The heading of the tables of keys.
pub(super) const KEYS: &str = "## Keys\n";

/// The heading of the table of keys without effect.
pub(super) const KEYS_WITHOUT_EFFECT: &str = "## Keys without effect\n";

/// Shown in place of a secret.
const MASK: &str = "***";

/// Names of fields that are shown in tables with secrets.
const SHOWN_FIELDS: [&str; 4] = ["name", "timeout", "command", "run_in"];

/// A key, its value and where the value comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShownValue {
    /// Section and name, with the name of the group between them.
    pub key: String,
    /// The value, without secrets. `None` if the key has no default.
    pub value: Option<toml::Value>,
    /// Where the value comes from.
    pub origin: Origin,
}

/// Returns the values of all keys with an effect, also in groups, and the names of secrets.
///
/// # Errors
/// See [`Config::load`](super::Config::load).
pub(crate) fn shown_values(
    overrides: &Overrides,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<ShownValue>, ConfigError> {
    let layers = Layers::read(overrides, &variable)?;
    let mut settings = layers.file.base.clone();
    settings.overlay(environment::read(&variable)?);
    let options = from_command_line(overrides);
    let find = |settings: &Settings, key: Key| {
        let option = options
            .iter()
            .find(|(section, name, _)| (*section, *name) == (key.section, key.name));
        option
            .map(|(.., setting)| setting)
            .or_else(|| settings.find(key.section, key.name))
            .cloned()
    };
    let agent_name = keys::find("core", "default_agent").and_then(|key| find(&settings, key));
    let agent_name = agent_name.as_ref().and_then(|name| name.value.as_str());
    let agent_name = agent::section_name(agent_name.unwrap_or(AgentDefinition::CODE_ACT));
    settings.overlay(
        layers
            .file
            .group("agent", agent_name)
            .cloned()
            .unwrap_or_default(),
    );
    let model = overrides
        .model
        .clone()
        .or_else(|| settings.text("agent", "llm_config"));
    let group = model
        .and_then(|name| layers.file.group("llm", &name))
        .cloned();
    settings.overlay(group.unwrap_or_default());

    let defaults = documented_defaults();
    let current = keys::all()
        .filter(|key| key.has_effect && keys::current_name(key.section, key.name).is_none())
        .map(|key| match find(&settings, key) {
            Some(setting) => shown(format!("{}.{}", key.section, key.name), key, setting),
            None => ShownValue {
                key: format!("{}.{}", key.section, key.name),
                value: defaults
                    .get(&(key.section, key.name))
                    .map(|text| to_value(key.kind, text)),
                origin: Origin::Program,
            },
        });
    let groups = layers
        .file
        .groups
        .iter()
        .flat_map(|((section, group), settings)| {
            settings.iter().filter_map(move |(_, name, setting)| {
                let key = keys::find(section, name).filter(|key| key.has_effect)?;
                Some(shown(
                    format!("{section}.{group}.{name}"),
                    key,
                    setting.clone(),
                ))
            })
        });
    let secrets = layers
        .file
        .secrets
        .iter()
        .map(|(name, setting)| ShownValue {
            key: format!("secrets.{name}"),
            value: Some(MASK.into()),
            origin: setting.origin.clone(),
        });
    Ok(current.chain(groups).chain(secrets).collect())
}

/// The values that options of the command line give to keys.
fn from_command_line(overrides: &Overrides) -> Vec<(&'static str, &'static str, Setting)> {
    // Without `..`, so that a new option has to be considered.
    let Overrides {
        config_file: _,
        without_folder_file: _,
        model,
        agent,
        max_iterations,
        max_budget,
        store,
        blobs,
        runtime,
        image,
        network,
        unsafe_local,
        unsafe_directory: _,
        ssh_host,
        save_trajectory,
        selected_repository,
        secrets: _,
    } = overrides;
    let text = |text: &Option<String>| text.clone().map(toml::Value::String);
    let path = save_trajectory
        .as_ref()
        .map(|path| path.to_string_lossy().into_owned().into());
    let values: [(_, _, _, Option<toml::Value>); 13] = [
        ("llm", "model", "--model", text(model)),
        ("core", "default_agent", "--agent", text(agent)),
        (
            "core",
            "max_iterations",
            "--max-iterations",
            max_iterations.map(|steps| i64::from(steps).into()),
        ),
        (
            "core",
            "max_budget_per_task",
            "--max-budget-per-task",
            max_budget.map(toml::Value::Float),
        ),
        ("store", "url", "--store", text(store)),
        ("store", "blobs", "--blobs", text(blobs)),
        (
            "core",
            "runtime",
            "--runtime",
            runtime.map(|runtime| runtime.name().into()),
        ),
        ("sandbox", "base_container_image", "--image", text(image)),
        ("sandbox", "network", "--network", text(network)),
        (
            "sandbox",
            "unsafe_local",
            "--unsafe-local",
            unsafe_local.then(|| true.into()),
        ),
        ("sandbox", "ssh_host", "--host", text(ssh_host)),
        ("core", "save_trajectory_path", "--save-trajectory", path),
        (
            "sandbox",
            "selected_repo",
            "--selected-repo",
            text(selected_repository),
        ),
    ];
    let values = values
        .into_iter()
        .filter_map(|(section, name, option, value)| {
            Some((
                section,
                name,
                Setting {
                    value: value?,
                    origin: Origin::CommandLine(option),
                },
            ))
        });
    values.collect()
}

fn shown(key: String, known: Key, Setting { value, origin }: Setting) -> ShownValue {
    let value = match keys::is_secret(known.section, known.name) {
        true => masked(value),
        false => without_credentials(value),
    };
    ShownValue {
        key,
        value: Some(value),
        origin,
    }
}

/// Masks a value. In tables, the fields in [`SHOWN_FIELDS`] stay.
fn masked(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Array(values) => toml::Value::Array(values.into_iter().map(masked).collect()),
        toml::Value::Table(table) => {
            let entries = table.into_iter().map(|(name, value)| {
                let value = if SHOWN_FIELDS.contains(&name.as_str()) {
                    value
                } else {
                    masked(value)
                };
                (name, value)
            });
            toml::Value::Table(entries.collect())
        }
        _ => MASK.into(),
    }
}

/// Masks the user, the password and the query of addresses.
fn without_credentials(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) => match text.split_once("://") {
            Some((scheme, rest)) => {
                let (rest, query) = rest
                    .split_once('?')
                    .map_or((rest, ""), |(rest, _)| (rest, "?***"));
                let rest = rest
                    .rsplit_once('@')
                    .map_or(rest.to_owned(), |(_, rest)| format!("{MASK}@{rest}"));
                format!("{scheme}://{rest}{query}").into()
            }
            None => text.into(),
        },
        toml::Value::Array(values) => {
            toml::Value::Array(values.into_iter().map(without_credentials).collect())
        }
        toml::Value::Table(table) => toml::Value::Table(
            table
                .into_iter()
                .map(|(name, value)| (name, without_credentials(value)))
                .collect(),
        ),
        other => other,
    }
}

/// The defaults of the tables of keys, by section and name.
fn documented_defaults() -> BTreeMap<(&'static str, &'static str), String> {
    let tables = PAGE.split_once(KEYS).map_or("", |(_, tables)| tables);
    let tables = tables
        .split_once(KEYS_WITHOUT_EFFECT)
        .map_or("", |(tables, _)| tables);
    let defaults = rows(tables).into_iter().filter_map(|(section, cells)| {
        let default = cells
            .get(2)
            .map(|text| text.replace('`', ""))
            .filter(|text| !text.is_empty());
        Some(((section, *cells.first()?), default?))
    });
    defaults.collect()
}

/// The cells of each row, with the third-level heading above it. Leaves out heads and rulers of
/// tables.
pub(super) fn rows(part: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut section, mut rows) = ("", Vec::new());
    for line in part.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = heading;
        } else if let Some(row) = line.strip_prefix("| `") {
            rows.push((
                section,
                row.split('|')
                    .map(|cell| cell.trim().trim_end_matches('`'))
                    .collect(),
            ));
        }
    }
    rows
}

/// Converts a documented default, which may be a description such as `by model`.
fn to_value(kind: Kind, text: &str) -> toml::Value {
    let value = match kind {
        Kind::Integer | Kind::Number => text
            .parse()
            .map(toml::Value::Integer)
            .ok()
            .or_else(|| text.parse().map(toml::Value::Float).ok()),
        Kind::Flag => text.parse().map(toml::Value::Boolean).ok(),
        _ => None,
    };
    value.unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a key and its source, for these files and variables.
    fn find(file: &str, overrides: Overrides, key: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, file).unwrap();
        let overrides = Overrides {
            config_file: Some(path.clone()),
            ..overrides
        };
        let variable = |name: &str| match name {
            "HOME" => Some("/nowhere".to_owned()),
            "LLM_API_KEY" => Some("key-of-the-test".to_owned()),
            "MAX_ITERATIONS" => Some("7".to_owned()),
            _ => None,
        };
        let values = shown_values(&overrides, variable).unwrap();
        let found = values.into_iter().find(|value| value.key == key).unwrap();
        let origin = found
            .origin
            .to_string()
            .replace(&*path.to_string_lossy(), "FILE");
        (
            found
                .value
                .map(|value| value.to_string())
                .unwrap_or_default(),
            origin,
        )
    }

    #[test]
    fn value_is_shown_with_its_source() {
        let file = "[core]\nruntime = 'local'\nmax_iterations = 3\n[llm.fast]\nmodel = 'm'\n[sandbox]\ncpus = 1\n";
        let shown = |key| find(file, Overrides::default(), key);
        let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
        assert_eq!(shown("core.runtime"), pair("\"local\"", "FILE:2"));
        assert_eq!(
            shown("core.max_iterations"),
            pair("7", "environment variable MAX_ITERATIONS")
        );
        assert_eq!(shown("llm.fast.model"), pair("\"m\"", "FILE:5"));
        assert_eq!(shown("llm.num_retries"), pair("5", "default"));
        assert_eq!(
            shown("llm.max_input_tokens"),
            pair("\"by model\"", "default")
        );
        assert_eq!(shown("llm.model"), pair("", "default"));
        let overrides = Overrides {
            max_iterations: Some(9),
            ..Overrides::default()
        };
        assert_eq!(
            find(file, overrides, "core.max_iterations"),
            pair("9", "option --max-iterations")
        );
        let agent = "[core]\ndefault_agent = 'mine'\n[agent]\nenable_cmd = true\n[agent.mine]\nenable_cmd = false\n";
        assert_eq!(
            find(agent, Overrides::default(), "agent.enable_cmd"),
            pair("false", "FILE:6")
        );
    }

    #[test]
    fn secrets_are_masked() {
        let file = "[store]\nurl = 'postgres://me:hidden@db/a?password=hidden'\n\
                    [mcp]\nstdio_servers = [{name = 's', command = 'tickets', args = ['hidden'], env = {A = 'hidden'}}]\n\
                    [sandbox]\nruntime_startup_env_vars = {TOKEN = 'hidden'}\nselected_repo = 'https://hidden@host/a'\n\
                    [secrets]\nDEPLOY = 'hidden'\n";
        for (key, expected) in [
            ("llm.api_key", "\"***\""),
            ("store.url", "\"postgres://***@db/a?***\""),
            ("sandbox.selected_repo", "\"https://***@host/a\""),
            ("sandbox.runtime_startup_env_vars", "{ TOKEN = \"***\" }"),
            ("secrets.DEPLOY", "\"***\""),
        ] {
            assert_eq!(find(file, Overrides::default(), key).0, expected, "{key}");
        }
        let (servers, _) = find(file, Overrides::default(), "mcp.stdio_servers");
        assert!(
            servers.contains("name = \"s\"")
                && servers.contains("command = \"tickets\"")
                && !servers.contains("hidden"),
            "{servers}"
        );
    }

    #[test]
    fn key_whose_name_says_secret_is_masked() {
        const WORDS: [&str; 4] = ["key", "secret", "password", "env_vars"];
        for key in keys::all().filter(|key| key.has_effect && key.kind != Kind::Flag) {
            let says_secret = WORDS.iter().any(|word| {
                key.name.split('_').any(|part| part == *word) || key.name.ends_with(word)
            });
            assert!(
                !says_secret || keys::is_secret(key.section, key.name),
                "{}.{}",
                key.section,
                key.name
            );
        }
    }
}
