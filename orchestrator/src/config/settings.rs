//! Validated values by section and key.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use engine::agent::Prompt;
use engine::sandbox::{Volume, VolumeError};

use sandbox_client::ServerUrl;

use super::agent::is_narrower;
use super::keys::{self, Kind, UntrustedRule};
use super::mcp;
use super::runtime::Runtime;
use super::sandbox::UnknownHostPolicy;

/// Returns the next step for a file that cannot be read. The file of the current folder is read by
/// its name alone.
fn next_step(path: &Path, error: &std::io::Error) -> String {
    match std::env::current_dir() {
        Ok(folder)
            if path.is_relative() && error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            format!(
                " of the folder {} (change to another one, or add --config-file FILE)",
                folder.display()
            )
        }
        _ => String::new(),
    }
}

/// An invalid configuration, which the user has to correct.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read {path}{}", next_step(path, source))]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not UTF-8: byte {byte}")]
    NotUtf8 {
        path: PathBuf,
        /// The first byte that is wrong, from 0.
        byte: usize,
    },
    #[error("{path}:{line}: {problem}")]
    NotToml {
        path: PathBuf,
        line: usize,
        problem: String,
    },
    /// The file of the current folder, which may be another program's.
    #[error("{0}; is it the file of another program? --config-file FILE reads FILE instead")]
    FolderFile(Box<Self>),
    /// A value has the wrong type or is out of range.
    #[error("{origin}: {key} must be {expected}, not {found}")]
    BadValue {
        origin: Origin,
        key: String,
        expected: &'static str,
        /// The value, or its type if the value may be secret.
        found: String,
    },
    /// An MCP server cannot be used as it is configured.
    #[error("{origin}: {key}: {problem}")]
    BadServer {
        origin: Origin,
        key: String,
        /// The server and its problem, without values, which may be secret.
        problem: String,
    },
    #[error("sandbox.runtime_startup_env_vars: the variable {name:?} {problem}")]
    BadVariable {
        name: String,
        /// The problem, without the value, which may be secret.
        problem: &'static str,
    },
    #[error("condenser: {0}")]
    Condenser(String),
    #[error("store: {0}")]
    Store(String),
    /// The model router is unknown or lacks its model.
    #[error("model_routing: {0}")]
    Routing(String),
    #[error("core.title_llm_config: there is no [llm.{0}]")]
    NoTitleModel(String),
    #[error("the secret {name:?} {problem}")]
    BadSecret { name: String, problem: String },
    /// The state folder is unknown.
    #[error("HOME is not set: set it, or file_store_path (FILE_STORE_PATH)")]
    NoHome,
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file and its line, from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// An option of the command line.
    CommandLine(&'static str),
    /// The program itself.
    Program,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::CommandLine(option) => write!(f, "option {option}"),
            Self::Program => f.write_str("default"),
        }
    }
}

/// Values of known keys. Each has the type of its key.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    values: BTreeMap<(&'static str, &'static str), Setting>,
}

/// A value and its source.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) value: toml::Value,
    pub(super) origin: Origin,
}

