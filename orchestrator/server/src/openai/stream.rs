//! An answer as a stream of chunks.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as ServerSentEvent, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::Serialize;

use super::answer::{Answer, AnswerPart};
use super::error::OpenAiErrorBody;
use super::response::{ChatCompletionChunk, CompletionHead};
use crate::error::ApiError;
use crate::state::ConnectionGuard;

/// Interval of comments, so that proxies do not close the stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The end of all chunks.
const DONE: &str = "[DONE]";

/// An answer that is sent.
pub(super) struct AnswerStream {
    pub(super) answer: Answer,
    pub(super) head: CompletionHead,
    /// Whether the usage is sent after the end.
    pub(super) includes_usage: bool,
    /// Counts the stream as open.
    pub(super) _connection: ConnectionGuard,
}

impl AnswerStream {
    /// Responds with the chunks. If the client disconnects, the answer is dropped.
    pub(super) fn into_response(self) -> Response {
        Sse::new(chunks(self))
            .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
            .into_response()
    }

    /// Waits for the next chunks. Returns whether more follow.
    async fn next(&mut self) -> (Vec<ServerSentEvent>, bool) {
        let head = &self.head;
        match self.answer.next().await {
            Ok(AnswerPart::Text(text)) => (
                vec![to_event(&ChatCompletionChunk::content(head, &text))],
                true,
            ),
            Ok(AnswerPart::End { reason, usage }) => {
                let mut events = vec![to_event(&ChatCompletionChunk::end(head, reason))];
                if self.includes_usage {
                    events.push(to_event(&ChatCompletionChunk::usage(head, usage)));
                }
                events.push(ServerSentEvent::default().data(DONE));
                (events, false)
            }
            Err(error) => (vec![to_error_event(&error)], false),
        }
    }
}

fn chunks(answer: AnswerStream) -> impl Stream<Item = Result<ServerSentEvent, Infallible>> {
    let first = to_event(&ChatCompletionChunk::role(&answer.head));
    let rest = stream::unfold(Some(answer), |open| async move {
        let mut answer = open?;
        let (events, has_more) = answer.next().await;
        Some((stream::iter(events), has_more.then_some(answer)))
    });
    stream::iter([first]).chain(rest.flatten()).map(Ok)
}

fn to_event(chunk: &impl Serialize) -> ServerSentEvent {
    ServerSentEvent::default().data(serde_json::to_string(chunk).unwrap_or_default())
}

/// Returns the chunk of an error, after which clients read no further ones.
fn to_error_event(error: &ApiError) -> ServerSentEvent {
    tracing::info!(
        error = error as &dyn std::error::Error,
        "a turn ends without an answer"
    );
    to_event(&OpenAiErrorBody::new(error.status_code(), error.to_body()))
}
