//! Makes the document.

use protocol::client_api::ErrorBody;
use protocol::client_api::git::{OwnerType, RepositorySort, SearchSort, SortOrder, TaskType};
use serde_json::{Value, json};
use utoipa::{OpenApi as _, ToSchema};

use super::{__path_docs, __path_openapi, __path_root};
use crate::auth::KEY_HEADER;
use crate::cookies::{HOST_SESSION_COOKIE, SESSION_COOKIE};
use crate::openai::{self, OpenAiErrorBody};
use crate::routes::{
    conversations, events, files, git, health, knowledge, options, ports, sandboxes, secrets,
    settings, trajectory, upload, workspace_git,
};
use crate::{metrics, stream, v2};

/// Not JSON.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Bytes(Vec<u8>);

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Glovebox server",
        description = "Conversations with agents that work in sandboxes. The body of an error is an ErrorBody. Events have the \
                       form of OpenHands V0. Below /v1 the server speaks OpenAI's API, at /mcp the Model Context Protocol, and \
                       below /socket.io it speaks socket.io.",
    ),
    paths(
        openapi,
        docs,
        root,
        health::alive,
        health::health,
        health::ready,
        health::server_info,
        metrics::metrics,
        options::models,
        options::agents,
        options::security_analyzers,
        options::config,
        settings::find,
        settings::save,
        settings::reset,
        settings::add_git_providers,
        settings::unset_provider_tokens,
        secrets::list,
        secrets::create,
        secrets::update,
        secrets::remove,
        conversations::create,
        conversations::list,
        conversations::list_of_microagents,
        conversations::find,
        conversations::rename,
        conversations::delete,
        conversations::start,
        conversations::stop,
        conversations::config,
        conversations::submit_feedback,
        conversations::experiment_config,
        events::page,
        events::append,
        events::message,
        trajectory::export,
        sandboxes::find,
        v2::conversations::create,
        v2::conversations::list,
        v2::conversations::find,
        v2::conversations::delete,
        v2::conversations::fork,
        v2::commands::apply,
        v2::events::page,
        v2::events::trajectory,
        v2::files::list,
        v2::files::read,
        v2::files::write,
        v2::files::make_folder,
        v2::files::rename,
        v2::files::remove,
        v2::files::archive,
        v2::git::changes,
        v2::git::diff,
        v2::git::versions,
        v2::profile::models,
        v2::profile::agents,
        v2::profile::settings,
        v2::profile::change_settings,
        v2::profile::secrets,
        v2::profile::set_secret,
        v2::profile::remove_secret,
        v2::sandbox::find,
        v2::sandbox::usage,
        v2::sandbox::list_ports,
        v2::sandbox::logs,
        v2::sandbox::pause,
        stream::stream,
        ports::web_hosts,
        ports::vscode_url,
        files::list,
        files::select,
        files::zip,
        upload::upload,
        workspace_git::changes,
        workspace_git::diff,
        knowledge::microagents,
        knowledge::remember_prompt,
        git::installations,
        git::repositories,
        git::info,
        git::search_repositories,
        git::search_branches,
        git::suggested_tasks,
        git::branches,
        git::microagents,
        git::microagent_content,
        openai::models,
        openai::chat_completions
    ),
    components(schemas(ErrorBody, OpenAiErrorBody, OwnerType, RepositorySort, SearchSort, SortOrder, TaskType)),
    security(("key" = []), ("bearer" = []), ("session" = []))
)]
struct Document;

