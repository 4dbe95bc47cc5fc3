//! A `config.toml`: its sections, and groups such as `[llm.fast]` which inherit from their section.

use std::collections::BTreeMap;
use std::path::Path;

use engine::agent::AgentDefinition;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::keys::{self, Key};
use super::settings::{ConfigError, Origin, Setting, Settings};

/// Maximum number of warnings about one file. Further ones are only counted.
const MAX_WARNINGS: usize = 20;

/// Maximum length of a name in a warning, in characters.
const MAX_SHOWN_NAME: usize = 60;

/// Content of a file, or of several that were merged.
#[derive(Clone, Default)]
pub(super) struct ConfigFile {
    /// The sections' own keys.
    pub(super) base: Settings,
    /// The groups' keys, by section and name.
    pub(super) groups: BTreeMap<(String, String), Settings>,
    /// Entries of `[secrets]`, by name.
    pub(super) secrets: BTreeMap<String, Setting>,
}

impl ConfigFile {
    /// The keys of the group `[section.name]`. `None` if there is no such group.
    pub(super) fn group(&self, section: &str, name: &str) -> Option<&Settings> {
        self.groups.get(&(section.to_owned(), name.to_owned()))
    }

    /// The sections' own keys, overlaid with those of a group.
    fn with_group(&self, section: &str, name: &str) -> Settings {
        let mut settings = self.base.clone();
        settings.overlay(self.group(section, name).cloned().unwrap_or_default());
        settings
    }

    /// Overlays the keys of a file that wins over this one.
    pub(super) fn overlay(&mut self, other: Self) {
        self.base.overlay(other.base);
        for (name, group) in other.groups {
            self.groups.entry(name).or_default().overlay(group);
        }
        self.secrets.extend(other.secrets);
    }

    /// Removes what an untrusted file may not set over `own`, the user's own configuration. Returns
    /// the removed keys.
    pub(super) fn retain_untrusted(&mut self, own: &Self) -> Vec<String> {
        // CodeActAgent is the agent if the folder's file names none.
        let mut removed = self
            .base
            .retain_untrusted(&own.with_group("agent", AgentDefinition::CODE_ACT));
        self.groups.retain(|(section, name), group| {
            // A group of `llm` is never kept: its name could hide the model of the same name.
            let removed_keys = match section.as_str() {
                "agent" => group.retain_untrusted(&own.with_group(section, name)),
                _ => std::mem::take(group).retain_untrusted(&own.base),
            };
            removed.extend(
                removed_keys
                    .into_iter()
                    .map(|key| match key.split_once('.') {
                        Some((section, key)) => format!("{section}.{name}.{key}"),
                        None => key,
                    }),
            );
            section == "agent"
        });
        if !std::mem::take(&mut self.secrets).is_empty() {
            removed.push("secrets".to_owned());
        }
        removed
    }

    /// Makes paths of prompts absolute. They are relative to the file's folder.
    pub(super) fn resolve_prompts(&mut self, folder: &Path) {
        let groups = self.groups.values_mut();
        groups
            .chain([&mut self.base])
            .for_each(|settings| settings.resolve_prompt(folder));
    }
}

/// Parses the content of a file. Returns it with the warnings.
pub(super) fn parse(
    path: &Path,
    content: Vec<u8>,
) -> Result<(ConfigFile, Vec<String>), ConfigError> {
    let text = String::from_utf8(content).map_err(|error| ConfigError::NotUtf8 {
        path: path.to_owned(),
        byte: error.utf8_error().valid_up_to(),
    })?;
    let line_starts = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut reader = FileReader {
        path,
        line_starts,
        file: ConfigFile::default(),
        warnings: Vec::new(),
        more_warnings: 0,
    };
    let table = DeTable::parse(&text).map_err(|error| ConfigError::NotToml {
        path: path.to_owned(),
        line: reader.line(error.span().map_or(0, |span| span.start)),
        problem: error.message().to_owned(),
    })?;
    for (section, value) in table.into_inner() {
        reader.read_section(&section, value)?;
    }
    Ok(reader.finish())
}

struct FileReader<'a> {
    path: &'a Path,
    line_starts: Vec<usize>,
    file: ConfigFile,
    warnings: Vec<String>,
    /// Number of warnings that exceed [`MAX_WARNINGS`].
    more_warnings: usize,
}

