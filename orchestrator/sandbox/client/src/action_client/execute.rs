//! Executes one action to its one terminal event, over as many connections as needed.
//!
//! The action is sent once. After a broken connection, the client attaches by its id and resumes at
//! the first byte that was not received. It is sent again only if a server with the same boot id
//! does not know the id. Ends with the observation, or with a lost sandbox.

use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{OnOutput, SandboxError};
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use protocol::sandbox_api::{ActionFrameDecoder, ActionRequest, ErrorCode, SandboxAction};
use protocol::{ActionId, Observation};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::link::Link;
use super::output_cursor::OutputCursor;
use super::resume_backoff::ResumeBackoff;
use super::{observation, request};

/// How long after its timeout an action may complete. A server that does not complete it is broken.
const COMPLETION_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Executes an action that the server may already know.
pub(super) async fn execute(
    link: &Link,
    key: &HeaderValue,
    id: &ActionId,
    action: &ActionRequest,
    on_output: &OnOutput<'_>,
) -> Result<Observation, SandboxError> {
    let body = serde_json::to_vec(action).map_err(|error| SandboxError::Malformed {
        detail: format!("encoding action {id}: {error}"),
    })?;
    let output = OutputCursor::new(on_output);
    let execution = Execution {
        link,
        key,
        id,
        action: &action.action,
        body: body.into(),
        output,
    };
    let limit = action
        .timeout
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match limit.and_then(|limit| limit.checked_add(COMPLETION_GRACE_PERIOD)) {
        None => execution.run().await,
        Some(limit) => tokio::select! {
            completed = execution.run() => completed,
            () = overdue(link, limit) => {
                // A server that does not respond either may complete it later.
                request::send_with_retries(link, || request::info(key)).await?.map_err(SandboxError::from)?;
                let seconds = COMPLETION_GRACE_PERIOD.as_secs();
                let detail = format!("action {id} did not complete within {seconds} s after its timeout");
                Err(SandboxError::Lost { detail })
            }
        },
    }
}

/// Returns after the limit. If the server was paused, it gets another grace period after that.
async fn overdue(link: &Link, limit: Duration) {
    sleep(limit).await;
    while let Some(time_left) = link
        .last_paused_at()
        .and_then(|paused_at| COMPLETION_GRACE_PERIOD.checked_sub(paused_at.elapsed()))
    {
        if time_left.is_zero() {
            return;
        }
        sleep(time_left).await;
    }
}

struct Execution<'a> {
    link: &'a Link,
    key: &'a HeaderValue,
    id: &'a ActionId,
    action: &'a SandboxAction,
    body: Bytes,
    output: OutputCursor<'a>,
}

#[derive(Clone, Copy)]
enum Attempt {
    Send,
    Attach,
}

enum AttemptResult {
    Completed(Observation),
    /// The action may be running, or may not have arrived.
    Broken(String),
    NeverArrived,
}

impl Execution<'_> {
    async fn run(mut self) -> Result<Observation, SandboxError> {
        let mut attempt = Attempt::Send;
        let mut backoff = ResumeBackoff::new(format!("action {}", self.id));
        loop {
            let offset_before = self.output.next_offset();
            let reason = match self.attempt(attempt).await? {
                AttemptResult::Completed(observation) => return Ok(observation),
                AttemptResult::Broken(reason) => {
                    attempt = Attempt::Attach;
                    reason
                }
                AttemptResult::NeverArrived => {
                    attempt = Attempt::Send;
                    "the server never received it".into()
                }
            };
            let offset = self.output.next_offset();
            tracing::debug!(action = %self.id, offset, reason, "resuming an action");
            backoff.wait(offset > offset_before, &reason).await?;
        }
    }

    async fn attempt(&mut self, attempt: Attempt) -> Result<AttemptResult, SandboxError> {
        let mut sender = self.link.sender().await?;
        let offset = self.output.next_offset();
        let request = match attempt {
            Attempt::Send => request::execute(self.key, self.id, offset, self.body.clone()),
            Attempt::Attach => request::attach(self.key, self.id, offset),
        };
        let response = match request::send(&mut sender, request).await {
            Ok(response) => response,
            Err(error) => return Ok(AttemptResult::Broken(error.to_string())),
        };
        if response.status().is_success() {
            return self.receive(response.into_body()).await;
        }
        let error = request::read_error(response).await;
        match (attempt, error.code) {
            (Attempt::Attach, ErrorCode::NotFound) => Ok(AttemptResult::NeverArrived),
            _ => Err(error.into()),
        }
    }

    async fn receive(&mut self, mut body: Incoming) -> Result<AttemptResult, SandboxError> {
        let malformed = |detail: String| SandboxError::Malformed {
            detail: format!("response to action {}: {detail}", self.id),
        };
        let mut decoder = ActionFrameDecoder::default();
        while let Some(chunk) = body.frame().await {
            let bytes = match chunk {
                Ok(chunk) => chunk.into_data().unwrap_or_default(), // trailers are ignored
                Err(error) => return Ok(AttemptResult::Broken(error.to_string())),
            };
            decoder.push(&bytes);
            while let Some(frame) = decoder
                .next_frame()
                .map_err(|error| malformed(error.to_string()))?
            {
                let completed = self
                    .output
                    .on_frame(frame)
                    .map_err(|error| malformed(error.to_string()))?;
                if let Some(observation) = completed {
                    return observation::validate(self.action, observation)
                        .map(AttemptResult::Completed);
                }
            }
            // With a flood of output, this task would never yield to others, such as one that
            // cancels the action.
            yield_now().await;
        }
        Ok(AttemptResult::Broken(
            "the response ended before its observation".into(),
        ))
    }
}
