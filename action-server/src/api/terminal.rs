//! `/v1/terminal`: a fresh shell, or a command, on a terminal of its own.

use std::collections::BTreeMap;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use protocol::sandbox_api::TerminalQuery;

use super::Api;
use super::upgrade::upgraded;
use crate::api::error::ApiError;

/// `CONNECT` or `GET` with an upgrade, `/v1/terminal`. It begins in the default session's folder.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/terminal",
    // The header `upgrade` is no parameter of the document's: who tries out what it leads to would have a stream opened.
    description = "With the header `upgrade` of any protocol; HTTP/2 has the extended CONNECT instead.",
    params(TerminalQuery),
    responses((status = 101, description = "Frames to and from the terminal"))
))]
pub(crate) async fn open(
    State(api): State<Api>,
    query: Result<Query<BTreeMap<String, String>>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::Query(error.body_text()))?;
    let asked = asked(query)?;
    let (upgrade, response) = upgraded(request)?;
    api.0.parts.terminals.open(&asked, &api.working_dir(), upgrade)?;
    Ok(response)
}

/// By hand: what serde makes of it would be some KiB of the static file.
fn asked(query: BTreeMap<String, String>) -> Result<TerminalQuery, ApiError> {
    let mut asked = TerminalQuery::default();
    for (name, value) in query {
        let number = || value.parse().map_err(|_| ApiError::Query(format!("`{name}` is no number to 65535")));
        match name.as_str() {
            "columns" => asked.columns = number()?,
            "rows" => asked.rows = number()?,
            "term" => asked.term = value,
            "command" => asked.command = Some(value),
            _ => return Err(ApiError::Query(format!("unknown field `{name}`"))),
        }
    }
    Ok(asked)
}