/// Names only: values may be secret.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Settings {
    /// Validates and sets the value of a key. An old name only sets a key that its current name
    /// does not set.
    pub(super) fn set(
        &mut self,
        key: keys::Key,
        value: toml::Value,
        origin: Origin,
    ) -> Result<(), ConfigError> {
        if key.kind == Kind::Servers
            && let Err(problem) = mcp::servers(key.name, &value)
        {
            return Err(ConfigError::BadServer {
                origin,
                key: format!("{}.{}", key.section, key.name),
                problem,
            });
        }
        if !fits(key.kind, &value) {
            let found = match (key.kind, &value) {
                // A string in place of a number may be a secret.
                (Kind::Integer | Kind::Number, toml::Value::Integer(number)) => number.to_string(),
                (Kind::Integer | Kind::Number, toml::Value::Float(number)) => number.to_string(),
                (
                    Kind::Size
                    | Kind::Volumes
                    | Kind::Url
                    | Kind::Runtime
                    | Kind::UnknownHosts
                    | Kind::Confirmation
                    | Kind::Router,
                    toml::Value::String(text),
                ) => {
                    format!("{text:?}")
                }
                (_, other) => format!("a value of type {}", other.type_str()),
            };
            return Err(ConfigError::BadValue {
                origin,
                key: format!("{}.{}", key.section, key.name),
                expected: key.kind.expected(),
                found,
            });
        }
        let setting = Setting { value, origin };
        match keys::current_name(key.section, key.name) {
            Some(name) => _ = self.values.entry((key.section, name)).or_insert(setting),
            None => _ = self.values.insert((key.section, key.name), setting),
        }
        Ok(())
    }

    /// Overlays other values, which win over these.
    pub(super) fn overlay(&mut self, other: Self) {
        self.values.extend(other.values);
    }

    /// Removes what an untrusted file may not set over `own`, the user's own settings. Returns the
    /// removed keys.
    pub(super) fn retain_untrusted(&mut self, own: &Self) -> Vec<String> {
        let mut removed = Vec::new();
        self.values.retain(|(section, name), setting| {
            let own_value = own.value(section, name);
            let has_effect = keys::find(section, name).is_none_or(|key| key.has_effect);
            let is_allowed = !has_effect
                || keys::untrusted_rule(section, name)
                    .is_some_and(|rule| is_allowed(rule, &setting.value, own_value, own));
            if !is_allowed {
                removed.push(format!("{section}.{name}"));
            }
            is_allowed
        });
        removed
    }

    /// Makes the path of a prompt, which is relative to this folder, absolute. V0's prompt names
    /// stay.
    pub(super) fn resolve_prompt(&mut self, folder: &Path) {
        let prompt = self.values.get_mut(&("agent", "system_prompt_filename"));
        if let Some(toml::Value::String(file)) = prompt.map(|setting| &mut setting.value)
            && !file.is_empty()
            && Prompt::by_v0_name(file).is_none()
        {
            *file = folder.join(&*file).to_string_lossy().into_owned();
        }
    }

    /// A warning about the keys that this version ignores. `None` if there are none.
    pub(super) fn without_effect(&self) -> Option<String> {
        let names: Vec<_> = self
            .values
            .keys()
            .filter(|(section, name)| keys::find(section, name).is_some_and(|key| !key.has_effect))
            .map(
                |(section, name)| match keys::replacement_hint(section, name) {
                    Some(hint) => format!("{section}.{name} ({hint})"),
                    None => format!("{section}.{name}"),
                },
            )
            .collect();
        (!names.is_empty()).then(|| format!("without effect in this version: {}", names.join(", ")))
    }

    /// A string. `None` if it is empty.
    pub(crate) fn text(&self, section: &str, name: &str) -> Option<String> {
        let text = self.value(section, name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A path. `None` if it is empty.
    pub(crate) fn path(&self, section: &str, name: &str) -> Option<PathBuf> {
        self.text(section, name).map(PathBuf::from)
    }

    /// A whole number.
    pub(crate) fn integer(&self, section: &str, name: &str) -> Option<u64> {
        u64::try_from(self.value(section, name)?.as_integer()?).ok()
    }

    /// Sets a key that has no value.
    pub(super) fn set_default_integer(
        &mut self,
        section: &'static str,
        name: &'static str,
        value: u32,
    ) {
        let setting = Setting {
            value: i64::from(value).into(),
            origin: Origin::Program,
        };
        self.values.entry((section, name)).or_insert(setting);
    }

    /// A number, written with or without a point.
    pub(crate) fn number(&self, section: &str, name: &str) -> Option<f64> {
        to_number(self.value(section, name)?)
    }

    /// A size, in bytes.
    pub(crate) fn size(&self, section: &str, name: &str) -> Option<u64> {
        self.value(section, name)?.as_str().and_then(size_in_bytes)
    }

    /// Volumes to mount.
    pub(crate) fn volumes(&self, section: &str, name: &str) -> Vec<Volume> {
        self.text(section, name)
            .and_then(|text| volumes(&text).ok())
            .unwrap_or_default()
    }

    /// A truth value.
    pub(crate) fn flag(&self, section: &str, name: &str) -> Option<bool> {
        self.value(section, name)?.as_bool()
    }

    /// Whether a key has a value.
    pub(super) fn has(&self, section: &str, name: &str) -> bool {
        self.value(section, name).is_some()
    }

    /// The strings of a list.
    pub(crate) fn list(&self, section: &str, name: &str) -> Vec<String> {
        let values = self
            .value(section, name)
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten();
        values
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    }

    /// A table, as JSON.
    pub(crate) fn table(
        &self,
        section: &str,
        name: &str,
    ) -> Option<serde_json::Map<String, serde_json::Value>> {
        match serde_json::to_value(self.value(section, name)?.as_table()?) {
            Ok(serde_json::Value::Object(map)) => Some(map),
            _ => None,
        }
    }

    /// A list of tables, as JSON.
    pub(crate) fn tables(&self, section: &str, name: &str) -> Option<serde_json::Value> {
        serde_json::to_value(self.value(section, name)?).ok()
    }

    /// A whole section, as JSON.
    pub(super) fn section(&self, section: &str) -> serde_json::Map<String, serde_json::Value> {
        let values = self
            .values
            .iter()
            .filter(|((key_section, _), _)| *key_section == section);
        values
            .filter_map(|((_, name), setting)| {
                Some((
                    (*name).to_owned(),
                    serde_json::to_value(&setting.value).ok()?,
                ))
            })
            .collect()
    }

    /// The value of a key, of any type.
    pub(super) fn value(&self, section: &str, name: &str) -> Option<&toml::Value> {
        self.find(section, name).map(|setting| &setting.value)
    }

    /// The value of a key with its source.
    pub(super) fn find(&self, section: &str, name: &str) -> Option<&Setting> {
        self.values
            .iter()
            .find(|((s, n), _)| (*s, *n) == (section, name))
            .map(|(_, setting)| setting)
    }

    /// All values with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, &Setting)> {
        self.values
            .iter()
            .map(|((section, name), setting)| (*section, *name, setting))
    }
}

