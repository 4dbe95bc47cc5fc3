//! The OpenAPI document of the server's routes, and a page that shows it. Both are open: they
//! describe the program only.
//!
//! The document is made from the handlers and the types of [`protocol::client_api`]. A test
//! compares it with the routes.

mod document;
mod page;

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use http::header;
use serde_json::{Value, json};

use crate::state::ServerState;
pub(crate) use document::Bytes;

/// The same for every server of this version, without its base path.
static DOCUMENT: LazyLock<Value> = LazyLock::new(document::document);

/// The page of [`DOCUMENT`].
static PAGE: LazyLock<String> = LazyLock::new(|| page::render(&DOCUMENT));

/// Policy of the page, which has a style sheet and no script.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns this document.
#[utoipa::path(get, path = "/api/openapi.json", security(()),
    responses((status = 200, description = "The document", body = Object)))]
pub(crate) async fn openapi(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let mut document = DOCUMENT.clone();
    document["servers"] = json!([{"url": state.base_path.path()}]);
    Json(document)
}

/// Leads to the page that shows this document, if the server has no other page.
#[utoipa::path(get, path = "/", security(()),
    responses((status = 307, description = "There is no other page"),
        (status = 200, description = "The page of the server", body = String, content_type = "text/html")))]
pub(crate) async fn root(State(state): State<Arc<ServerState>>) -> Redirect {
    Redirect::temporary(&format!("{}/api/docs", state.base_path))
}

/// Returns a page that shows this document.
#[utoipa::path(get, path = "/api/docs", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
pub(crate) async fn docs() -> Response {
    (
        [(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)],
        Html(PAGE.as_str()),
    )
        .into_response()
}
