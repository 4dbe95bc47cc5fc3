//! One action to its one ending, over as many connections as it takes.
//!
//! It is sent once. After a break it is asked for by its id, from the first byte that was not heard; only a server of
//! the same life that has never heard of it is sent it again. Ends with the observation, or with the sandbox lost.

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

use super::answer;
use super::heard::Heard;
use super::link::Link;
use super::request;

/// How often in a row an answer may break without one new byte.
const MAX_FRUITLESS: u32 = 8;
/// The pause after a break; twice as long after each that follows without a new byte.
const PAUSE: Duration = Duration::from_millis(5);
/// How long after its time an action's ending may come. A server that never ends it has failed us.
const GRACE: Duration = Duration::from_secs(60);

/// Performs an action that may be known to the server already.
pub(super) async fn perform(
    link: &Link,
    key: &HeaderValue,
    id: &ActionId,
    action: &ActionRequest,
    on_output: &OnOutput<'_>,
) -> Result<Observation, SandboxError> {
    let body = serde_json::to_vec(action)
        .map_err(|error| SandboxError::Malformed { detail: format!("encoding action {id}: {error}") })?;
    let heard = Heard::nothing(on_output);
    let performance = Performance { link, key, id, action: &action.action, body: body.into(), heard };
    let limit = action.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match limit.and_then(|limit| limit.checked_add(GRACE)) {
        None => performance.run().await,
        Some(limit) => tokio::select! {
            ended = performance.run() => ended,
            () = overdue(link, limit) => {
                let detail = format!("action {id} has no ending {} s after its time", GRACE.as_secs());
                Err(SandboxError::Lost { detail })
            }
        },
    }
}

/// Ends when the limit has passed and, where the server was frozen on purpose, as much time for an ending after that.
async fn overdue(link: &Link, limit: Duration) {
    sleep(limit).await;
    while let Some(time_left) = link.last_frozen().and_then(|frozen| GRACE.checked_sub(frozen.elapsed())) {
        if time_left.is_zero() {
            return;
        }
        sleep(time_left).await;
    }
}

struct Performance<'a> {
    link: &'a Link,
    key: &'a HeaderValue,
    id: &'a ActionId,
    action: &'a SandboxAction,
    body: Bytes,
    heard: Heard<'a>,
}

/// What is asked of the server.
#[derive(Clone, Copy)]
enum Ask {
    Perform,
    Attach,
}

/// What came of asking.
enum Answer {
    Ended(Observation),
    /// It may run, or not have arrived.
    Broken(String),
    NeverArrived,
}

impl Performance<'_> {
    async fn run(mut self) -> Result<Observation, SandboxError> {
        let mut ask = Ask::Perform;
        let mut fruitless = 0;
        loop {
            let heard_before = self.heard.next();
            let reason = match self.ask(ask).await? {
                Answer::Ended(observation) => return Ok(observation),
                Answer::Broken(reason) => {
                    ask = Ask::Attach;
                    reason
                }
                Answer::NeverArrived => {
                    ask = Ask::Perform;
                    "the server never received it".into()
                }
            };
            fruitless = if self.heard.next() > heard_before { 0 } else { fruitless + 1 };
            if fruitless == MAX_FRUITLESS {
                let detail = format!("action {} broke {MAX_FRUITLESS} times in a row: {reason}", self.id);
                return Err(SandboxError::Lost { detail });
            }
            tracing::debug!(action = %self.id, heard = self.heard.next(), reason, "asking again for an action");
            sleep(PAUSE * 2_u32.pow(fruitless)).await;
        }
    }

    async fn ask(&mut self, ask: Ask) -> Result<Answer, SandboxError> {
        let mut requests = self.link.requests().await?;
        let request = match ask {
            Ask::Perform => request::send_action(self.key, self.id, self.heard.next(), self.body.clone()),
            Ask::Attach => request::attach(self.key, self.id, self.heard.next()),
        };
        let response = match request::send(&mut requests, request).await {
            Ok(response) => response,
            Err(broken) => return Ok(Answer::Broken(broken.to_string())),
        };
        if response.status().is_success() {
            return self.listen(response.into_body()).await;
        }
        let refusal = request::refusal(response).await;
        match (ask, refusal.code) {
            (Ask::Attach, ErrorCode::NotFound) => Ok(Answer::NeverArrived),
            _ => Err(refusal.into()),
        }
    }

    async fn listen(&mut self, mut body: Incoming) -> Result<Answer, SandboxError> {
        let malformed = |detail: String| SandboxError::Malformed {
            detail: format!("answer to action {}: {detail}", self.id),
        };
        let mut decoder = ActionFrameDecoder::default();
        while let Some(piece) = body.frame().await {
            let bytes = match piece {
                Ok(piece) => piece.into_data().unwrap_or_default(), // trailers say nothing
                Err(error) => return Ok(Answer::Broken(error.to_string())),
            };
            decoder.push(&bytes);
            while let Some(frame) = decoder.next_frame().map_err(|error| malformed(error.to_string()))? {
                let ended = self.heard.hear(frame).map_err(|error| malformed(error.to_string()))?;
                if let Some(observation) = ended {
                    return answer::check(self.action, observation).map(Answer::Ended);
                }
            }
            // Of a flood there is always more: whoever waits beside this, for ^C or for the time, would never come to it.
            yield_now().await;
        }
        Ok(Answer::Broken("the answer ended before its observation".into()))
    }
}
