//! Converts fields that only older versions of V0 wrote, as V0's newest version does.
//!
//! Fields without a meaning today (`keep_prompt`, `task_completed`, `formatted_output_and_error`)
//! need no conversion: unknown fields are ignored.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::python_literal;

/// Returns the `args` of an action under their current names.
pub(crate) fn current_args(args: &Value) -> Cow<'_, Value> {
    let Value::Object(given) = args else {
        return Cow::Borrowed(args);
    };
    let mut newer = Map::new();
    if let Some(state) = given.get("is_confirmed").filter(|state| !state.is_null()) {
        newer.insert("confirmation_state".to_owned(), state.clone());
    }
    if let Some(urls) = given.get("images_urls") {
        newer.insert("image_urls".to_owned(), urls.clone());
    }
    if let Some(code) = given.get("translated_ipython_code").and_then(Value::as_str) {
        newer.extend(file_editor_arguments(code).unwrap_or_default());
    }
    updated(args, given, newer)
}

/// Returns the `extras` of a command's observation under their current names.
pub(crate) fn current_run_extras(extras: &Value) -> Cow<'_, Value> {
    let Value::Object(given) = extras else {
        return Cow::Borrowed(extras);
    };
    let mut metadata = Map::new();
    for (older, newer) in [("exit_code", "exit_code"), ("command_id", "pid")] {
        if let Some(value) = given.get(older) {
            metadata.insert(newer.to_owned(), value.clone());
        }
    }
    let metadata = match given.get("metadata") {
        _ if metadata.is_empty() => return Cow::Borrowed(extras),
        Some(Value::Object(known)) => known
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .chain(metadata)
            .collect(),
        Some(Value::Null) | None => metadata,
        Some(_) => return Cow::Borrowed(extras),
    };
    updated(
        extras,
        given,
        Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]),
    )
}

/// Extracts the arguments of an edit or a view from the Python call that performed it, where V0
/// kept them before 2025.
fn file_editor_arguments(code: &str) -> Option<Map<String, Value>> {
    let dict = code
        .strip_prefix("print(file_editor(**")?
        .strip_suffix("))")?;
    match python_literal::parse(dict)? {
        Value::Object(arguments) => Some(arguments),
        _ => None,
    }
}

fn updated<'a>(
    fields: &'a Value,
    given: &Map<String, Value>,
    newer: Map<String, Value>,
) -> Cow<'a, Value> {
    if newer.is_empty() {
        return Cow::Borrowed(fields);
    }
    let mut fields = given.clone();
    fields.extend(newer);
    Cow::Owned(Value::Object(fields))
}
