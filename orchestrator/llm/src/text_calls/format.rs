//! V0's format of a call in a text:
//!
//! ```text
//! <function=execute_bash>
//! <parameter=command>
//! ls
//! </parameter>
//! </function>
//! ```
//!
//! A value is the text between the lines of its tags: as it is where the tool wants text, else JSON. What would end a value
//! or a call stands in it with `&lt;`. Pure; whatever is read, nothing is lost: what is no call stays text, and what
//! cannot be read as arguments becomes the arguments, as text.
//!
//! Two deviations of models are read as they are meant, as V0 reads them: `<parameter=NAME=VALUE</parameter>`, and a call
//! whose end tag was cut by the stop sequence, wherever the server cut it (`</`).

use engine::llm::{Tool, ToolCall};
use serde_json::{Map, Value};

/// Where a model is stopped, so that it does not make up the result.
pub(crate) const STOP: &str = "</function";

const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const END_OF_PARAMETER: &str = "</parameter>";

/// What may not stand in a value, without its first character.
const ENDS: [&str; 2] = ["/parameter", "/function"];

/// A call as text.
pub(super) fn write(call: &ToolCall, tools: &[Tool]) -> String {
    let body: String = match object(&call.arguments) {
        Some(arguments) => arguments
            .iter()
            .map(|(name, value)| {
                let text = match value {
                    Value::String(text) if is_text(tools, &call.name, name) => text.clone(),
                    other => other.to_string(),
                };
                format!("{PARAMETER}{name}>\n{}\n{END_OF_PARAMETER}\n", escaped(&text))
            })
            .collect(),
        None => format!("{}\n", escaped(&call.arguments)),
    };
    format!("{FUNCTION}{}>\n{body}{STOP}>", call.name)
}

/// The text beside the calls, and the calls: name and arguments, in order.
pub(super) fn read(text: &str, tools: &[Tool]) -> (String, Vec<(String, String)>) {
    let mut said = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some((before, call)) = rest.split_once(FUNCTION) {
        said.push_str(before);
        // A tag that was cut holds no arguments: empty ones could be those of a call that ends the task.
        let Some((name, body)) = call.split_once('>') else {
            calls.push((call.trim().to_owned(), format!("{FUNCTION}{call}")));
            return (said.trim().to_owned(), calls);
        };
        let (arguments, after) = read_body(name.trim(), body, tools);
        calls.push((name.trim().to_owned(), arguments));
        rest = after;
    }
    said.push_str(rest);
    (said.trim().to_owned(), calls)
}

/// The arguments as JSON, or as they stand there; and what follows the call.
fn read_body<'a>(function: &str, body: &'a str, tools: &[Tool]) -> (String, &'a str) {
    let mut arguments = Map::new();
    let mut rest = body;
    while let Some(parameter) = rest.trim_start().strip_prefix(PARAMETER) {
        let Some((name, after)) = split_tag(parameter, function, tools) else { return malformed(body) };
        // A value without an end was cut, perhaps by what it holds: half of it must not be used.
        let Some((value, after)) = after.split_once(END_OF_PARAMETER) else { return malformed(body) };
        let value = unescaped(without_line_ends(value));
        let value = match is_text(tools, function, name) {
            true => Value::String(value),
            false => serde_json::from_str(&value).unwrap_or(Value::String(value)),
        };
        arguments.insert(name.to_owned(), value);
        rest = after;
    }
    let (left, after) = split_at_end(rest);
    let is_whole = left.trim().is_empty() && !is_misnamed(&arguments, function, tools);
    if is_whole { (Value::Object(arguments).to_string(), after) } else { malformed(body) }
}

/// Whether a value stands under another name than the one that the tool requires: it must not get lost.
fn is_misnamed(arguments: &Map<String, Value>, function: &str, tools: &[Tool]) -> bool {
    let Some(tool) = tools.iter().find(|tool| tool.name == function) else { return false };
    let required = tool.parameters["required"].as_array();
    let mut names = required.into_iter().flatten().filter_map(Value::as_str);
    names.any(|name| !arguments.contains_key(name))
        && arguments.keys().any(|name| schema(tools, function, name).is_none())
}

/// The name in a parameter's tag, and what follows the tag. Some models write `=` in the place of `>`: where what stands
/// before it names a parameter of the tool, the value begins there.
fn split_tag<'a>(parameter: &'a str, function: &str, tools: &[Tool]) -> Option<(&'a str, &'a str)> {
    let by_equals =
        parameter.split_once('=').filter(|(name, _)| schema(tools, function, name.trim()).is_some());
    let (name, after) = by_equals.or_else(|| parameter.split_once('>'))?;
    Some((name.trim(), after))
}

fn malformed(body: &str) -> (String, &str) {
    let (written, after) = split_at_end(body);
    (unescaped(written.trim()), after)
}

/// What stands before the call's end, and what after it. The server that stopped there sent none of the end, or some of it.
fn split_at_end(text: &str) -> (&str, &str) {
    if let Some((before, after)) = text.split_once(STOP) {
        return (before, after.strip_prefix('>').unwrap_or(after));
    }
    let text = text.trim_end();
    let cut = (1..STOP.len()).rev().find_map(|length| text.strip_suffix(&STOP[..length]));
    (cut.unwrap_or(text), "")
}

pub(super) fn object(arguments: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(arguments)) => Some(arguments),
        _ => None,
    }
}

/// Whether the tool's schema wants text there and nothing else.
fn is_text(tools: &[Tool], function: &str, parameter: &str) -> bool {
    schema(tools, function, parameter).is_some_and(|schema| schema["type"] == "string")
}

/// What a tool says of one of its parameters.
fn schema<'a>(tools: &'a [Tool], function: &str, parameter: &str) -> Option<&'a Value> {
    let tool = tools.iter().find(|tool| tool.name == function)?;
    tool.parameters["properties"].get(parameter)
}

fn without_line_ends(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// `<` before an end becomes `&lt;`, and what looks like that already gets one `amp;` more.
fn escaped(text: &str) -> String {
    let mut escaped = text.to_owned();
    for end in ENDS {
        escaped = with_one_more(&escaped, end).replace(&format!("<{end}"), &format!("&lt;{end}"));
    }
    escaped
}

fn unescaped(text: &str) -> String {
    let mut unescaped = text.to_owned();
    for end in ENDS {
        unescaped = with_one_less(&unescaped.replace(&format!("&lt;{end}"), &format!("<{end}")), end);
    }
    unescaped
}

/// `&lt;/end` becomes `&amp;lt;/end`, that `&amp;amp;lt;/end`, and so on.
fn with_one_more(text: &str, end: &str) -> String {
    let lt = format!("lt;{end}");
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&lt) {
        let stem = before.trim_end_matches("amp;");
        result.push_str(stem);
        if stem.ends_with('&') {
            result.push_str("amp;");
        }
        result.push_str(&before[stem.len()..]);
        result.push_str(&lt);
        rest = after;
    }
    result + rest
}

fn with_one_less(text: &str, end: &str) -> String {
    let lt = format!("lt;{end}");
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&lt) {
        let stem = before.trim_end_matches("amp;");
        let amps = &before[stem.len()..];
        result.push_str(stem);
        result.push_str(if stem.ends_with('&') { amps.strip_prefix("amp;").unwrap_or(amps) } else { amps });
        result.push_str(&lt);
        rest = after;
    }
    result + rest
}
