//! A `config.toml`: its sections, and groups such as `[llm.fast]` which inherit from their section.

use std::collections::BTreeMap;
use std::path::Path;

use engine::agent::AgentDefinition;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use super::settings::{ConfigError, Origin, Settings};

/// Warnings about one file. What exceeds them is counted.
const MAX_WARNINGS: usize = 20;

/// How much of a name a warning shows, in characters.
const MAX_SHOWN_NAME: usize = 60;

/// Content of a file, or of several that were laid over each other.
#[derive(Clone, Default)]
pub(super) struct File {
    /// The sections' own keys.
    pub(super) base: Settings,
    /// The groups' keys, by section and name.
    pub(super) groups: BTreeMap<(String, String), Settings>,
    /// What `[secrets]` holds, by name.
    pub(super) secrets: BTreeMap<String, toml::Value>,
}

impl File {
    /// The keys of a group, if there is one of that name.
    pub(super) fn take_group(&mut self, section: &str, name: &str) -> Option<Settings> {
        self.groups.remove(&(section.to_owned(), name.to_owned()))
    }

    /// The sections' own keys, and over them those of a group.
    fn with_group(&self, section: &str, name: &str) -> Settings {
        let mut settings = self.base.clone();
        let group = self.groups.get(&(section.to_owned(), name.to_owned()));
        settings.overlay(group.cloned().unwrap_or_default());
        settings
    }

    /// Lays the keys of a stronger file over these.
    pub(super) fn overlay(&mut self, stronger: Self) {
        self.base.overlay(stronger.base);
        for (name, group) in stronger.groups {
            self.groups.entry(name).or_default().overlay(group);
        }
        self.secrets.extend(stronger.secrets);
    }

    /// Removes what an untrusted file may not set over `own`, the user's own configuration. Returns the removed keys.
    pub(super) fn retain_untrusted(&mut self, own: &Self) -> Vec<String> {
        // Without a choice of the folder's, CodeActAgent works.
        let mut removed = self.base.retain_untrusted(&own.with_group("agent", AgentDefinition::CODE_ACT));
        self.groups.retain(|(section, name), group| {
            // A group of models could stand in for the model of that name.
            let of_group = match section.as_str() {
                "agent" => group.retain_untrusted(&own.with_group(section, name)),
                _ => std::mem::take(group).retain_untrusted(&own.base),
            };
            removed.extend(of_group.into_iter().map(|key| match key.split_once('.') {
                Some((section, key)) => format!("{section}.{name}.{key}"),
                None => key,
            }));
            section == "agent"
        });
        if !std::mem::take(&mut self.secrets).is_empty() {
            removed.push("secrets".to_owned());
        }
        removed
    }

    /// Makes paths of prompts absolute, which start at the file's folder.
    pub(super) fn resolve_prompts(&mut self, folder: &Path) {
        let groups = self.groups.values_mut();
        groups.chain([&mut self.base]).for_each(|settings| settings.resolve_prompt(folder));
    }
}

/// Parses the content of a file. Paths of prompts in it start at its folder.
pub(super) fn parse(path: &Path, content: Vec<u8>) -> Result<(File, Vec<String>), ConfigError> {
    let text = String::from_utf8(content).map_err(|error| ConfigError::NotUtf8 {
        path: path.to_owned(),
        byte: error.utf8_error().valid_up_to(),
    })?;
    let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut reader =
        Reader { path, line_starts, file: File::default(), warnings: Vec::new(), more_warnings: 0 };
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

struct Reader<'a> {
    path: &'a Path,
    line_starts: Vec<usize>,
    file: File,
    warnings: Vec<String>,
    /// Warnings beyond those that are kept.
    more_warnings: usize,
}

