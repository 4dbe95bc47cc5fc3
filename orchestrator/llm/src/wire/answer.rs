//! Reads an answer to its end, within bounds of size and of silence: a stream, a body, or a stream that says it is a
//! body.

use std::time::Duration;

use bytes::Bytes;
use engine::llm::{LlmErrorKind, LlmProgress};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::time::timeout;

use super::events::{EventReader, looks_like_events};
use super::failure::{Failure, Failures};
use super::{Fold, Pieces};
use crate::classify::Said;

/// More than any model's longest answer, streamed with a hundred bytes around each token.
const ANSWER_BYTES: usize = 32 << 20;

/// Usage follows `finish_reason` at once. A server that sends none and does not end must not hold up the answer.
const USAGE_GRACE: Duration = Duration::from_secs(10);

/// An answer that is coming.
pub(crate) struct Incoming<'a> {
    response: Response,
    headers: HeaderMap,
    failures: &'a Failures,
    idle: Duration,
    bytes_left: usize,
}

impl<'a> Incoming<'a> {
    pub(crate) fn new(response: Response, failures: &'a Failures, idle: Duration) -> Self {
        let headers = response.headers().clone();
        Self { response, headers, failures, idle, bytes_left: ANSWER_BYTES }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(crate) fn is_stream(&self) -> bool {
        let content_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        content_type.is_some_and(|value| value.starts_with("text/event-stream"))
    }

    /// The whole answer of a success.
    pub(crate) async fn read(
        &mut self,
        fold: Box<dyn Fold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Value, Failure> {
        if self.is_stream() {
            return self.read_stream(fold, on_progress).await;
        }
        let body = self.read_text().await?;
        if looks_like_events(&body) { self.fold_text(fold, &body) } else { self.parse(&body) }
    }

    /// What a refusal says. One that cannot be read to its end still is that refusal.
    pub(crate) async fn read_refusal(mut self) -> Failure {
        let status = self.response.status().as_u16();
        let said = Said::read(&self.read_text().await.unwrap_or_default());
        self.failures.refused(status, &self.headers, said)
    }

    async fn read_stream(
        &mut self,
        mut fold: Box<dyn Fold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Value, Failure> {
        let mut pieces = Pieces::default();
        let mut reader = EventReader::default();
        loop {
            let idle = if fold.is_terminal() { self.idle.min(USAGE_GRACE) } else { self.idle };
            let piece = match self.next_piece(idle).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                // Only usage is missing: the answer is worth more than a tidy end.
                Err(_) if fold.is_terminal() => break,
                Err(failure) => return Err(failure),
            };
            for event in reader.push(&piece) {
                self.take_event(fold.as_mut(), &event, &mut pieces)?;
                if fold.is_done() {
                    break;
                }
            }
            pieces.tell(on_progress);
            if fold.is_done() {
                return self.whole(fold);
            }
        }
        if let Some(event) = reader.finish() {
            self.take_event(fold.as_mut(), &event, &mut pieces)?;
        }
        self.whole(fold)
    }

    fn fold_text(&self, mut fold: Box<dyn Fold>, body: &str) -> Result<Value, Failure> {
        let mut reader = EventReader::default();
        let events = reader.push(body.as_bytes());
        for event in events.into_iter().chain(reader.finish()) {
            self.take_event(fold.as_mut(), &event, &mut Pieces::default())?;
        }
        self.whole(fold)
    }

    fn take_event(&self, fold: &mut dyn Fold, event: &str, pieces: &mut Pieces) -> Result<(), Failure> {
        if event.trim() == "[DONE]" {
            fold.end();
        } else {
            fold.add(self.parse(event)?, pieces);
        }
        Ok(())
    }

    fn whole(&self, fold: Box<dyn Fold>) -> Result<Value, Failure> {
        let cut = || self.failures.of(LlmErrorKind::StreamCut, "the stream ended before the answer did");
        fold.finish().ok_or_else(cut)
    }

    /// A body or a chunk. Either may be an error inside a success.
    fn parse(&self, text: &str) -> Result<Value, Failure> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            let detail = format!("not JSON ({error}): {}", Said::read(text).message);
            self.failures.of(LlmErrorKind::Malformed, &detail)
        })?;
        match value.get("error") {
            None | Some(Value::Null) => Ok(value),
            Some(_) => Err(self.failures.refused(200, &self.headers, Said::of_value(&value))),
        }
    }

    async fn read_text(&mut self) -> Result<String, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = self.next_piece(self.idle).await? {
            body.extend_from_slice(&piece);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn next_piece(&mut self, idle: Duration) -> Result<Option<Bytes>, Failure> {
        let piece = match timeout(idle, self.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => return Err(self.failures.cut(error)),
            Err(_) => return Err(self.failures.of(LlmErrorKind::Timeout, &format!("silence for {idle:?}"))),
        };
        let length = piece.as_ref().map_or(0, Bytes::len);
        self.bytes_left = self.bytes_left.checked_sub(length).ok_or_else(|| {
            let detail = format!("the answer is longer than {ANSWER_BYTES} bytes");
            self.failures.of(LlmErrorKind::Malformed, &detail)
        })?;
        Ok(piece)
    }
}
