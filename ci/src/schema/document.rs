//! The API's document, adapted for tests: without endless routes, with short waits, fast commands,
//! and few ids and paths, so that requests refer to what earlier ones created.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Routes whose response ends only when the client disconnects.
const ENDLESS_ROUTES: [&str; 3] = [
    "/v1/files/watch",
    "/v1/ports/{port}/tunnel",
    "/v1/sockets/tunnel",
];

/// Maximum of waits and timeouts, in seconds.
const MAX_WAIT_SECS: f64 = 0.1;

/// Paths that are used in addition to arbitrary text: the working directory, possible entries of
/// it, an existing file, and endless files.
const PATHS: [&str; 7] = [
    "",
    "a",
    "a/b",
    "c",
    "/bin/sh",
    "/dev/zero",
    "/proc/self/status",
];

const PATH_NAMES: [&str; 3] = ["path", "from", "to"];

/// Ids of actions, processes and sessions. Only `DELETABLE_IDS` are deleted, so that the others
/// still exist.
const IDS: &str = "^[a-h]$";
const DELETABLE_IDS: &str = "^[ab]$";

/// Adapts the document. Returns an error if a part to be changed is missing, because the test would
/// run without that change.
pub(super) fn bounded(mut document: Value) -> Result<Value> {
    let paths = field(&mut document, "/paths")?
        .as_object_mut()
        .context("`paths` is no object")?;
    for path in ENDLESS_ROUTES {
        paths
            .remove(path)
            .with_context(|| format!("there is no route {path}"))?;
    }
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            let is_deletion = method == "delete" || path.ends_with("/acknowledge");
            bound_parameters(operation, is_deletion)?;
        }
    }
    // The only media type for which schemathesis sends bytes.
    let upload = field(
        &mut document,
        "/paths/~1v1~1files~1tree/put/requestBody/content",
    )?;
    *upload = json!({ "application/octet-stream": field(upload, "/application~1x-tar")?.take() });

    let schemas = field(&mut document, "/components/schemas")?;
    for id in ["ActionId", "ProcessId", "SessionName"] {
        *field(schemas, &format!("/{id}/pattern"))? = IDS.into();
    }
    let commands = json!(["true", "echo hi", "exit 3", "C-c", ""]);
    field(schemas, "/RunAction/properties/command")?["enum"] = commands;
    let commands = json!(["view", "create", "str_replace", "insert", "undo_edit"]);
    field(schemas, "/EditAction/properties/command")?["enum"] = commands;
    field(schemas, "/ProcessRequest/properties/argv")?["enum"] =
        json!([["/bin/sh", "-c", "echo hi; exit 3"]]);
    for schema in schemas
        .as_object_mut()
        .into_iter()
        .flat_map(|schemas| schemas.values_mut())
    {
        bound_properties(schema);
    }
    Ok(document)
}

fn field<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value
        .pointer_mut(pointer)
        .with_context(|| format!("the document has no {pointer}"))
}

fn bound_parameters(operation: &mut Value, is_deletion: bool) -> Result<()> {
    let parameters = operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let schema = field(parameter, "/schema")?;
        if name == "id" && is_deletion {
            *schema = json!({ "type": "string", "pattern": DELETABLE_IDS });
        }
        bound(&name, schema);
    }
    Ok(())
}

/// Bounds the properties of an object, or of each alternative of `oneOf`.
fn bound_properties(schema: &mut Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties
        .into_iter()
        .flatten()
        .for_each(|(name, property)| bound(name, property));
    let choices = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    choices.into_iter().flatten().for_each(bound_properties);
}

fn bound(name: &str, schema: &mut Value) {
    if ["wait", "timeout"].contains(&name) {
        schema["maximum"] = MAX_WAIT_SECS.into();
    }
    if PATH_NAMES.contains(&name) {
        *schema = json!({ "anyOf": [{ "enum": PATHS }, schema.take()] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        serde_json::from_str(include_str!("../../../action-server/openapi.json")).unwrap()
    }

    #[test]
    fn waits_are_short_and_endless_routes_are_removed() {
        let bounded = bounded(document()).unwrap();
        let paths = bounded["paths"].as_object().unwrap();
        assert_eq!(
            paths.len() + ENDLESS_ROUTES.len(),
            document()["paths"].as_object().unwrap().len()
        );
        let wait = &bounded["paths"]["/v1/ports/{port}"]["get"]["parameters"][1];
        assert_eq!(
            (&wait["name"], &wait["schema"]["maximum"]),
            (&json!("wait"), &json!(0.1))
        );
        let actions = bounded["components"]["schemas"]["ActionRequest"]["oneOf"]
            .as_array()
            .unwrap();
        assert_eq!(actions.len(), 5);
        assert!(
            actions
                .iter()
                .all(|action| action["properties"]["timeout"]["maximum"] == 0.1)
        );
    }

    #[test]
    fn error_is_returned_when_a_changed_part_is_missing() {
        let mut changed = document();
        changed["components"]["schemas"]["RunAction"]["properties"]
            .as_object_mut()
            .unwrap()
            .remove("command");
        let error = bounded(changed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the document has no /RunAction/properties/command"
        );
    }
}