impl FileReader<'_> {
    fn read_section(
        &mut self,
        section: &Spanned<DeString<'_>>,
        value: Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let name = section.get_ref().as_ref();
        let line = self.line(section.span().start);
        let DeValue::Table(table) = value.into_inner() else {
            self.warn(
                line,
                &format!("{} is outside of a section, and is ignored", clip(name)),
            );
            return Ok(());
        };
        if name == "secrets" {
            for (name, value) in table {
                let origin = Origin::File(self.path.to_owned(), self.line(name.span().start));
                let value = to_value(value.into_inner());
                self.file
                    .secrets
                    .insert(name.into_inner().into_owned(), Setting { value, origin });
            }
            return Ok(());
        }
        if !keys::is_section(name) {
            self.warn_unknown(line, &format!("section [{}]", clip(name)), || {
                keys::nearest_section(name)
            });
            return Ok(());
        }
        for (key, value) in table {
            match value.into_inner() {
                DeValue::Table(group)
                    if keys::GROUPED.contains(&name)
                        && keys::find(name, key.get_ref()).is_none() =>
                {
                    let mut settings = Settings::default();
                    for (key, value) in group {
                        if let Some((known, origin)) = self.find_key(name, &key) {
                            settings.set(known, to_value(value.into_inner()), origin)?;
                        }
                    }
                    self.file
                        .groups
                        .insert((name.to_owned(), key.into_inner().into_owned()), settings);
                }
                value => {
                    if let Some((known, origin)) = self.find_key(name, &key) {
                        self.file.base.set(known, to_value(value), origin)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds a key of a section. Warns about an older name and an unknown key, for which it returns
    /// `None`.
    fn find_key(&mut self, section: &str, key: &Spanned<DeString<'_>>) -> Option<(Key, Origin)> {
        let name = key.get_ref().as_ref();
        let line = self.line(key.span().start);
        let Some(known) = keys::find(section, name) else {
            self.warn_unknown(line, &format!("key {section}.{}", clip(name)), || {
                keys::nearest(section, name)
            });
            return None;
        };
        if let Some(newer) = keys::current_name(section, name) {
            self.warn(
                line,
                &format!("{section}.{name} is an older name of {newer}"),
            );
        }
        Some((known, Origin::File(self.path.to_owned(), line)))
    }

    fn warn_unknown(
        &mut self,
        line: usize,
        subject: &str,
        nearest: impl FnOnce() -> Option<&'static str>,
    ) {
        // The search for a similar name costs more than parsing, so a suppressed warning skips it.
        let nearest = if self.warnings.len() < MAX_WARNINGS {
            nearest()
        } else {
            None
        };
        let hint = nearest
            .map(|known| format!(" (did you mean {known}?)"))
            .unwrap_or_default();
        self.warn(line, &format!("unknown {subject}{hint}"));
    }

    fn warn(&mut self, line: usize, text: &str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings
                .push(format!("{}:{line}: {text}", self.path.display()));
        } else {
            self.more_warnings += 1;
        }
    }

    fn finish(mut self) -> (ConfigFile, Vec<String>) {
        if self.more_warnings > 0 {
            self.warnings.push(format!(
                "{}: {} more warnings",
                self.path.display(),
                self.more_warnings
            ));
        }
        (self.file, self.warnings)
    }

    /// The number of the line that contains this byte, from 1.
    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }
}

/// Escapes and truncates a name from the file for a warning.
fn clip(name: &str) -> String {
    name.escape_debug().take(MAX_SHOWN_NAME).collect()
}

fn to_value(value: DeValue<'_>) -> toml::Value {
    match value {
        DeValue::String(text) => toml::Value::String(text.into_owned()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or_else(
                |_| toml::Value::String(number.to_string()),
                toml::Value::Integer,
            )
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse();
            parsed.map_or_else(
                |_| toml::Value::String(number.to_string()),
                toml::Value::Float,
            )
        }
        DeValue::Boolean(flag) => toml::Value::Boolean(flag),
        DeValue::Datetime(time) => toml::Value::Datetime(time),
        DeValue::Array(values) => toml::Value::Array(
            values
                .into_iter()
                .map(|value| to_value(value.into_inner()))
                .collect(),
        ),
        DeValue::Table(table) => toml::Value::Table(to_entries(table).collect()),
    }
}

fn to_entries(table: DeTable<'_>) -> impl Iterator<Item = (String, toml::Value)> {
    table
        .into_iter()
        .map(|(key, value)| (key.into_inner().into_owned(), to_value(value.into_inner())))
}
