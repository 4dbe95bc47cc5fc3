//! The log on standard error, and traces for a collector that speaks OpenTelemetry's protocol.
//!
//! Traces have the spans of the log: their names, times, and fields such as ids, paths and names of
//! models. They have no log lines, because only standard error redacts secrets. The variables of
//! the environment are those that OpenTelemetry specifies.

use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use reqwest::redirect::Policy;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::cli::{self, LogFormat};
use crate::exit::UsageError;
use crate::redacted_stderr::LogStderr;

/// The address of the collector. Without it, no traces are made.
const ENDPOINT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

const SERVICE_NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";

const SERVICE_NAME: &str = "glovebox";

/// Time to send spans to a collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time to send the last spans to a collector at the end of the program.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends traces until [`end`](Self::end).
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Sends the last spans, if the collector responds.
    pub(crate) fn end(self) {
        if let Some(provider) = self.0
            && let Err(error) = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT)
        {
            tracing::warn!(%error, "cannot send the last traces");
        }
    }
}

/// Starts the log and the traces. Must be called outside of the asynchronous runtime, because
/// traces are sent from a thread.
///
/// # Errors
/// The variables of the environment do not describe a collector.
pub(crate) fn init(level: Option<&str>, format: LogFormat) -> anyhow::Result<Traces> {
    let configured = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .and_then(|text| cli::log_filter(&text).ok());
    let filter = level
        .map(str::to_owned)
        .or(configured)
        .unwrap_or_else(cli::default_log_filter);
    // A failed write is not reported to stderr itself, which would panic.
    let log = tracing_subscriber::fmt::layer()
        .with_writer(|| LogStderr)
        .log_internal_errors(false);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    let provider = tracer_provider();
    let spans = provider
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .map(|provider| {
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE_NAME));
            layer
                .with_location(false)
                .with_threads(false)
                .with_filter(filter_fn(is_traced))
        });
    tracing_subscriber::registry()
        .with(log.with_filter(EnvFilter::new(filter)))
        .with(spans)
        .init();
    provider.map(Traces)
}

/// Whether this is a span of this program. Spans of libraries may have secrets in their fields.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && *metadata.level() <= LevelFilter::INFO
        && cli::is_own_target(metadata.target())
}

/// Creates the sender of traces. `None` if no collector is configured.
fn tracer_provider() -> anyhow::Result<Option<SdkTracerProvider>> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINT_VARIABLES.into_iter().any(is_set) {
        return Ok(None);
    }
    let tls = tls::http_client("https").context("cannot set up TLS for traces")?;
    let client = reqwest::blocking::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none()) // one could send the headers' keys to another host
        .timeout(EXPORT_TIMEOUT)
        .build()?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).build();
    let exporter = exporter
        .map_err(|error| UsageError(format!("the OTEL_ variables of the environment: {error}")))?;
    let resource = Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let resource = match is_set(SERVICE_NAME_VARIABLE) {
        true => resource,
        false => resource.with_service_name(SERVICE_NAME),
    };
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build());
    Ok(Some(provider.build()))
}
