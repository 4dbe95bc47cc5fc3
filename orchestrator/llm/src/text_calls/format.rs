//! V0's format of a call as text:
//!
//! ```text
//! <function=execute_bash>
//! <parameter=command>
//! ls
//! </parameter>
//! </function>
//! ```
//!
//! A value is the text between its tags: unchanged if the tool requires text, else as JSON. A tag
//! of [`ESCAPED_TAGS`] in a value is escaped with `&lt;`. Pure. Parsing loses nothing: text outside
//! of calls stays text, and malformed arguments stay text too.
//!
//! A model may forget to escape the end tags of a call that a value quotes. The value would end at
//! the first of them, and its rest would be text or further calls. Such a call is malformed, with
//! everything after it.
//!
//! Two deviations of models are accepted, as in V0: `<parameter=NAME=VALUE</parameter>`, and a call
//! whose end tag is cut by the stop sequence at any position (`</`).

use engine::llm::{Tool, ToolCall};
use serde_json::{Map, Value};

use crate::arguments::{MAX_ARGUMENT_VALUES, parse_within};

/// Stop sequence, so that the model does not invent the result.
pub(crate) const CALL_END: &str = "</function";

const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// Tags that are escaped in a value, without `<`.
const ESCAPED_TAGS: [&str; 3] = ["/parameter", "/function", "function="];

/// An escaped end tag of a value, without `&`, which may be escaped too.
const ESCAPED_PARAMETER_END: &str = "lt;/parameter";

/// Maximum number of calls in a response, because the text after each call is searched to its end.
/// The engine makes fewer.
const MAX_CALLS: usize = 64;

/// Formats a call.
pub(super) fn format_call(call: &ToolCall, tools: &[Tool]) -> String {
    let body: String = match parse_object(&call.arguments) {
        Some(arguments) => arguments
            .iter()
            .map(|(name, value)| {
                let text = match value {
                    Value::String(text) if is_text(tools, &call.name, name) => text.clone(),
                    other => other.to_string(),
                };
                format!("{PARAMETER}{name}>\n{}\n{PARAMETER_END}\n", escape(&text))
            })
            .collect(),
        None => format!("{}\n", escape(&call.arguments)),
    };
    format!("{FUNCTION}{}>\n{body}{CALL_END}>", call.name)
}

/// Parses a response. Returns the text outside of the calls, and the names and arguments of the
/// calls. Calls after [`MAX_CALLS`] stay text.
pub(super) fn parse_response(text: &str, tools: &[Tool]) -> (String, Vec<(String, String)>) {
    let mut outside = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    let mut values_left = MAX_ARGUMENT_VALUES;
    while calls.len() < MAX_CALLS
        && let Some((before, call)) = rest.split_once(FUNCTION)
    {
        outside.push_str(before);
        // A cut tag is malformed. Empty arguments could be those of a call that ends the task.
        let Some((name, body)) = call.split_once('>') else {
            calls.push((call.trim().to_owned(), format!("{FUNCTION}{call}")));
            return (outside.trim().to_owned(), calls);
        };
        let (arguments, after) = parse_body(name.trim(), body, tools, &mut values_left);
        if has_unmatched_end(after, PARAMETER, PARAMETER_END)
            || has_unmatched_end(after, FUNCTION, "</function>")
        {
            calls.push((name.trim().to_owned(), unescape(body.trim())));
            return (outside.trim().to_owned(), calls);
        }
        calls.push((name.trim().to_owned(), arguments));
        rest = after;
    }
    outside.push_str(rest);
    (outside.trim().to_owned(), calls)
}

/// Returns the arguments as JSON, or as text if they are malformed, and the text after the call.
fn parse_body<'a>(
    function: &str,
    body: &'a str,
    tools: &[Tool],
    values_left: &mut usize,
) -> (String, &'a str) {
    let mut arguments = Map::new();
    let mut rest = body;
    while let Some(parameter) = rest.trim_start().strip_prefix(PARAMETER) {
        let Some((name, after)) = split_tag(parameter, function, tools) else {
            return malformed(body);
        };
        // A value without an end tag may be incomplete, and must not be used.
        let Some((value, after)) = after.split_once(PARAMETER_END) else {
            return malformed(body);
        };
        if has_unfinished_call(value) {
            return malformed(body);
        }
        let value = unescape(trim_line_breaks(value));
        let value = if is_text(tools, function, name) {
            Value::String(value)
        } else {
            parse_within(value, values_left)
        };
        arguments.insert(name.to_owned(), value);
        rest = after;
    }
    let (left, after) = split_at_end(rest);
    // Such a call may be cut before its first parameter.
    let is_cut = arguments.is_empty()
        && left.trim_end() == rest.trim_end()
        && has_parameters(function, tools);
    let is_valid =
        left.trim().is_empty() && !is_cut && !has_wrong_name(&arguments, function, tools);
    if is_valid {
        (Value::Object(arguments).to_string(), after)
    } else {
        malformed(body)
    }
}

/// Whether a tool has parameters.
fn has_parameters(function: &str, tools: &[Tool]) -> bool {
    let tool = tools.iter().find(|tool| tool.name == function);
    tool.and_then(|tool| tool.parameters["properties"].as_object())
        .is_some_and(|fields| !fields.is_empty())
}

