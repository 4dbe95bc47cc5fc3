//! `GET /alive`: responds once the server accepts requests. Does not require the key.

use axum::Json;
use serde_json::{Value, json};

#[cfg_attr(test, utoipa::path(
    get,
    path = "/alive",
    responses((status = 200, description = "The server listens", body = Value)),
    security(())
))]
pub(crate) async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}
