//! The schemas of tools, as every provider accepts them. Those of MCP servers are of any kind.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Keywords that combine schemas. Providers refuse them at the top.
const COMBINATIONS: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Keywords whose value is a schema, or a list of schemas.
const SUBSCHEMAS: [&str; 6] = [
    "items",
    "additionalProperties",
    "not",
    "oneOf",
    "anyOf",
    "allOf",
];

/// Keywords whose value is an object of schemas.
const SCHEMAS: [&str; 3] = ["properties", "$defs", "definitions"];

/// Maximum length of a property's name.
const MAX_NAME_CHARS: usize = 64;

/// Returns a schema of an object that every provider accepts.
pub(super) fn repaired(schema: &Value) -> Value {
    let mut schema = match schema {
        Value::Object(schema) => schema.clone(),
        _ => Map::new(),
    };
    merge_combinations(&mut schema);
    schema.insert("type".into(), "object".into());
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".into(), json!({}));
    }
    repair(&mut schema);
    Value::Object(schema)
}

/// Replaces alternatives at the top by all of their properties. Required are only those that each
/// alternative requires.
fn merge_combinations(schema: &mut Map<String, Value>) {
    schema.remove("not");
    schema.remove("enum");
    for keyword in COMBINATIONS {
        let Some(Value::Array(parts)) = schema.remove(keyword) else {
            continue;
        };
        let required = |part: &Value| -> BTreeSet<String> {
            let names = part["required"].as_array().into_iter().flatten();
            names
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect()
        };
        let sets = parts.iter().map(required);
        let common = if keyword == "allOf" {
            sets.reduce(|all, more| all.union(&more).cloned().collect())
        } else {
            sets.reduce(|all, more| all.intersection(&more).cloned().collect())
        };
        let mut names = required(&Value::Object(schema.clone()));
        names.extend(common.unwrap_or_default());
        if !names.is_empty() {
            schema.insert("required".into(), json!(names));
        }
        if !schema.get("properties").is_some_and(Value::is_object) {
            schema.insert("properties".into(), json!({}));
        }
        let Some(Value::Object(properties)) = schema.get_mut("properties") else {
            continue;
        };
        for part in parts {
            if let Value::Object(more) = &part["properties"] {
                more.iter().for_each(|(name, value)| {
                    properties.entry(name).or_insert_with(|| value.clone());
                });
            }
        }
    }
}

fn repair(schema: &mut Map<String, Value>) {
    if schema
        .get("required")
        .is_some_and(|required| !required.is_array())
    {
        schema.remove("required");
    }
    for keyword in [
        "properties",
        "items",
        "type",
        "enum",
        "description",
        "additionalProperties",
    ] {
        if schema.get(keyword).is_some_and(Value::is_null) {
            schema.remove(keyword);
        }
    }
    if schema.get("type").is_some_and(|kind| kind == "array") && !schema.contains_key("items") {
        schema.insert("items".into(), json!({}));
    }
    for keyword in SUBSCHEMAS {
        match schema.get_mut(keyword) {
            Some(Value::Object(one)) => repair(one),
            Some(Value::Array(list)) => list
                .iter_mut()
                .filter_map(Value::as_object_mut)
                .for_each(repair),
            _ => {}
        }
    }
    for keyword in SCHEMAS {
        if let Some(Value::Object(all)) = schema.get_mut(keyword) {
            all.values_mut()
                .filter_map(Value::as_object_mut)
                .for_each(repair);
        }
    }
    rename_properties(schema);
}

/// Replaces the names of properties that providers refuse, such as `$filter`.
fn rename_properties(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        *properties = std::mem::take(properties)
            .into_iter()
            .map(|(name, value)| (clean(&name), value))
            .collect();
    }
    for name in schema
        .get_mut("required")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(cleaned) = name.as_str().map(clean) {
            *name = cleaned.into();
        }
    }
}

fn clean(name: &str) -> String {
    let is_accepted = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
    let clean = name
        .chars()
        .take(MAX_NAME_CHARS)
        .map(|char| if is_accepted(char) { char } else { '_' });
    if name.is_empty() {
        "_".to_owned()
    } else {
        clean.collect()
    }
}

/// Gives arguments the names of the tool's own schema.
pub(super) fn restore_arguments(arguments: &mut String, schema: &Value) {
    let Ok(mut value) = protocol::untrusted_json::from_str::<Value>(arguments) else {
        return;
    };
    if restore(&mut value, schema) {
        *arguments = value.to_string();
    }
}

/// Returns whether a name was replaced.
fn restore(value: &mut Value, schema: &Value) -> bool {
    match value {
        Value::Object(object) => {
            let mut is_changed = false;
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let cleaned = clean(name);
                if cleaned != *name
                    && let Some(value) = object.remove(&cleaned)
                {
                    object.insert(name.clone(), value);
                    is_changed = true;
                }
                is_changed |= object
                    .get_mut(name)
                    .is_some_and(|value| restore(value, schema));
            }
            is_changed
        }
        Value::Array(list) => {
            let mut is_changed = false;
            for item in list {
                is_changed |= restore(item, &schema["items"]);
            }
            is_changed
        }
        _ => false,
    }
}