/// Whether a value quotes the start of a call. Its end tag is then the end tag of that call, or was
/// forgotten before the next one.
fn has_unfinished_call(value: &str) -> bool {
    let quoted = value.rsplit_once(FUNCTION);
    quoted
        .is_some_and(|(_, call)| call.contains(PARAMETER) && !call.contains(ESCAPED_PARAMETER_END))
}

/// Whether text after a call has an end tag without its start: the end of that call, of which a
/// value quotes end tags.
fn has_unmatched_end(text: &str, start: &str, end: &str) -> bool {
    let mut rest = text;
    let mut open = 0_usize;
    while let Some((before, after)) = rest.split_once(end) {
        open += before.matches(start).count();
        let Some(remaining) = open.checked_sub(1) else {
            return true;
        };
        (open, rest) = (remaining, after);
    }
    false
}

/// Whether a required parameter is missing, and a parameter has an unknown name. Its value must not
/// be lost.
fn has_wrong_name(arguments: &Map<String, Value>, function: &str, tools: &[Tool]) -> bool {
    let Some(tool) = tools.iter().find(|tool| tool.name == function) else {
        return false;
    };
    let required = tool.parameters["required"].as_array();
    let mut names = required.into_iter().flatten().filter_map(Value::as_str);
    names.any(|name| !arguments.contains_key(name))
        && arguments
            .keys()
            .any(|name| schema(tools, function, name).is_none())
}

/// Returns the name in a parameter's tag, and the text after the tag. Some models write `=` instead
/// of `>`, which is accepted after the name of a parameter of the tool.
fn split_tag<'a>(parameter: &'a str, function: &str, tools: &[Tool]) -> Option<(&'a str, &'a str)> {
    let by_equals = parameter
        .split_once('=')
        .filter(|(name, _)| schema(tools, function, name.trim()).is_some());
    let (name, after) = by_equals.or_else(|| parameter.split_once('>'))?;
    Some((name.trim(), after))
}

fn malformed(body: &str) -> (String, &str) {
    let (written, after) = split_at_end(body);
    (unescape(written.trim()), after)
}

/// Returns the text before and after the end of a call. A server that stopped there sent a part of
/// the end tag, or none.
fn split_at_end(text: &str) -> (&str, &str) {
    if let Some((before, after)) = text.split_once(CALL_END) {
        return (before, after.strip_prefix('>').unwrap_or(after));
    }
    let text = text.trim_end();
    let cut = (1..CALL_END.len())
        .rev()
        .find_map(|length| text.strip_suffix(&CALL_END[..length]));
    (cut.unwrap_or(text), "")
}

/// Parses arguments. `None` if they are not an object.
pub(super) fn parse_object(arguments: &str) -> Option<Map<String, Value>> {
    match protocol::untrusted_json::from_str(arguments) {
        Ok(Value::Object(arguments)) => Some(arguments),
        _ => None,
    }
}

/// Whether the tool's schema requires text for a parameter.
fn is_text(tools: &[Tool], function: &str, parameter: &str) -> bool {
    schema(tools, function, parameter).is_some_and(|schema| schema["type"] == "string")
}

/// Returns the schema of a tool's parameter.
fn schema<'a>(tools: &'a [Tool], function: &str, parameter: &str) -> Option<&'a Value> {
    let tool = tools.iter().find(|tool| tool.name == function)?;
    tool.parameters["properties"].get(parameter)
}

fn trim_line_breaks(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// Escapes `<` of a tag as `&lt;`, and adds an `amp;` to text that looks escaped already.
fn escape(text: &str) -> String {
    let mut escaped = text.to_owned();
    for tag in ESCAPED_TAGS {
        escaped = escape_entities(&escaped, tag).replace(&format!("<{tag}"), &format!("&lt;{tag}"));
    }
    escaped
}

fn unescape(text: &str) -> String {
    let mut unescaped = text.to_owned();
    for tag in ESCAPED_TAGS {
        unescaped = unescape_entities(
            &unescaped.replace(&format!("&lt;{tag}"), &format!("<{tag}")),
            tag,
        );
    }
    unescaped
}

/// Adds an `amp;` to each escaped tag: `&lt;/tag` becomes `&amp;lt;/tag`, which becomes
/// `&amp;amp;lt;/tag`.
fn escape_entities(text: &str, tag: &str) -> String {
    map_ampersands(text, tag, |amps| format!("amp;{amps}"))
}

/// Removes an `amp;` from each escaped tag.
fn unescape_entities(text: &str, tag: &str) -> String {
    map_ampersands(text, tag, |amps| {
        amps.strip_prefix("amp;").unwrap_or(amps).to_owned()
    })
}

/// Replaces the repetitions of `amp;` in each escaped tag.
fn map_ampersands(text: &str, tag: &str, map: impl Fn(&str) -> String) -> String {
    let lt = format!("lt;{tag}");
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&lt) {
        let stem = before.trim_end_matches("amp;");
        let amps = &before[stem.len()..];
        result.push_str(stem);
        if stem.ends_with('&') {
            result.push_str(&map(amps));
        } else {
            result.push_str(amps);
        }
        result.push_str(&lt);
        rest = after;
    }
    result + rest
}
