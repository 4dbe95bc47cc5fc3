//! Parses the front matter of a Markdown file: YAML between two lines of `---`. Keeps the line of
//! each field.
//!
//! Only values are YAML, each parsed on its own with granit-parser, the parser of serde-saphyr. A
//! parser of the whole text would reject it for one value such as `description: Use when: x`, where
//! here only that field is affected. Not serde-saphyr itself: values are texts here, and an untyped
//! `1.0` or `yes` loses its spelling in serde. There are no anchors, tags or aliases, so nothing
//! expands.

mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkdownDocument<'a> {
    fields: Vec<Field>,
    /// The text after the front matter; the whole file if it has none.
    pub(crate) body: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    /// The line in the file, from 1.
    line: usize,
    value: FieldValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldValue {
    Text(String),
    List(Vec<FieldValue>),
    Map(Vec<Field>),
    /// A value that is not supported.
    Other,
}

/// The error of invalid front matter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {problem}")]
pub(crate) struct FrontMatterError {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The problem, with the name of the field if there is one.
    pub(crate) problem: String,
}

impl<'a> MarkdownDocument<'a> {
    /// Parses a file. It has no front matter unless it starts with `---`, after optional blank
    /// lines, and has a second such line. The front matter may be indented as a whole.
    ///
    /// # Errors
    /// The first line that is not part of a field.
    pub(crate) fn parse(text: &'a str) -> Result<Self, FrontMatterError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((line, head, body)) = split(text) else {
            return Ok(Self {
                fields: Vec::new(),
                body: text,
            });
        };
        let lines: Vec<_> = (line..).zip(head.lines()).collect();
        Ok(Self {
            fields: reader::fields(&reader::without_indent(&lines))?,
            body,
        })
    }

    /// Returns the line of a field, from 1, or 1 if it is missing.
    pub(crate) fn line(&self, name: &str) -> usize {
        self.find(name).map_or(1, |field| field.line)
    }

    /// Returns the names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// Returns a string. `None` if it is missing or empty.
    ///
    /// # Errors
    /// The value is not a string.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, FrontMatterError> {
        match self.find(name).map(|field| &field.value) {
            None => Ok(None),
            Some(FieldValue::Text(text)) => Ok(non_null(text)),
            Some(_) => Err(self.malformed(name, "must be a text")),
        }
    }

    /// Returns a list of strings, or the parts of a comma-separated string. Omits empty ones.
    ///
    /// # Errors
    /// The value is neither.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, FrontMatterError> {
        let wrong = || self.malformed(name, "must be a list of texts");
        let texts: Vec<_> = match self.find(name).map(|field| &field.value) {
            None => Vec::new(),
            Some(FieldValue::Text(text)) => text.split(',').map(str::trim).collect(),
            Some(FieldValue::List(items)) => {
                let texts = items.iter().map(|item| match item {
                    FieldValue::Text(text) => Ok(text.as_str()),
                    _ => Err(wrong()),
                });
                texts.collect::<Result<_, _>>()?
            }
            Some(FieldValue::Map(_) | FieldValue::Other) => return Err(wrong()),
        };
        Ok(texts
            .into_iter()
            .filter_map(non_null)
            .map(str::to_owned)
            .collect())
    }

    /// Returns the field `name` of each map in the list `list`, if it is a string. Empty if `list`
    /// is not a list of maps.
    pub(crate) fn names_in(&self, list: &str, name: &str) -> Vec<&str> {
        let Some(FieldValue::List(items)) = self.find(list).map(|field| &field.value) else {
            return Vec::new();
        };
        let maps = items.iter().filter_map(|item| {
            if let FieldValue::Map(fields) = item {
                Some(fields)
            } else {
                None
            }
        });
        let values = maps.filter_map(|fields| Some(&last(fields, name)?.value));
        values
            .filter_map(|value| {
                if let FieldValue::Text(text) = value {
                    non_null(text)
                } else {
                    None
                }
            })
            .collect()
    }

    /// Returns the maps of the list `list` in the map `map`. Empty if either is missing.
    ///
    /// # Errors
    /// `map` is not a map, or `list` is not a list of maps.
    pub(crate) fn maps_in(
        &self,
        map: &str,
        list: &str,
    ) -> Result<Vec<FieldMap<'_>>, FrontMatterError> {
        let found = match self.find(map).map(|field| &field.value) {
            None => return Ok(Vec::new()),
            Some(FieldValue::Map(fields)) => last(fields, list),
            Some(_) => return Err(self.malformed(map, "must be a map")),
        };
        let wrong = |line| FrontMatterError {
            line,
            problem: format!("`{list}` must be a list of maps"),
        };
        match found.map(|field| (field.line, &field.value)) {
            None => Ok(Vec::new()),
            Some((line, FieldValue::List(items))) => items
                .iter()
                .map(|item| {
                    if let FieldValue::Map(fields) = item {
                        Ok(FieldMap(fields))
                    } else {
                        Err(wrong(line))
                    }
                })
                .collect(),
            Some((line, _)) => Err(wrong(line)),
        }
    }

    /// Creates the error of a field.
    pub(crate) fn malformed(&self, name: &str, problem: &str) -> FrontMatterError {
        FrontMatterError {
            line: self.line(name),
            problem: format!("`{name}` {problem}"),
        }
    }

    fn find(&self, name: &str) -> Option<&Field> {
        last(&self.fields, name)
    }
}

