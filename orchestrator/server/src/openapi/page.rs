//! The page of the document, without scripts.

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

const STYLE: &str = "body { font: 1rem/1.5 sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem } \
    summary { cursor: pointer; padding: .3rem 0 } code, pre { font-family: monospace } pre { overflow: auto } \
    b { display: inline-block; width: 4.5rem } td, th { padding: .1rem 1rem .1rem 0; text-align: left; vertical-align: top } \
    details > div { margin-left: 1.5rem }";

pub(super) fn render(document: &Value) -> String {
    let info = &document["info"];
    let schemas = document["components"]["schemas"]
        .as_object()
        .into_iter()
        .flatten();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (text(&info["title"])) }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { (text(&info["title"])) " " (text(&info["version"])) }
                p { (text(&info["description"])) }
                p { "The same as JSON: " a href="openapi.json" { "openapi.json" } }
                h2 { "Routes" }
                @for (path, operations) in document["paths"].as_object().into_iter().flatten() {
                    @for (method, operation) in operations.as_object().into_iter().flatten() {
                        (render_operation(path, method, operation))
                    }
                }
                h2 { "Types" }
                @for (name, schema) in schemas {
                    details id=(name) {
                        summary { code { (name) } " " (text(&schema["description"])) }
                        pre { (format!("{schema:#}")) }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn render_operation(path: &str, method: &str, operation: &Value) -> Markup {
    let parameters = operation["parameters"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let body = &operation["requestBody"]["content"];
    html! {
        details {
            summary { b { (method.to_uppercase()) } code { (path) } " " (text(&operation["summary"])) }
            div {
                @if operation["description"].is_string() { p { (text(&operation["description"])) } }
                @if !parameters.is_empty() {
                    table {
                        tr { th { "Parameter" } th { "In" } th { "Type" } th {} }
                        @for parameter in parameters {
                            tr {
                                td { code { (text(&parameter["name"])) } @if parameter["required"] == true { " *" } }
                                td { (text(&parameter["in"])) }
                                td { (render_type(&parameter["schema"])) }
                                td { (text(&parameter["description"])) }
                            }
                        }
                    }
                }
                @for (kind, content) in body.as_object().into_iter().flatten() {
                    p { "Body: " (kind) ", " (render_type(&content["schema"])) }
                }
                table {
                    tr { th { "Status" } th { "Type" } th {} }
                    @for (status, response) in operation["responses"].as_object().into_iter().flatten() {
                        tr {
                            td { (status) }
                            td {
                                @for (kind, content) in response["content"].as_object().into_iter().flatten() {
                                    (kind) ", " (render_type(&content["schema"]))
                                }
                            }
                            td { (text(&response["description"])) }
                        }
                    }
                }
            }
        }
    }
}

/// Links a named type. Shows any other as its schema.
fn render_type(schema: &Value) -> Markup {
    let name = |schema: &Value| {
        schema["$ref"]
            .as_str()?
            .rsplit('/')
            .next()
            .map(str::to_owned)
    };
    match (name(schema), name(&schema["items"])) {
        (Some(name), _) => html! { a href={ "#" (name) } { (name) } },
        (None, Some(name)) => html! { "list of " a href={ "#" (name) } { (name) } },
        (None, None) => html! { code { (schema.to_string()) } },
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_escapes_what_it_shows() {
        let operation =
            json!({"summary": "<script>", "responses": {"200": {"description": "\"&"}}});
        let page = render(&json!({"info": {"title": "<b>"}, "paths": {"/a": {"get": operation}}}));
        assert!(
            page.contains("&lt;script&gt;")
                && page.contains("&lt;b&gt;")
                && !page.contains("<script")
        );
    }
}
