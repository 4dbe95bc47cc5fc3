//! The YAML at the head of a Markdown file, between two lines of `---`: texts and lists by name, each with its line.
//!
//! A subset of our own instead of a library: what is read here are a handful of names and lists, an error must name its
//! line, and the files are hostile. No anchors, tags or aliases, so nothing grows; nesting beyond what is read is passed
//! over and not followed. What people write in such files beside that is in it: plain, quoted and folded texts, lists of
//! both kinds, small maps and lists of them.

mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// A file taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    fields: Vec<Field>,
    /// What follows the front matter; the whole file when it has none.
    pub(crate) body: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    /// In the file, from 1.
    line: usize,
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<Item>),
    Map(Vec<Field>),
    /// Something beyond the subset.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Text(String),
    Map(Vec<Field>),
    Other,
}

/// What is wrong with a file's head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {problem}")]
pub(crate) struct Malformed {
    /// From 1.
    pub(crate) line: usize,
    /// Names the field, where it is one's.
    pub(crate) problem: String,
}

impl<'a> Document<'a> {
    /// Takes a file apart. One that does not begin with `---` after blank lines, or has no second such line, has no front
    /// matter. All of the front matter may be indented.
    ///
    /// # Errors
    /// The first line that is none of a list of fields.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Malformed> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((line, head, body)) = split(text) else {
            return Ok(Self { fields: Vec::new(), body: text });
        };
        let lines: Vec<_> = (line..).zip(head.lines()).collect();
        Ok(Self { fields: reader::fields(&reader::without_indent(&lines), 0)?, body })
    }

    /// The line of a field, from 1; the first of the file when it is not there.
    pub(crate) fn line(&self, name: &str) -> usize {
        self.find(name).map_or(1, |field| field.line)
    }

    /// The names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// A text; nothing when it is missing or empty.
    ///
    /// # Errors
    /// It is no text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Malformed> {
        match self.find(name).map(|field| &field.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(some(text)),
            Some(_) => Err(self.malformed(name, "must be a text")),
        }
    }

    /// A list of texts, or one text with commas; the empty ones are left out.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, Malformed> {
        let wrong = || self.malformed(name, "must be a list of texts");
        let texts: Vec<_> = match self.find(name).map(|field| &field.value) {
            None => Vec::new(),
            Some(Value::Text(text)) => text.split(',').map(str::trim).collect(),
            Some(Value::List(items)) => {
                let texts = items.iter().map(|item| match item {
                    Item::Text(text) => Ok(text.as_str()),
                    Item::Map(_) | Item::Other => Err(wrong()),
                });
                texts.collect::<Result<_, _>>()?
            }
            Some(Value::Map(_) | Value::Other) => return Err(wrong()),
        };
        Ok(texts.into_iter().filter_map(some).map(str::to_owned).collect())
    }

    /// The field `name` of each map in the list `list`, where it is a text. What is no such list holds none.
    pub(crate) fn names_in(&self, list: &str, name: &str) -> Vec<&str> {
        let Some(Value::List(items)) = self.find(list).map(|field| &field.value) else { return Vec::new() };
        let maps =
            items.iter().filter_map(|item| if let Item::Map(fields) = item { Some(fields) } else { None });
        let values = maps.filter_map(|fields| Some(&last(fields, name)?.value));
        values.filter_map(|value| if let Value::Text(text) = value { some(text) } else { None }).collect()
    }

    /// The maps of the list `list` in the map `map`; none where one of them is not there.
    ///
    /// # Errors
    /// The one is no map, or the other no list of maps.
    pub(crate) fn maps_in(&self, map: &str, list: &str) -> Result<Vec<Fields<'_>>, Malformed> {
        let found = match self.find(map).map(|field| &field.value) {
            None => return Ok(Vec::new()),
            Some(Value::Map(fields)) => last(fields, list),
            Some(_) => return Err(self.malformed(map, "must be a map")),
        };
        let wrong = |line| Malformed { line, problem: format!("`{list}` must be a list of maps") };
        match found.map(|field| (field.line, &field.value)) {
            None => Ok(Vec::new()),
            Some((line, Value::List(items))) => items
                .iter()
                .map(|item| if let Item::Map(fields) = item { Ok(Fields(fields)) } else { Err(wrong(line)) })
                .collect(),
            Some((line, _)) => Err(wrong(line)),
        }
    }

    /// The error for a field.
    pub(crate) fn malformed(&self, name: &str, problem: &str) -> Malformed {
        Malformed { line: self.line(name), problem: format!("`{name}` {problem}") }
    }

    fn find(&self, name: &str) -> Option<&Field> {
        last(&self.fields, name)
    }
}

/// A map within the front matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'f>(&'f [Field]);

impl<'f> Fields<'f> {
    /// A text; `None` where there is none.
    pub(crate) fn text(&self, name: &str) -> Option<&'f str> {
        match &last(self.0, name)?.value {
            Value::Text(text) => some(text),
            _ => None,
        }
    }

    /// The texts of a list, or the words of a command line; `None` if it is neither.
    pub(crate) fn words(&self, name: &str) -> Option<Vec<String>> {
        match last(self.0, name).map(|field| &field.value) {
            None => Some(Vec::new()),
            Some(Value::Text(line)) => shlex::split(line),
            Some(Value::List(items)) => {
                let text = |item: &Item| if let Item::Text(text) = item { Some(text.clone()) } else { None };
                items.iter().map(text).collect()
            }
            Some(_) => None,
        }
    }

    /// The texts of a map; `None` if it is not one.
    pub(crate) fn texts_by_name(&self, name: &str) -> Option<BTreeMap<String, String>> {
        match last(self.0, name).map(|field| &field.value) {
            None => Some(BTreeMap::new()),
            Some(Value::Text(text)) if some(text).is_none() => Some(BTreeMap::new()),
            Some(Value::Map(fields)) => {
                let entry = |field: &Field| match &field.value {
                    Value::Text(text) => Some((field.name.clone(), text.clone())),
                    _ => None,
                };
                fields.iter().map(entry).collect()
            }
            Some(_) => None,
        }
    }
}

/// Of a name that is there twice, the last counts, as in V0.
fn last<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().rev().find(|field| field.name == name)
}

/// YAML's words for nothing are nothing.
fn some(text: &str) -> Option<&str> {
    (!matches!(text, "" | "~" | "null")).then_some(text)
}

/// The text between the first two lines of `---`, with the number of its first line, and what follows.
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

/// As V0 reads it, which takes a longer line too.
fn is_boundary(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= 3 && line.bytes().all(|byte| byte == b'-')
}