/// Whether an untrusted file may set this value, where the user's own settings hold `own` for the
/// key.
fn is_allowed(
    rule: UntrustedRule,
    value: &toml::Value,
    own: Option<&toml::Value>,
    settings: &Settings,
) -> bool {
    match rule {
        UntrustedRule::Any => true,
        UntrustedRule::StaysOff => {
            value.as_bool() == Some(false) || own.is_none_or(|own| own == value)
        }
        UntrustedRule::Only(flag) => value.as_bool() == Some(flag),
        UntrustedRule::OnlyText(text) => value.as_str() == Some(text),
        UntrustedRule::Lowers(default) => {
            // The user's 0 means no limit, or the default one.
            let limit = own
                .and_then(to_number)
                .filter(|number| *number > 0.0)
                .unwrap_or(default);
            to_number(value).is_some_and(|number| number > 0.0 && number <= limit)
        }
        UntrustedRule::BuiltInAgent => {
            own.is_none()
                && value
                    .as_str()
                    .is_some_and(|name| is_narrower(name, settings))
        }
        UntrustedRule::FileInFolder => {
            let is_in_folder = |file| {
                let mut parts = Path::new(file).components();
                parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
            };
            own.is_none() && value.as_str().is_some_and(is_in_folder)
        }
    }
}

/// A number, written with or without a point.
fn to_number(value: &toml::Value) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "a configured number is small")]
        toml::Value::Integer(number) => Some(*number as f64),
        other => other.as_float(),
    }
}

fn fits(kind: Kind, value: &toml::Value) -> bool {
    match kind {
        Kind::Text => value.is_str(),
        Kind::Integer => value.as_integer().is_some_and(|number| number >= 0),
        Kind::Number => {
            value
                .as_float()
                .is_some_and(|number| number.is_finite() && number >= 0.0)
                || value.as_integer().is_some_and(|number| number >= 0)
        }
        Kind::Flag => value.is_bool(),
        Kind::Size => value
            .as_str()
            .is_some_and(|text| size_in_bytes(text).is_some()),
        Kind::Volumes => value.as_str().is_some_and(|text| volumes(text).is_ok()),
        Kind::Url => value
            .as_str()
            .is_some_and(|text| text.is_empty() || text.parse::<ServerUrl>().is_ok()),
        Kind::Runtime => value
            .as_str()
            .is_some_and(|text| text.is_empty() || text.parse::<Runtime>().is_ok()),
        Kind::UnknownHosts => value
            .as_str()
            .is_some_and(|text| UnknownHostPolicy::from_name(text).is_some()),
        // `Settings::set` has validated each server.
        Kind::Servers => value.is_array(),
        Kind::Confirmation => {
            matches!(
                value.as_str(),
                Some("never" | "low" | "medium" | "high" | "always")
            )
        }
        Kind::Router => matches!(value.as_str(), Some("noop_router" | "multimodal_router")),
        Kind::List => value
            .as_array()
            .is_some_and(|values| values.iter().all(toml::Value::is_str)),
        Kind::Table => value.is_table(),
        Kind::Tables => value
            .as_array()
            .is_some_and(|values| values.iter().all(toml::Value::is_table)),
        Kind::Any => true,
    }
}

/// Parses a size in Docker's notation, such as `512m`: units are powers of 1,024, and a number
/// without a unit is bytes.
pub(crate) fn size_in_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()
        .filter(|number| *number > 0)?
        .checked_mul(1 << shift)
}

fn volumes(text: &str) -> Result<Vec<Volume>, VolumeError> {
    text.split(',')
        .filter(|volume| !volume.trim().is_empty())
        .map(str::parse)
        .collect()
}