impl Reader<'_> {
    fn read_section(
        &mut self,
        section: &Spanned<std::borrow::Cow<'_, str>>,
        value: Spanned<DeValue<'_>>,
    ) -> Result<(), ConfigError> {
        let name = section.get_ref().as_ref();
        let line = self.line(section.span().start);
        let DeValue::Table(table) = value.into_inner() else {
            self.warn(line, &format!("{} stands outside of a section, and is passed over", shown(name)));
            return Ok(());
        };
        if name == "secrets" {
            let secret = |(name, value): (Spanned<std::borrow::Cow<'_, str>>, Spanned<DeValue<'_>>)| {
                (name.into_inner().into_owned(), to_value(value.into_inner()))
            };
            self.file.secrets = table.into_iter().map(secret).collect();
            return Ok(());
        }
        if !keys::is_section(name) {
            self.warn_unknown(line, &format!("section [{}]", shown(name)), || keys::nearest_section(name));
            return Ok(());
        }
        for (key, value) in table {
            let is_group = keys::GROUPED.contains(&name)
                && matches!(value.get_ref(), DeValue::Table(_))
                && keys::find(name, key.get_ref()).is_none();
            if is_group {
                let DeValue::Table(group) = value.into_inner() else { continue };
                let mut settings = Settings::default();
                for (inner, value) in group {
                    self.read_key(name, &inner, value, &mut settings)?;
                }
                self.file.groups.insert((name.to_owned(), key.get_ref().to_string()), settings);
            } else {
                let mut settings = std::mem::take(&mut self.file.base);
                let read = self.read_key(name, &key, value, &mut settings);
                self.file.base = settings;
                read?;
            }
        }
        Ok(())
    }

    fn read_key(
        &mut self,
        section: &str,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: Spanned<DeValue<'_>>,
        settings: &mut Settings,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        let line = self.line(key.span().start);
        let Some(known) = keys::find(section, name) else {
            self.warn_unknown(line, &format!("key {section}.{}", shown(name)), || {
                keys::nearest(section, name)
            });
            return Ok(());
        };
        if let Some(newer) = keys::renamed(section, name) {
            self.warn(line, &format!("{section}.{name} is an older name of {newer}"));
        }
        let origin = Origin::File(self.path.to_owned(), line);
        settings.set(known, to_value(value.into_inner()), origin)
    }

    fn warn_unknown(&mut self, line: usize, what: &str, nearest: impl FnOnce() -> Option<&'static str>) {
        // The search costs more than the rest.
        let nearest = if self.warnings.len() < MAX_WARNINGS { nearest() } else { None };
        let hint = nearest.map(|known| format!(" (did you mean {known}?)")).unwrap_or_default();
        self.warn(line, &format!("unknown {what}{hint}"));
    }

    fn warn(&mut self, line: usize, text: &str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("{}:{line}: {text}", self.path.display()));
        } else {
            self.more_warnings += 1;
        }
    }

    fn finish(mut self) -> (File, Vec<String>) {
        if self.more_warnings > 0 {
            self.warnings.push(format!("{}: {} more warnings", self.path.display(), self.more_warnings));
        }
        (self.file, self.warnings)
    }

    /// The number of the line with this byte, from 1.
    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }
}

/// A name of the file's in a line for people.
fn shown(name: &str) -> String {
    name.escape_debug().take(MAX_SHOWN_NAME).collect()
}

fn to_value(value: DeValue<'_>) -> toml::Value {
    match value {
        DeValue::String(text) => toml::Value::String(text.into_owned()),
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Integer)
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse();
            parsed.map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Float)
        }
        DeValue::Boolean(flag) => toml::Value::Boolean(flag),
        DeValue::Datetime(time) => toml::Value::Datetime(time),
        DeValue::Array(values) => {
            toml::Value::Array(values.into_iter().map(|value| to_value(value.into_inner())).collect())
        }
        DeValue::Table(table) => toml::Value::Table(
            table
                .into_iter()
                .map(|(key, value)| (key.into_inner().into_owned(), to_value(value.into_inner())))
                .collect(),
        ),
    }
}
