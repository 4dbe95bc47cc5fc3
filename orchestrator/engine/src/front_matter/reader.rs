//! Divides the front matter into its fields, and parses the value of each with granit-parser.
//!
//! A value that is not YAML, such as `Use when: x`, is a text if it starts like one. Otherwise only
//! that field is unusable.

use granit_parser::{Event, Parser, ScalarStyle, StrInput};

use super::{Field, FieldValue, FrontMatterError};

/// A line with its number in the file.
type NumberedLine<'a> = (usize, &'a str);

/// Maximum nesting of lists and maps in the value of a field. Limits the recursion.
const MAX_DEPTH: usize = 16;

/// Removes the indentation of the first field from all lines.
pub(super) fn without_indent<'a>(lines: &[NumberedLine<'a>]) -> Vec<NumberedLine<'a>> {
    let edge = lines
        .iter()
        .find(|(_, text)| !is_blank(text))
        .map_or(0, |(_, text)| indent(text));
    lines
        .iter()
        .map(|(line, text)| (*line, &text[indent(text).min(edge)..]))
        .collect()
}

/// Parses the fields that are not indented.
pub(super) fn fields(lines: &[NumberedLine<'_>]) -> Result<Vec<Field>, FrontMatterError> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while let Some(((line, text), after)) = rest.split_first() {
        rest = after;
        if is_blank(text) {
            continue;
        }
        let Some((name, value)) = field(text) else {
            return Err(FrontMatterError {
                line: *line,
                problem: "expected `name: value`".into(),
            });
        };
        let (block, after) = rest.split_at(
            rest.iter()
                .take_while(|(_, text)| continues_field(text))
                .count(),
        );
        rest = after;
        fields.push(Field {
            name,
            line: *line,
            value: parse_value(*line, value, block),
        });
    }
    Ok(fields)
}

/// Returns the name and the first line of the value, if a line starts a field.
fn field(text: &str) -> Option<(String, &str)> {
    let (name, value) = text
        .split_once(": ")
        .or_else(|| Some((text.trim_end().strip_suffix(':')?, "")))?;
    let is_name =
        !name.is_empty() && !name.starts_with(|character| " \t-[{#&*!?\"'".contains(character));
    is_name.then(|| (name.trim_end().to_owned(), value.trim()))
}

/// Whether a line continues the preceding field: it is indented, is an item of its list, or closes
/// a bracket.
fn continues_field(text: &str) -> bool {
    text.is_empty() || text.starts_with([' ', '\t', ']', '}']) || is_blank(text) || is_item(text)
}

fn is_blank(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with('#')
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// Parses a value that starts on the line of the field and continues in the block below.
fn parse_value(line: usize, first: &str, block: &[NumberedLine<'_>]) -> FieldValue {
    let yaml = as_yaml(first, block);
    let mut parser = ValueParser {
        events: Parser::new_from_str(&yaml),
        first_line: line,
    };
    parser
        .value_of_field()
        .unwrap_or_else(|| unparsed(first, block))
}

/// Returns the field as YAML, under a name that is valid YAML. Items of a list that are indented
/// less than the first one are aligned with it.
fn as_yaml(first: &str, block: &[NumberedLine<'_>]) -> String {
    let mut yaml = format!("x: {first}\n");
    let (mut edge, mut missing) = (None, 0);
    for (_, text) in block {
        if first.is_empty() && is_item(text.trim_start()) {
            missing = edge
                .get_or_insert(indent(text))
                .saturating_sub(indent(text));
        }
        yaml.extend(std::iter::repeat_n(' ', missing));
        yaml.push_str(text);
        yaml.push('\n');
    }
    yaml
}

/// Returns a value that is not YAML as text, unless it starts as something else.
fn unparsed(first: &str, block: &[NumberedLine<'_>]) -> FieldValue {
    if first.is_empty() || first.starts_with(|start| "|>[{&*!@`\"'#".contains(start)) {
        return FieldValue::Other;
    }
    let below = block.iter().map(|(_, text)| text.trim());
    let lines = std::iter::once(first).chain(below.filter(|text| !is_blank(text)));
    let texts: Vec<_> = lines
        .map(|text| text.split_once(" #").map_or(text, |(text, _)| text))
        .map(str::trim_end)
        .collect();
    FieldValue::Text(texts.join(" "))
}

/// Builds a value from the parser's events. Anchors, aliases and tags are not supported, so nothing
/// expands.
struct ValueParser<'a> {
    events: Parser<'a, StrInput<'a>>,
    first_line: usize,
}

impl<'a> ValueParser<'a> {
    /// Returns the value of a document with one field.
    fn value_of_field(&mut self) -> Option<FieldValue> {
        let is_start = |event: &Event<'_>| {
            matches!(event, Event::StreamStart | Event::DocumentStart(false, _))
        };
        while is_start(self.peek()?) {
            self.next()?;
        }
        let FieldValue::Map(mut fields) = self.node(MAX_DEPTH)? else {
            return None;
        };
        let is_end = self.next()? == Event::DocumentEnd && self.next()? == Event::StreamEnd;
        let value = fields.pop()?.value;
        (is_end && fields.is_empty()).then_some(value)
    }

    fn node(&mut self, depth: usize) -> Option<FieldValue> {
        let depth = depth.checked_sub(1)?;
        let event = self.next()?;
        if event.anchor_id().is_some() || event.tag().is_some() {
            return None;
        }
        match event {
            Event::Scalar(text, style, ..) => Some(FieldValue::Text(match style {
                ScalarStyle::Plain if matches!(&*text, "~" | "null" | "Null" | "NULL") => {
                    String::new()
                }
                ScalarStyle::Literal | ScalarStyle::Folded => text.trim_end().to_owned(),
                _ => text.into_owned(),
            })),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                while *self.peek()? != Event::SequenceEnd {
                    items.push(self.node(depth)?);
                }
                self.next()?;
                Some(FieldValue::List(items))
            }
            Event::MappingStart(..) => {
                let mut fields = Vec::new();
                while *self.peek()? != Event::MappingEnd {
                    fields.push(self.field(depth)?);
                }
                self.next()?;
                Some(FieldValue::Map(fields))
            }
            _ => None,
        }
    }

    fn field(&mut self, depth: usize) -> Option<Field> {
        let (_, span) = self.events.peek()?.ok()?;
        let line = self.first_line + span.start.line() - 1;
        let FieldValue::Text(name) = self.node(depth)? else {
            return None;
        };
        let value = self.node(depth)?;
        Some(Field { name, line, value })
    }

    /// Returns the next event. `None` after the last one, or if the text is not YAML.
    fn next(&mut self) -> Option<Event<'a>> {
        self.events.next_event()?.ok().map(|(event, _)| event)
    }

    fn peek(&mut self) -> Option<&Event<'a>> {
        self.events.peek()?.ok().map(|(event, _)| event)
    }
}
