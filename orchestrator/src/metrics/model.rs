//! Calls of language models.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::long_times;
use super::model_names::ModelNames;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    model: String,
    error: &'static str,
}

/// Metrics of models. Clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct ModelMetrics {
    names: ModelNames,
    duration: Family<ModelLabels, Histogram, fn() -> Histogram>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<ModelLabels, Counter<f64, AtomicU64>>,
    errors: Family<ErrorLabels, Counter>,
    retries: Family<ErrorLabels, Counter>,
    in_flight: Gauge,
}

impl ModelMetrics {
    pub(super) fn register(registry: &mut Registry, names: ModelNames) -> Self {
        let metrics = Self {
            names,
            duration: Family::new_with_constructor(long_times),
            tokens: Family::default(),
            cost: Family::default(),
            errors: Family::default(),
            retries: Family::default(),
            in_flight: Gauge::default(),
        };
        registry.register_with_unit(
            "model_call_duration",
            "Time of a successful call, without retries",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "model_tokens",
            "Tokens of successful calls, by kind",
            metrics.tokens.clone(),
        );
        registry.register(
            "model_cost_dollars",
            "Cost of calls whose price is known, in US dollars",
            metrics.cost.clone(),
        );
        registry.register(
            "model_call_errors",
            "Calls that failed after their retries, by error",
            metrics.errors.clone(),
        );
        registry.register(
            "model_call_retries",
            "Attempts that failed and were repeated, by error",
            metrics.retries.clone(),
        );
        registry.register(
            "model_calls_in_flight",
            "Calls that wait for a response",
            metrics.in_flight.clone(),
        );
        metrics
    }

    /// Measures the calls of a model.
    pub(crate) fn measure(&self, inner: Arc<dyn Llm>) -> Arc<dyn Llm> {
        Arc::new(MeteredLlm {
            inner,
            metrics: self.clone(),
        })
    }

    pub(super) fn record_completion(&self, completion: &Completion, model: &str) {
        let usage = &completion.usage;
        // A router calls one of several models.
        let model = self.names.label(if usage.model.is_empty() {
            model
        } else {
            &usage.model
        });
        let labels = ModelLabels {
            model: model.clone(),
        };
        self.duration
            .get_or_create(&labels)
            .observe(completion.latency.as_secs_f64());
        for (kind, count) in [
            ("prompt", usage.prompt_tokens),
            ("completion", usage.completion_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ] {
            self.tokens
                .get_or_create(&TokenLabels {
                    model: model.clone(),
                    kind,
                })
                .inc_by(count);
        }
        if let Some(cost) = completion
            .cost
            .filter(|cost| cost.is_finite() && *cost >= 0.0)
        {
            self.cost.get_or_create(&labels).inc_by(cost);
        }
    }

    fn error_labels(&self, model: &str, error: LlmErrorKind) -> ErrorLabels {
        ErrorLabels {
            model: self.names.label(model),
            error: code(error),
        }
    }
}

/// The label of an error.
fn code(error: LlmErrorKind) -> &'static str {
    match error {
        LlmErrorKind::Authentication => "authentication",
        LlmErrorKind::MissingKey => "missing_key",
        LlmErrorKind::Permission => "permission",
        LlmErrorKind::UnknownModel => "unknown_model",
        LlmErrorKind::WrongAddress => "wrong_address",
        LlmErrorKind::RateLimited => "rate_limited",
        LlmErrorKind::ContextWindowExceeded => "context_window_exceeded",
        LlmErrorKind::ContentPolicy => "content_policy",
        LlmErrorKind::OutOfCredit => "out_of_credit",
        LlmErrorKind::Unavailable => "unavailable",
        LlmErrorKind::BadRequest => "bad_request",
        LlmErrorKind::Malformed => "malformed",
        LlmErrorKind::StreamCut => "stream_cut",
        LlmErrorKind::Timeout => "timeout",
        LlmErrorKind::Connection => "connection",
        LlmErrorKind::AddressRefused => "address_refused",
        LlmErrorKind::ScriptEnded => "script_ended",
        LlmErrorKind::NotRecorded => "not_recorded",
    }
}

/// A model whose calls are measured.
struct MeteredLlm {
    inner: Arc<dyn Llm>,
    metrics: ModelMetrics,
}

/// Counts a call as in flight until it is dropped, also when it is cancelled.
struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[async_trait]
impl Llm for MeteredLlm {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.inner.max_cost(request_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let metrics = &self.metrics;
        metrics.in_flight.inc();
        let _in_flight = InFlight(&metrics.in_flight);
        let counted = |progress: LlmProgress| {
            if let LlmProgress::Retrying { error, .. } = &progress {
                metrics
                    .retries
                    .get_or_create(&metrics.error_labels(self.model(), error.kind))
                    .inc();
            }
            on_progress(progress);
        };
        let result = self.inner.complete(request, &counted).await;
        match &result {
            Ok(completion) => metrics.record_completion(completion, self.model()),
            Err(error) => {
                metrics
                    .errors
                    .get_or_create(&metrics.error_labels(self.model(), error.kind))
                    .inc();
            }
        }
        result
    }
}
