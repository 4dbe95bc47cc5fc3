//! The sandboxes of V1's API, which V0's page asks for after it has opened a conversation.

use axum::Json;
use axum::extract::RawQuery;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;

/// Maximum number of ids of a request, as in V0.
const MAX_IDS: usize = 99;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "only its description is used: a query has a field only once"
)]
pub(super) struct SandboxesQuery {
    /// The sandboxes. Can be repeated.
    #[param(min_items = 1, max_items = 99)]
    id: Vec<String>,
}

/// Returns `null` for each id, as V0 does for sandboxes that do not exist: conversations of V0 have
/// none that V1's API knows.
#[utoipa::path(get, path = "/api/v1/sandboxes",
    params(SandboxesQuery),
    responses((status = 200, description = "`null` for each id", body = Vec<Option<String>>)))]
pub(super) async fn find(RawQuery(query): RawQuery) -> Result<Json<Vec<Option<String>>>, ApiError> {
    let count = count_ids(query.as_deref().unwrap_or_default());
    if !(1..=MAX_IDS).contains(&count) {
        return Err(ApiError::invalid(
            "id",
            format_args!("must be given 1 to {MAX_IDS} times"),
        ));
    }
    Ok(Json(vec![None; count]))
}

fn count_ids(query: &str) -> usize {
    form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == "id")
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_id_has_no_sandbox() {
        let find = async |query: Option<String>| {
            find(RawQuery(query))
                .await
                .map(|Json(found)| found.len())
                .ok()
        };
        assert_eq!(find(Some("id=a".into())).await, Some(1));
        assert_eq!(find(Some("id=a&other=b&id=a&id=".into())).await, Some(3));
        assert_eq!(find(Some("id=a&".repeat(MAX_IDS))).await, Some(MAX_IDS));
        for query in [
            None,
            Some(String::new()),
            Some("ids=a".into()),
            Some("id=a&".repeat(MAX_IDS + 1)),
        ] {
            assert_eq!(find(query.clone()).await, None, "{query:?}");
        }
    }
}
