//! Reads a response with a limit of its size and an idle timeout: a stream, a body, or a stream
//! with the content type of a body.

use std::time::Duration;

use bytes::Bytes;
use engine::llm::{LlmErrorKind, LlmProgress};
use protocol::untrusted_json::{self, MAX_VALUES, ValueCounter};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::time::timeout;

use super::events::{EventReader, looks_like_events};
use super::failure::{Failure, Failures};
use super::{ProgressBuffer, StreamFold};
use crate::classify::{ErrorBody, is_html};

/// Maximum size of a response: more than any model's longest one, streamed with a hundred bytes
/// around each token.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Maximum time between `finish_reason` and the usage. A server that sends no usage and keeps the
/// stream open must not delay the response.
const USAGE_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Reads one response.
pub(crate) struct ResponseReader<'a> {
    response: Response,
    headers: HeaderMap,
    failures: &'a Failures,
    idle: Duration,
    bytes_left: usize,
    /// Number of values in the events since those that the fold retains were counted.
    uncounted_values: usize,
}

impl<'a> ResponseReader<'a> {
    pub(crate) fn new(response: Response, failures: &'a Failures, idle: Duration) -> Self {
        let headers = response.headers().clone();
        Self {
            response,
            headers,
            failures,
            idle,
            bytes_left: MAX_RESPONSE_BYTES,
            uncounted_values: 0,
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(crate) fn is_stream(&self) -> bool {
        let content_type = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        content_type.is_some_and(|value| value.starts_with("text/event-stream"))
    }

    /// Reads a successful response.
    pub(crate) async fn read(
        &mut self,
        fold: Box<dyn StreamFold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Value, Failure> {
        if self.is_stream() {
            return self.read_stream(fold, on_progress).await;
        }
        let body = self.read_text().await?;
        if looks_like_events(&body) {
            self.fold_text(fold, &body)
        } else {
            self.parse(&body)
        }
    }

    /// Reads an error response. If reading fails, only its status counts.
    pub(crate) async fn read_error(mut self) -> Failure {
        let status = self.response.status().as_u16();
        let body = ErrorBody::parse(&self.read_text().await.unwrap_or_default());
        self.failures
            .classify_error_response(status, &self.headers, body)
    }

    async fn read_stream(
        &mut self,
        mut fold: Box<dyn StreamFold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Value, Failure> {
        let mut progress = ProgressBuffer::default();
        let mut reader = EventReader::default();
        loop {
            let idle = if fold.is_terminal() {
                self.idle.min(USAGE_GRACE_PERIOD)
            } else {
                self.idle
            };
            let chunk = match self.next_chunk(idle).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // The response is complete except for its usage.
                Err(_) if fold.is_terminal() => break,
                Err(failure) => return Err(failure),
            };
            for event in reader.push(&chunk) {
                self.handle_event(fold.as_mut(), &event, &mut progress)?;
                if fold.is_done() {
                    break;
                }
            }
            progress.report(on_progress);
            if fold.is_done() {
                return self.finish(fold);
            }
        }
        if let Some(event) = reader.finish() {
            self.handle_event(fold.as_mut(), &event, &mut progress)?;
        }
        self.finish(fold)
    }

    fn fold_text(&mut self, mut fold: Box<dyn StreamFold>, body: &str) -> Result<Value, Failure> {
        let mut reader = EventReader::default();
        let events = reader.push(body.as_bytes());
        for event in events.into_iter().chain(reader.finish()) {
            self.handle_event(fold.as_mut(), &event, &mut ProgressBuffer::default())?;
        }
        self.finish(fold)
    }

    fn handle_event(
        &mut self,
        fold: &mut dyn StreamFold,
        event: &str,
        progress: &mut ProgressBuffer,
    ) -> Result<(), Failure> {
        if event.trim() == "[DONE]" {
            fold.end();
        } else {
            fold.add(self.parse(event)?, progress);
            self.uncounted_values += ValueCounter::default().add(event.bytes());
            if self.uncounted_values > MAX_VALUES {
                self.uncounted_values = 0;
                if fold.value_count() > MAX_VALUES {
                    let detail = format!("the response has more than {MAX_VALUES} values");
                    return Err(self.failures.new_failure(LlmErrorKind::Malformed, &detail));
                }
            }
        }
        Ok(())
    }

    fn finish(&self, fold: Box<dyn StreamFold>) -> Result<Value, Failure> {
        let detail = "the stream ended before the response was complete";
        fold.finish()
            .ok_or_else(|| self.failures.new_failure(LlmErrorKind::StreamCut, detail))
    }

    /// Parses a body or an event. Both may hold an error despite the successful status.
    fn parse(&self, text: &str) -> Result<Value, Failure> {
        let value: Value = untrusted_json::from_str(text).map_err(|error| {
            if is_html(text) {
                return self
                    .failures
                    .wrong_address(200, &ErrorBody::parse(text).message);
            }
            let detail = match text.trim() {
                "" => "the response is empty".to_owned(),
                _ => format!("not JSON ({error}): {}", ErrorBody::parse(text).message),
            };
            self.failures.new_failure(LlmErrorKind::Malformed, &detail)
        })?;
        match ErrorBody::find(&value) {
            None => Ok(value),
            Some(error) => Err(self
                .failures
                .classify_error_response(200, &self.headers, error)),
        }
    }

    async fn read_text(&mut self) -> Result<String, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.next_chunk(self.idle).await? {
            body.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    async fn next_chunk(&mut self, idle: Duration) -> Result<Option<Bytes>, Failure> {
        let chunk = match timeout(idle, self.response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => return Err(self.failures.classify_stream_error(error)),
            Err(_) => {
                return Err(self
                    .failures
                    .new_failure(LlmErrorKind::Timeout, &format!("no data for {idle:?}")));
            }
        };
        let length = chunk.as_ref().map_or(0, Bytes::len);
        self.bytes_left = self.bytes_left.checked_sub(length).ok_or_else(|| {
            let detail = format!("the response is longer than {MAX_RESPONSE_BYTES} bytes");
            self.failures.new_failure(LlmErrorKind::Malformed, &detail)
        })?;
        Ok(chunk)
    }
}
