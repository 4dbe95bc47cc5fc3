//! Programs in a conversation's sandbox that a browser can open.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conversations::{ConversationsError, SandboxAccessError};
use protocol::ConversationId;
use protocol::client_api::{EditorUrl, WebHosts};

use crate::error::ApiError;
use crate::extract::{ConversationPath, RequestCaller};
use crate::state::ServerState;
use crate::{auth, ports};

/// Ports of servers under development. V0's page asks for links once, and then tries them again and
/// again: without these it would not find a program that is started later.
const USUAL_PORTS: [u16; 5] = [3000, 5000, 5173, 8000, 8080];

/// Links to the ports with a listener, each with its number, usual ones first; without any, to
/// ports that such programs usually have. None while there is no sandbox. A caller who may only
/// read gets no link, because a request to a program can change what it likes.
#[utoipa::path(get, path = "/api/conversations/{id}/web-hosts",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The links", body = WebHosts)))]
pub(super) async fn web_hosts(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<WebHosts>, ApiError> {
    auth::require_write(&caller)?;
    let mut ports: Vec<_> = match state.conversations.conversations().ports(&id).await {
        Err(SandboxAccessError::Conversation(
            ConversationsError::NotRunning(_) | ConversationsError::NoSandbox(_),
        )) => Vec::new(),
        listening => match listening?
            .iter()
            .map(|listening| listening.port)
            .collect::<Vec<_>>()
        {
            ports if ports.is_empty() => USUAL_PORTS.into(),
            ports => ports,
        },
    };
    sort(&mut ports);
    let hosts = ports
        .into_iter()
        .filter_map(|port| Some((ports::link(&state, &caller, &id, port)?, port)))
        .collect();
    Ok(Json(WebHosts { hosts }))
}

/// Sorts ports so that those that a user may want to see come first.
fn sort(ports: &mut [u16]) {
    ports.sort_by_key(|port| (!USUAL_PORTS.contains(port), *port));
}

/// The editor of V0's images. Ours have none: an editor that the agent or an image starts is one of
/// the ports.
#[utoipa::path(get, path = "/api/conversations/{id}/vscode-url",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "No link", body = EditorUrl)))]
pub(super) async fn vscode_url(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<EditorUrl>, ApiError> {
    state.conversations.conversations().event_count(&id).await?;
    Ok(Json(EditorUrl { vscode_url: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_ports_come_first() {
        let mut ports = [5432, 21_000, 8000, 631, 3000];
        sort(&mut ports);
        assert_eq!(ports, [3000, 8000, 631, 5432, 21_000]);
    }
}