/// Generates the document, and adds the response of errors and a unique id to every operation.
pub(super) fn document() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    document["components"]["securitySchemes"] = json!({
        "key": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
        "bearer": {"type": "http", "scheme": "bearer"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": SESSION_COOKIE,
            "description": format!("With HTTPS and no base path: {HOST_SESSION_COOKIE}"),
        },
    });
    let error_of = |name: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        json!({"description": "An error", "content": {"application/json": {"schema": schema}}})
    };
    for (path, method, operation) in operations_mut(&mut document) {
        operation["operationId"] = format!("{method} {path}").into();
        let is_openai = path.starts_with("/v1/");
        operation["responses"]["default"] = error_of(if is_openai {
            "OpenAiErrorBody"
        } else {
            "ErrorBody"
        });
        operation
            .as_object_mut()
            .map(|operation| operation.remove("tags"));
        let parameters = operation
            .get_mut("parameters")
            .and_then(Value::as_array_mut);
        parameters.into_iter().flatten().for_each(remove_null_type);
    }
    document
}

fn operations_mut(document: &mut Value) -> impl Iterator<Item = (String, String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, operations)| {
        let operations = operations.as_object_mut().into_iter().flatten();
        operations.map(move |(method, operation)| (path.clone(), method.clone(), operation))
    })
}

/// An optional parameter is absent. A query has no `null`.
fn remove_null_type(parameter: &mut Value) {
    let schema = &mut parameter["schema"];
    if let Some(types) = schema.get_mut("type").filter(|types| types.is_array()) {
        *types = types[0].take();
    }
    let variants = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    if let Some(variant) =
        variants.and_then(|all| all.iter().find(|one| one["type"] != "null").cloned())
    {
        *schema = variant;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// `METHOD PATH` of every route that routers of this source add.
    fn routes(prefix: &str, source: &str) -> BTreeSet<String> {
        // As if it was on one line.
        let source: String = source.split_whitespace().collect();
        let of_route = |text: &str| {
            let (path, handlers) = text.split_once("\",").unwrap();
            let ends = [".route(", ".fallback"];
            let end = ends.iter().filter_map(|end| handlers.find(end)).min();
            let handlers = &handlers[..end.unwrap_or(handlers.len())];
            let methods = ["get", "put", "post", "patch", "delete"].into_iter();
            let methods = methods.filter(|method| {
                let call = format!("{method}(");
                handlers.starts_with(&call) || handlers.contains(&format!(").{call}"))
            });
            methods
                .map(|method| format!("{method} {prefix}{path}"))
                .collect::<Vec<_>>()
        };
        source
            .split(".route(\"")
            .skip(1)
            .flat_map(of_route)
            .collect()
    }

    #[test]
    fn document_contains_exactly_the_routes() {
        let table = include_str!("../routes/mod.rs");
        let (api, rest) = table.split_once("let router = match").unwrap();
        let mut served = routes("/api", api);
        served.extend(routes("", rest));
        for source in [
            include_str!("../routes/settings.rs"),
            include_str!("../routes/secrets.rs"),
            include_str!("../routes/git.rs"),
            include_str!("../v2/files.rs"),
            include_str!("../v2/git.rs"),
            include_str!("../v2/sandbox.rs"),
            include_str!("../v2/profile.rs"),
        ] {
            served.extend(routes("/api", source));
        }
        served.extend(routes("/v1", include_str!("../openai/mod.rs")));
        // One route, because a parameter with slashes cannot be followed by more.
        assert!(served.remove("get /api/user/repository/{*path}"));
        for path in ["microagents", "microagents/content"] {
            served.insert(format!("get /api/user/repository/{{name}}/{path}"));
        }
        let mut document = document();
        let documented: BTreeSet<_> = operations_mut(&mut document)
            .map(|(path, method, _)| format!("{method} {path}"))
            .collect();
        assert!(served.len() > 45, "{served:?}");
        assert_eq!(served, documented);
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
    fn every_operation_and_parameter_is_described() {
        let mut document = document();
        for (path, method, operation) in operations_mut(&mut document) {
            assert!(operation["summary"].is_string(), "{method} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(
                    parameter["description"].is_string(),
                    "{method} {path}: {parameter}"
                );
                assert!(
                    !parameter.to_string().contains("\"null\""),
                    "{method} {path}: {parameter}"
                );
            }
        }
    }
}
