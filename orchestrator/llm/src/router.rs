//! Routes requests to one of two models: V0's `multimodal_router`.
//!
//! A request goes to the secondary, cheaper model unless it has images or exceeds that model's
//! context window. Each request is routed again, so that the secondary model is used again after a
//! condensation. The usage names the model that responded.

use std::sync::Arc;

use async_trait::async_trait;
use engine::llm::{
    ChatMessage, Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest, MessagePart,
};

/// A router between two models.
pub struct MultimodalRouter {
    /// The model with vision and the larger context window.
    pub primary: Arc<dyn Llm>,
    /// The cheaper model.
    pub secondary: Arc<dyn Llm>,
}

#[async_trait]
impl Llm for MultimodalRouter {
    fn model(&self) -> &str {
        self.primary.model()
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.primary
            .max_cost(request_tokens)
            .max(self.secondary.max_cost(request_tokens))
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        if !has_image(request) {
            match self.secondary.complete(request, on_progress).await {
                Err(error) if error.kind == LlmErrorKind::ContextWindowExceeded => {
                    tracing::debug!(%error, model = self.primary.model(), "falling back to the primary model");
                }
                result => return result,
            }
        }
        self.primary.complete(request, on_progress).await
    }
}

fn has_image(request: &LlmRequest) -> bool {
    request.messages.iter().any(|message| match message {
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => parts
            .iter()
            .any(|part| matches!(part, MessagePart::Image(_))),
        ChatMessage::System(_) | ChatMessage::Assistant(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ScriptedLlm;

    fn scripted(model: &str, responses: &serde_json::Value) -> Arc<dyn Llm> {
        let script = json!({ "model": model, "responses": responses }).to_string();
        Arc::new(ScriptedLlm::from_json(&script).unwrap())
    }

    async fn complete(
        router: &MultimodalRouter,
        message: ChatMessage,
    ) -> Result<String, LlmErrorKind> {
        let request = LlmRequest {
            messages: vec![ChatMessage::System("be good".into()), message],
            tools: vec![],
        };
        let completion = router.complete(&request, &|_| ()).await;
        completion
            .map(|completion| completion.usage.model)
            .map_err(|error| error.kind)
    }

    fn parts(parts: &[MessagePart]) -> ChatMessage {
        ChatMessage::User(parts.to_vec())
    }

    #[tokio::test]
    async fn primary_model_is_used_when_request_has_images_or_is_long() {
        let response = json!({ "text": "so" });
        let router = MultimodalRouter {
            primary: scripted("big", &json!([response, response, response])),
            secondary: scripted(
                "small",
                &json!([response, { "error": "context_window_exceeded" }, response, { "error": "rate_limited" }]),
            ),
        };
        let (text, image) = (
            MessagePart::Text("look".into()),
            MessagePart::Image("data:x".into()),
        );
        let result = ChatMessage::ToolResult {
            call_id: "c".into(),
            name: "view".into(),
            parts: vec![image.clone()],
        };
        for (message, expected) in [
            (parts(std::slice::from_ref(&text)), Ok("small")),
            (parts(&[text.clone(), image]), Ok("big")),
            (result, Ok("big")),
            (parts(std::slice::from_ref(&text)), Ok("big")),
            (parts(std::slice::from_ref(&text)), Ok("small")),
            (parts(&[text]), Err(LlmErrorKind::RateLimited)),
        ] {
            assert_eq!(
                complete(&router, message).await.as_deref(),
                expected.as_deref()
            );
        }
        assert_eq!(router.model(), "big");
    }
}
