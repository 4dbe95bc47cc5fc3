//! The export of a conversation, as a stream: a log may be longer than the memory.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use conversations::TrajectoryPages;
use futures_util::{Stream, stream};
use http::header;
use protocol::client_api::TrajectoryExport;
use protocol::{ConversationId, Event};

use crate::error::ApiError;
use crate::extract::ConversationPath;
use crate::state::ServerState;
use crate::work::{JSON, WorkPermit, run_blocking};

/// What surrounds the events of a trajectory.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    start: &'static str,
    end: &'static str,
}

impl Frame {
    /// A JSON array.
    pub(crate) const ARRAY: Self = Self {
        start: "[",
        end: "]",
    };

    /// A [`TrajectoryExport`].
    const OBJECT: Self = Self {
        start: r#"{"trajectory":["#,
        end: "]}",
    };
}

/// Returns all events, without screenshots. If they cannot be read to their end, the connection is
/// closed without the end of the body, so that clients see that it is incomplete.
#[utoipa::path(get, path = "/api/conversations/{id}/trajectory",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The events", body = TrajectoryExport)))]
pub(super) async fn export(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let conversations = state.conversations.conversations();
    let pages = conversations.trajectory(&id, false).await?;
    Ok(respond(pages, Frame::OBJECT, permit))
}

/// Sends a trajectory as it is read. Holds the permit until its end.
pub(crate) fn respond(pages: TrajectoryPages, frame: Frame, permit: WorkPermit) -> Response {
    let export = Export {
        pages,
        frame,
        separator: frame.start,
        _permit: permit,
    };
    let body = Body::from_stream(export.parts());
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

/// An export in progress. Dropped when the client is gone.
struct Export {
    pages: TrajectoryPages,
    frame: Frame,
    /// What precedes the next event.
    separator: &'static str,
    _permit: WorkPermit,
}

impl Export {
    fn parts(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::unfold(Some(self), async |open| {
            let mut export = open?;
            match export.next().await {
                Ok(Some(part)) => Some((Ok(part), Some(export))),
                Ok(None) => {
                    let Frame { start, end } = export.frame;
                    let start = if export.separator == start { start } else { "" };
                    Some((Ok(Bytes::from([start, end].concat())), None))
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "cannot export a conversation"
                    );
                    Some((Err(io::Error::other(error)), None))
                }
            }
        })
    }

    /// Returns the next events with what precedes them. `None` after the last one.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        while let Some(events) = self.pages.next().await? {
            if events.is_empty() {
                continue;
            }
            let separator = std::mem::replace(&mut self.separator, ",");
            return Ok(Some(
                run_blocking(move || write(separator, &events)).await??,
            ));
        }
        Ok(None)
    }
}

fn write(separator: &str, events: &[Event]) -> Result<Bytes, ApiError> {
    let mut json = Vec::new();
    for (index, event) in events.iter().enumerate() {
        json.extend_from_slice(if index == 0 { separator } else { "," }.as_bytes());
        serde_json::to_writer(&mut json, event)
            .map_err(|error| ApiError::invalid("trajectory", error))?;
    }
    Ok(json.into())
}
