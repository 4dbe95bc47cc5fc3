//! Wraps a model to redact its answer while it streams. The store redacts the whole answer.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::redactor::Redactor;
use super::stream::StreamRedactor;
use crate::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};

/// Wraps the model of a conversation.
pub struct GuardedLlm {
    llm: Arc<dyn Llm>,
    redactor: Redactor,
}

/// The streams of one attempt.
struct AnswerRedactor {
    text: StreamRedactor,
    reasoning: StreamRedactor,
}

impl GuardedLlm {
    /// Wraps this model.
    pub fn new(llm: Arc<dyn Llm>, redactor: Redactor) -> Self {
        Self { llm, redactor }
    }
}

#[async_trait]
impl Llm for GuardedLlm {
    fn model(&self) -> &str {
        self.llm.model()
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.llm.max_cost(request_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        // A blocking mutex, because it is never held across an await.
        let answer = Mutex::new(AnswerRedactor::new(&self.redactor));
        let lock = || answer.lock().unwrap_or_else(PoisonError::into_inner);
        let on_piece = |progress| {
            let progress = match progress {
                LlmProgress::Text(piece) => {
                    LlmProgress::Text(to_text(&lock().text.push(piece.as_bytes())))
                }
                LlmProgress::Reasoning(piece) => {
                    LlmProgress::Reasoning(to_text(&lock().reasoning.push(piece.as_bytes())))
                }
                LlmProgress::Retrying {
                    attempt,
                    attempts,
                    after,
                    error,
                } => {
                    *lock() = AnswerRedactor::new(&self.redactor);
                    LlmProgress::Retrying {
                        attempt,
                        attempts,
                        after,
                        error,
                    }
                }
            };
            report(progress, on_progress);
        };
        let completion = self.llm.complete(request, &on_piece).await?;
        let (text, reasoning) = lock().finish();
        report(LlmProgress::Reasoning(reasoning), on_progress);
        report(LlmProgress::Text(text), on_progress);
        Ok(completion)
    }
}

impl AnswerRedactor {
    fn new(redactor: &Redactor) -> Self {
        Self {
            text: StreamRedactor::new(redactor.clone()),
            reasoning: StreamRedactor::new(redactor.clone()),
        }
    }

    fn finish(&mut self) -> (String, String) {
        (
            to_text(&self.text.finish()),
            to_text(&self.reasoning.finish()),
        )
    }
}

/// Reports progress. A piece that is not decided yet is empty.
fn report(progress: LlmProgress, on_progress: &(dyn Fn(LlmProgress) + Send + Sync)) {
    if let LlmProgress::Text(text) | LlmProgress::Reasoning(text) = &progress
        && text.is_empty()
    {
        return;
    }
    on_progress(progress);
}

/// Secrets start and end between characters, so redacted text is UTF-8.
fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::metrics::TokenUsage;
    use secrecy::SecretString;

    use super::*;
    use crate::llm::{LlmErrorKind, ModelResponse};
    use crate::secrets::REDACTED;

    /// Streams its pieces, and repeats them after a failed attempt.
    struct StreamingLlm(&'static [&'static str]);

    #[async_trait]
    impl Llm for StreamingLlm {
        fn model(&self) -> &str {
            "model"
        }

        fn max_cost(&self, _: u64) -> f64 {
            0.0
        }

        async fn complete(
            &self,
            _: &LlmRequest,
            on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
        ) -> Result<Completion, LlmError> {
            on_progress(LlmProgress::Text("hunter".to_owned()));
            on_progress(LlmProgress::Retrying {
                attempt: 2,
                attempts: 2,
                after: Duration::ZERO,
                error: LlmError {
                    kind: LlmErrorKind::Connection,
                    detail: "cut".to_owned(),
                    retry_after: None,
                },
            });
            for piece in self.0 {
                on_progress(LlmProgress::Text((*piece).to_owned()));
                on_progress(LlmProgress::Reasoning((*piece).to_owned()));
            }
            Ok(Completion {
                response: ModelResponse::default(),
                usage: TokenUsage::default(),
                cost: None,
                latency: Duration::ZERO,
            })
        }
    }

    #[tokio::test]
    async fn secret_that_is_streamed_in_pieces_is_redacted() {
        let pieces = &["é the password is hun", "ter2-sec", "ret é", " hunter2-"];
        let secret = SecretString::from("hunter2-secret");
        let redactor = Redactor::new([("PASSWORD", &secret)]).unwrap();
        let llm = GuardedLlm::new(Arc::new(StreamingLlm(pieces)), redactor);
        let (text, reasoning) = (Mutex::new(String::new()), Mutex::new(String::new()));
        let on_progress = |progress| match progress {
            LlmProgress::Text(piece) => text.lock().unwrap().push_str(&piece),
            LlmProgress::Reasoning(piece) => reasoning.lock().unwrap().push_str(&piece),
            LlmProgress::Retrying { .. } => text.lock().unwrap().clear(),
        };
        llm.complete(&LlmRequest::default(), &on_progress)
            .await
            .unwrap();
        let expected = format!("é the password is {REDACTED} é hunter2-");
        assert_eq!(*text.lock().unwrap(), expected);
        assert_eq!(*reasoning.lock().unwrap(), expected);
    }
}
