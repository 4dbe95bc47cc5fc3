//! `config.toml`: its sections, and groups such as `[llm.fast]` which inherit from their section.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use super::settings::{ConfigError, Origin, Settings};

/// What a file says.
#[derive(Default)]
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
}

/// Reads a file; with what is worth telling the user.
pub(super) fn read(path: &Path) -> Result<(File, Vec<String>), ConfigError> {
    let bytes =
        std::fs::read(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| ConfigError::NotUtf8 {
        path: path.to_owned(),
        byte: error.utf8_error().valid_up_to(),
    })?;
    let table = DeTable::parse(&text).map_err(|error| ConfigError::NotToml {
        path: path.to_owned(),
        line: line_of(&text, error.span().map_or(0, |span| span.start)),
        problem: error.message().to_owned(),
    })?;
    let mut reader = Reader { path, text: &text, file: File::default(), warnings: Vec::new() };
    for (section, value) in table.into_inner() {
        reader.read_section(&section, value)?;
    }
    Ok((reader.file, reader.warnings))
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    file: File,
    warnings: Vec<String>,
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
            self.warn(line, &format!("{name} stands outside of a section, and is passed over"));
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
            self.warn_unknown(line, &format!("section [{name}]"), keys::nearest_section(name));
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
            self.warn_unknown(line, &format!("key {section}.{name}"), keys::nearest(section, name));
            return Ok(());
        };
        if let Some(newer) = keys::renamed(section, name) {
            self.warn(line, &format!("{section}.{name} is an older name of {newer}"));
        }
        let origin = Origin::File(self.path.to_owned(), line);
        settings.set(known, to_value(value.into_inner()), origin)
    }

    fn warn_unknown(&mut self, line: usize, what: &str, nearest: Option<&str>) {
        let hint = nearest.map(|known| format!(" (did you mean {known}?)")).unwrap_or_default();
        self.warn(line, &format!("unknown {what}{hint}"));
    }

    fn warn(&mut self, line: usize, text: &str) {
        self.warnings.push(format!("{}:{line}: {text}", self.path.display()));
    }

    fn line(&self, offset: usize) -> usize {
        line_of(self.text, offset)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
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
