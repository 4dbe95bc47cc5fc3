//! Makes the document, and sees to it that the committed one is the same and leaves no route out.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::sandbox_api::{ActionRequest, ErrorBody, FileMode, KEY_HEADER};
use protocol::{ActionId, ProcessId, SessionName};
use serde_json::{Value, json};
use utoipa::{OpenApi as _, ToSchema};

use crate::api::{
    actions, alive, environment, execute_action, files, info, ports, processes, sessions, terminal,
};
use crate::embedded_text::inflate;

/// Makes the test write the document instead.
const WRITE: &str = "GLOVEBOX_WRITE_OPENAPI";

/// An action event as V0's clients send it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Event {
    action: ActionRequest,
}

/// Not JSON.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Bytes(Vec<u8>);

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Glovebox action server",
        description = "Shells, files, processes and ports of one sandbox. The body of an error is an ErrorBody. \
                       protocol::sandbox_api describes the formats other than JSON and file contents.",
    ),
    paths(
        super::openapi,
        alive::alive,
        info::info,
        actions::start,
        actions::attach,
        actions::cancel,
        actions::acknowledge,
        sessions::list,
        sessions::end,
        environment::set,
        terminal::open,
        ports::list,
        ports::probe,
        ports::tunnel_to_port,
        ports::tunnel_to_socket,
        processes::list,
        processes::start,
        processes::info,
        processes::output,
        processes::stdin,
        processes::signal,
        processes::kill,
        processes::acknowledge,
        execute_action::execute_action
    ),
    components(schemas(ActionId, ErrorBody, FileMode, ProcessId, SessionName)),
    security(("key" = []))
)]
struct Document;

/// Generates the document, and adds the error response and a unique id to every operation.
fn document() -> Value {
    let mut openapi = Document::openapi();
    openapi.merge(files::Document::openapi());
    let mut document = serde_json::to_value(openapi).unwrap();
    document["components"]["securitySchemes"] =
        json!({"key": {"type": "apiKey", "in": "header", "name": KEY_HEADER}});
    let schema = json!({"$ref": "#/components/schemas/ErrorBody"});
    let error_response =
        json!({"description": "An error", "content": {"application/json": {"schema": schema}}});
    for (path, operations) in document["paths"].as_object_mut().unwrap() {
        for (method, operation) in operations.as_object_mut().unwrap() {
            operation["operationId"] = format!("{method} {path}").into();
            operation
                .as_object_mut()
                .unwrap()
                .retain(|key, value| match key.as_str() {
                    // Summaries of handlers start with their route.
                    "summary" => !value.as_str().unwrap().starts_with('`'),
                    "tags" => false,
                    _ => true,
                });
            operation
                .get_mut("parameters")
                .into_iter()
                .for_each(remove_null_types);
            if path != "/alive" {
                operation["responses"]["default"] = error_response.clone();
            }
        }
    }
    for schema in document["components"]["schemas"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            // Only used by hosts, for values of newer servers.
            values.retain(|value| value != "unknown");
        }
    }
    document
}

/// Optional parameters cannot be `null`, because queries and headers have no such value.
fn remove_null_types(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().unwrap() {
        if let Some(types) = parameter
            .pointer_mut("/schema/type")
            .filter(|types| types.is_array())
        {
            *types = types[0].clone();
        }
    }
}

/// Every `$ref` below.
fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            fields.values().flat_map(references).chain(own).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// `METHOD PATH` of every route that routers of this source add. HEAD goes with GET; OpenAPI has no
/// CONNECT.
fn routes(source: &str) -> BTreeSet<String> {
    // As if it was on one line.
    let source: String = source.split_whitespace().collect();
    let of_route = |text: &str| {
        let (path, handlers) = text.split_once("\",").unwrap();
        let handlers = handlers.split(".route(").next().unwrap();
        let taken = ["get", "put", "post", "delete"]
            .into_iter()
            .filter(|method| {
                let call = format!("{method}(");
                handlers.starts_with(&call) || handlers.contains(&format!(").{call}"))
            });
        taken
            .map(|method| format!("{method} {path}"))
            .collect::<Vec<_>>()
    };
    source
        .split(".route(\"")
        .skip(1)
        .flat_map(of_route)
        .collect()
}

#[test]
fn committed_document_matches_the_code() {
    let made = format!("{:#}\n", document());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(file, made).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap();
    assert!(
        committed == made,
        "openapi.json is out of date: `{WRITE}=1 cargo test -p action-server openapi` writes it"
    );
}

#[test]
fn document_contains_exactly_the_routes() {
    let mut served = routes(include_str!("../routes.rs"));
    served.extend(routes(include_str!("../api/files/mod.rs")));
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, operations): (&String, &Value)| {
        operations
            .as_object()
            .unwrap()
            .keys()
            .map(|method| format!("{method} {path}"))
            .collect::<Vec<_>>()
    };
    let documented: BTreeSet<String> = paths.iter().flat_map(of_path).collect();
    assert!(served.len() > 30, "{served:?}");
    assert_eq!(served, documented);
}

#[test]
fn every_reference_in_the_document_resolves() {
    let document = document();
    let references = references(&document);
    assert!(references.len() > 50);
    for reference in references {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
}

#[test]
fn binary_contains_the_committed_document() {
    assert_eq!(
        inflate(super::DEFLATED).unwrap(),
        include_str!("../../openapi.json")
    );
}
