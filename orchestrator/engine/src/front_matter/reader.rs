//! Parses lines into fields. Recursion is limited to [`MAX_DEPTH`].

use super::{Field, FieldValue, FrontMatterError, ListItem};

/// A line with its number in the file.
type NumberedLine<'a> = (usize, &'a str);

/// Maximum nesting of maps below the top level: as deep as the environment of a server in
/// `mcp_tools`.
const MAX_DEPTH: usize = 3;

/// Removes the indentation of the first field from all lines.
pub(super) fn without_indent<'a>(lines: &[NumberedLine<'a>]) -> Vec<NumberedLine<'a>> {
    let indent = |text: &str| text.len() - text.trim_start_matches(' ').len();
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
pub(super) fn fields(
    lines: &[NumberedLine<'_>],
    depth: usize,
) -> Result<Vec<Field>, FrontMatterError> {
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
            value: parse_value(value, block, depth),
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

/// Parses a value that starts on the line of the field and continues in the block below.
fn parse_value(first: &str, block: &[NumberedLine<'_>], depth: usize) -> FieldValue {
    match first.chars().next() {
        Some('|') => FieldValue::Text(dedent(block).join("\n").trim_end().to_owned()),
        Some('>') => FieldValue::Text(fold(&dedent(block))),
        Some('[') => flow_list(&joined(first, block)).map_or(FieldValue::Other, FieldValue::List),
        Some('{' | '&' | '*' | '!' | '@' | '`') => FieldValue::Other,
        Some('"' | '\'') => unquote(&without_comment(&joined(first, block)))
            .map_or(FieldValue::Other, FieldValue::Text),
        None | Some('#') => parse_block(block, depth),
        Some(_) => FieldValue::Text(plain(without_comment(&joined(first, block)))),
    }
}

/// Parses a value that starts below its name.
fn parse_block(block: &[NumberedLine<'_>], depth: usize) -> FieldValue {
    let blank = block.iter().take_while(|(_, text)| is_blank(text)).count();
    let block = block.get(blank..).unwrap_or_default();
    let Some(((_, first), rest)) = block.split_first() else {
        return FieldValue::Text(String::new());
    };
    if is_item(first.trim_start()) {
        return items(block, depth).map_or(FieldValue::Other, FieldValue::List);
    }
    match field(first.trim_start()) {
        Some(_) if depth < MAX_DEPTH => {
            fields(&without_indent(block), depth + 1).map_or(FieldValue::Other, FieldValue::Map)
        }
        Some(_) => FieldValue::Other,
        None => parse_value(first.trim(), rest, depth),
    }
}

/// Parses the items of a list, each with the lines that are indented more than its dash.
fn items(block: &[NumberedLine<'_>], depth: usize) -> Option<Vec<ListItem>> {
    let mut groups: Vec<Vec<NumberedLine<'_>>> = Vec::new();
    let mut edge = None;
    for (line, text) in block.iter().filter(|(_, text)| !is_blank(text)) {
        let inner = text.trim_start();
        let indent = text.len() - inner.len();
        if is_item(inner) && indent <= *edge.get_or_insert(indent) {
            groups.push(vec![(*line, inner.strip_prefix('-')?)]);
        } else {
            groups.last_mut()?.push((*line, text));
        }
    }
    Some(groups.iter().map(|lines| item(lines, depth)).collect())
}

fn item(lines: &[NumberedLine<'_>], depth: usize) -> ListItem {
    let Some(((number, first), rest)) = lines.split_first() else {
        return ListItem::Other;
    };
    let first = first.trim();
    if is_blank(first) {
        // A list within a list is not supported, which limits the recursion.
        return if rest.is_empty() {
            ListItem::Text(String::new())
        } else {
            ListItem::Other
        };
    }
    if field(first).is_none() {
        return match parse_value(first, rest, depth) {
            FieldValue::Text(text) => ListItem::Text(text),
            FieldValue::List(_) | FieldValue::Map(_) | FieldValue::Other => ListItem::Other,
        };
    }
    if depth == MAX_DEPTH {
        return ListItem::Other;
    }
    let below = dedent(rest);
    let below = rest
        .iter()
        .zip(&below)
        .map(|((line, _), text)| (*line, text.as_str()));
    let all: Vec<_> = std::iter::once((*number, first)).chain(below).collect();
    fields(&all, depth + 1).map_or(ListItem::Other, ListItem::Map)
}

/// Removes the common indentation of the lines.
fn dedent(block: &[NumberedLine<'_>]) -> Vec<String> {
    let indent = |text: &str| text.len() - text.trim_start_matches(' ').len();
    let lines = block.iter().map(|(_, text)| *text);
    let edge = lines
        .clone()
        .filter(|text| !text.trim().is_empty())
        .map(indent)
        .min()
        .unwrap_or(0);
    lines
        .map(|text| text.get(edge..).unwrap_or_default().trim_end().to_owned())
        .collect()
}

/// Folds lines into one. An empty line is a line break.
fn fold(lines: &[String]) -> String {
    let mut folded = String::new();
    for line in lines {
        match line.trim() {
            "" => folded.push('\n'),
            text => {
                if !folded.is_empty() && !folded.ends_with('\n') {
                    folded.push(' ');
                }
                folded.push_str(text);
            }
        }
    }
    folded.trim_end().to_owned()
}

fn joined(first: &str, block: &[NumberedLine<'_>]) -> String {
    let below = block
        .iter()
        .map(|(_, text)| text.trim())
        .filter(|text| !is_blank(text));
    std::iter::once(first)
        .chain(below)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Removes a comment, which starts with `#` after white space outside of quotes. Two single quotes
/// within single quotes are an escaped one.
fn without_comment(text: &str) -> String {
    let (mut quote, mut is_escaped, mut before) = (None, false, ' ');
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (None, '#') if before.is_whitespace() => return text[..index].trim_end().to_owned(),
            (None, '"' | '\'') if index == 0 || matches!(before, '[' | ',' | ' ' | '\'') => {
                quote = Some(character);
            }
            (Some(open), _) if character == open && !is_escaped => quote = None,
            _ => {}
        }
        is_escaped = quote == Some('"') && character == '\\' && !is_escaped;
        before = character;
    }
    text.trim_end().to_owned()
}

/// Returns the content of a string without quotes. YAML's null is empty.
fn plain(text: String) -> String {
    if matches!(text.as_str(), "~" | "null" | "Null" | "NULL") {
        String::new()
    } else {
        text
    }
}

/// Returns the content of a quoted string. `None` if the text is not a single quoted string.
fn unquote(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('\'') {
        let inner = inner.strip_suffix('\'')?;
        let without_pairs = inner.replace("''", "");
        return (!without_pairs.contains('\'')).then(|| inner.replace("''", "'"));
    }
    let mut characters = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut unquoted = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => return None,
            '\\' => match characters.next()? {
                'n' => unquoted.push('\n'),
                't' => unquoted.push('\t'),
                other => unquoted.push(other),
            },
            other => unquoted.push(other),
        }
    }
    Some(unquoted)
}

/// Parses `[a, "b, c"]`. `None` if it holds anything but strings.
fn flow_list(text: &str) -> Option<Vec<ListItem>> {
    let text = without_comment(text);
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let mut items = Vec::new();
    let (mut quote, mut start) = (None, 0);
    for (index, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match (quote, character) {
            (None, ',') => {
                let item = inner[start..index].trim();
                if !item.is_empty() {
                    items.push(flow_item(item)?);
                }
                start = index + 1;
            }
            (None, '"' | '\'') if inner[start..index].trim().is_empty() => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, '[' | ']' | '{' | '}') => return None,
            _ => {}
        }
    }
    quote.is_none().then_some(items)
}

fn flow_item(text: &str) -> Option<ListItem> {
    let is_quoted = text.starts_with(['"', '\'']);
    let text = if is_quoted {
        unquote(text)?
    } else {
        plain(text.to_owned())
    };
    Some(ListItem::Text(text))
}
