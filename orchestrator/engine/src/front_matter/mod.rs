//! The YAML at the head of a Markdown file, between two lines of `---`: texts and lists by name, each with its line.
//!
//! A subset of our own instead of a library: what is read here are a handful of names and lists, an error must name its
//! line, and the files are hostile. No anchors, tags or aliases, so nothing grows; nesting beyond what is read is passed
//! over and not followed. What people write in such files beside that is in it: plain, quoted and folded texts, lists of
//! both kinds, lists of small maps.

mod reader;
#[cfg(test)]
mod tests;

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
    /// A map, or something beyond the subset.
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
    /// Takes a file apart. One that does not begin with `---`, or has no second such line, has no front matter.
    ///
    /// # Errors
    /// The first line that is none of a list of fields.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Malformed> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((head, body)) = split(text) else { return Ok(Self { fields: Vec::new(), body: text }) };
        // The head's first line is the file's second.
        let lines: Vec<_> = (2..).zip(head.lines()).collect();
        Ok(Self { fields: reader::fields(&lines, 0)?, body })
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
            Some(Value::Other) => return Err(wrong()),
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

    /// The error for a field.
    pub(crate) fn malformed(&self, name: &str, problem: &str) -> Malformed {
        Malformed { line: self.line(name), problem: format!("`{name}` {problem}") }
    }

    fn find(&self, name: &str) -> Option<&Field> {
        last(&self.fields, name)
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

/// The text between the first two lines of `---`, and what follows.
fn split(text: &str) -> Option<(&str, &str)> {
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    None
}
