//! The API's document as it is tested with: without what has no end, with waits that are short, with commands that are
//! quick, and with few names, so that requests meet what earlier ones made.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// They answer until somebody goes.
const ENDLESS: [&str; 3] = ["/v1/files/watch", "/v1/ports/{port}/tunnel", "/v1/sockets/tunnel"];

/// In seconds.
const LONGEST_WAIT: f64 = 0.1;

/// Beside any other text: the working directory, what may be in it, a file that is always there, some that have no end.
const PATHS: [&str; 7] = ["", "a", "a/b", "c", "/bin/sh", "/dev/zero", "/proc/self/status"];

const PATH_NAMES: [&str; 3] = ["path", "from", "to"];

/// Those of actions, processes and sessions; and of those that are forgotten, lest none is left to be asked for.
const IDS: &str = "^[a-h]$";
const IDS_THAT_END: &str = "^[ab]$";

/// Fails where the document has no longer what this changes: it would then be tested without the change.
pub(super) fn bounded(mut document: Value) -> Result<Value> {
    let paths = field(&mut document, "/paths")?.as_object_mut().context("`paths` is no object")?;
    for path in ENDLESS {
        paths.remove(path).with_context(|| format!("there is no route {path}"))?;
    }
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            let is_end = method == "delete" || path.ends_with("/acknowledge");
            bound_parameters(operation, is_end)?;
        }
    }
    // schemathesis knows no other way to send bytes.
    let upload = field(&mut document, "/paths/~1v1~1files~1tree/put/requestBody/content")?;
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
    for schema in schemas.as_object_mut().into_iter().flat_map(|schemas| schemas.values_mut()) {
        bound_properties(schema);
    }
    Ok(document)
}

fn field<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value.pointer_mut(pointer).with_context(|| format!("the document has no {pointer}"))
}

fn bound_parameters(operation: &mut Value, is_end: bool) -> Result<()> {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let schema = field(parameter, "/schema")?;
        if name == "id" && is_end {
            *schema = json!({ "type": "string", "pattern": IDS_THAT_END });
        }
        bound(&name, schema);
    }
    Ok(())
}

/// Of an object, or of each object that it may be.
fn bound_properties(schema: &mut Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten().for_each(|(name, property)| bound(name, property));
    let choices = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    choices.into_iter().flatten().for_each(bound_properties);
}

fn bound(name: &str, schema: &mut Value) {
    if ["wait", "timeout"].contains(&name) {
        schema["maximum"] = LONGEST_WAIT.into();
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
    fn nothing_waits_and_nothing_goes_on_for_ever() {
        let bounded = bounded(document()).unwrap();
        let paths = bounded["paths"].as_object().unwrap();
        assert_eq!(paths.len() + ENDLESS.len(), document()["paths"].as_object().unwrap().len());
        let wait = &bounded["paths"]["/v1/ports/{port}"]["get"]["parameters"][1];
        assert_eq!((&wait["name"], &wait["schema"]["maximum"]), (&json!("wait"), &json!(0.1)));
        let actions = bounded["components"]["schemas"]["ActionRequest"]["oneOf"].as_array().unwrap();
        assert_eq!(actions.len(), 5);
        assert!(actions.iter().all(|action| action["properties"]["timeout"]["maximum"] == 0.1));
    }

    #[test]
    fn a_document_without_what_is_changed_is_refused() {
        let mut changed = document();
        changed["components"]["schemas"]["RunAction"]["properties"]
            .as_object_mut()
            .unwrap()
            .remove("command");
        let error = bounded(changed).unwrap_err();
        assert_eq!(error.to_string(), "the document has no /RunAction/properties/command");
    }
}
