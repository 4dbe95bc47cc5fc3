//! `GET /alive`: whoever gets an answer may begin. Open, and of no use to anybody else.

use axum::Json;
use serde_json::{Value, json};

pub(crate) async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}
