//! `/v1/terminal`: opens a terminal with a new shell or a command.

use std::collections::BTreeMap;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use protocol::sandbox_api::TerminalQuery;

use super::Api;
use super::upgrade::upgrade;
use crate::api::error::ApiError;

/// `CONNECT` or `GET` with an upgrade, `/v1/terminal`. It starts in the folder of the default
/// session.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/terminal",
    // `upgrade` is not a parameter in the document: a client generated from it would send the
    // header and not expect a stream.
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
    let query = parse(query)?;
    let (upgrade, response) = upgrade(request)?;
    api.0
        .parts
        .terminals
        .open(&query, &api.working_dir(), upgrade)?;
    Ok(response)
}

/// Parsed without serde, whose generated code would add some KiB to the binary.
fn parse(parameters: BTreeMap<String, String>) -> Result<TerminalQuery, ApiError> {
    let mut query = TerminalQuery::default();
    for (name, value) in parameters {
        let number = || {
            value.parse().map_err(|_| {
                ApiError::Query(format!("`{name}` is not a number between 0 and 65535"))
            })
        };
        match name.as_str() {
            "columns" => query.columns = number()?,
            "rows" => query.rows = number()?,
            "term" => query.term = value,
            "command" => query.command = Some(value),
            _ => return Err(ApiError::Query(format!("unknown field `{name}`"))),
        }
    }
    Ok(query)
}