/// A map within the front matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldMap<'f>(&'f [Field]);

impl<'f> FieldMap<'f> {
    /// Returns a string. `None` if it is missing.
    pub(crate) fn text(&self, name: &str) -> Option<&'f str> {
        match &last(self.0, name)?.value {
            FieldValue::Text(text) => non_null(text),
            _ => None,
        }
    }

    /// Returns the strings of a list, or the words of a command line. `None` if the value is
    /// neither.
    pub(crate) fn words(&self, name: &str) -> Option<Vec<String>> {
        match last(self.0, name).map(|field| &field.value) {
            None => Some(Vec::new()),
            Some(FieldValue::Text(line)) => shlex::split(line),
            Some(FieldValue::List(items)) => {
                let text = |item: &FieldValue| {
                    if let FieldValue::Text(text) = item {
                        Some(text.clone())
                    } else {
                        None
                    }
                };
                items.iter().map(text).collect()
            }
            Some(_) => None,
        }
    }

    /// Returns the strings of a map. `None` if the value is not a map of strings.
    pub(crate) fn texts_by_name(&self, name: &str) -> Option<BTreeMap<String, String>> {
        match last(self.0, name).map(|field| &field.value) {
            None => Some(BTreeMap::new()),
            Some(FieldValue::Text(text)) if non_null(text).is_none() => Some(BTreeMap::new()),
            Some(FieldValue::Map(fields)) => {
                let entry = |field: &Field| match &field.value {
                    FieldValue::Text(text) => Some((field.name.clone(), text.clone())),
                    _ => None,
                };
                fields.iter().map(entry).collect()
            }
            Some(_) => None,
        }
    }
}

/// Returns the last field of a name, which counts as in V0.
fn last<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().rev().find(|field| field.name == name)
}

/// Maps YAML's null, which is read as an empty text, to `None`.
fn non_null(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the number of the first line of the front matter, its text, and the text after it.
fn split(text: &str) -> Option<(usize, &str, &str)> {
    let start = text.trim_start();
    let blank_lines = text[..text.len() - start.len()].matches('\n').count();
    let (first, rest) = start.split_once('\n')?;
    if !is_boundary(first) {
        return None;
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if is_boundary(line) {
            return Some((blank_lines + 2, &rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

/// Whether a line delimits the front matter. Like V0, accepts a longer line.
fn is_boundary(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 3 && line.bytes().all(|byte| byte == b'-')
}
