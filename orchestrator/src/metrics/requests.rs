//! Requests of the server, and gauges that are set when the metrics are read.

use std::sync::PoisonError;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use server::{ServedRequest, ServerMetrics, ServerUsage};
use storage::postgres::PoolUsage;

use super::{Metrics, short_times};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// Metrics of the server itself.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    duration: Family<RequestLabels, Histogram, fn() -> Histogram>,
    conversations: Family<StateLabels, Gauge>,
    streams: Gauge,
    connections: Family<StateLabels, Gauge>,
    waiting: Gauge,
}

impl RequestMetrics {
    /// Registers the metrics: those of connections only if there is a pool.
    pub(super) fn register(registry: &mut Registry, has_pool: bool) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(short_times),
            conversations: Family::default(),
            streams: Gauge::default(),
            connections: Family::default(),
            waiting: Gauge::default(),
        };
        registry.register_with_unit(
            "http_request_duration",
            "Time until the response to a request starts, by route and class of the status",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "conversations_running",
            "Conversations that run in this process, by the state of their agent",
            metrics.conversations.clone(),
        );
        registry.register(
            "streams_open",
            "Open streams and sockets of events",
            metrics.streams.clone(),
        );
        if has_pool {
            registry.register(
                "database_connections",
                "Connections to PostgreSQL, by state",
                metrics.connections.clone(),
            );
            registry.register(
                "database_waiting",
                "Operations that wait for a connection to PostgreSQL",
                metrics.waiting.clone(),
            );
        }
        metrics
    }

    fn set(&self, usage: &ServerUsage, pool: Option<PoolUsage>) {
        // A state without a conversation keeps no old value.
        self.conversations.clear();
        for (state, count) in &usage.agent_states {
            self.conversations
                .get_or_create(&StateLabels { state })
                .set(to_gauge(*count));
        }
        self.streams.set(to_gauge(usage.open_streams));
        if let Some(PoolUsage {
            used,
            idle,
            waiting,
        }) = pool
        {
            for (state, count) in [("used", used), ("idle", idle)] {
                self.connections
                    .get_or_create(&StateLabels { state })
                    .set(to_gauge(count));
            }
            self.waiting.set(to_gauge(waiting));
        }
    }
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl ServerMetrics for Metrics {
    fn record_request(&self, request: &ServedRequest<'_>) {
        let labels = RequestLabels {
            method: method_label(request.method),
            route: request.route.to_owned(),
            status: status_class(request.status),
        };
        self.requests
            .duration
            .get_or_create(&labels)
            .observe(request.duration.as_secs_f64());
    }

    fn render(&self, usage: &ServerUsage) -> Option<String> {
        let _rendering = self
            .rendering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.requests.set(usage, (self.read_pool)());
        let mut text = String::new();
        text::encode(&mut text, &self.registry).ok()?;
        Some(text)
    }
}

/// Clients may send any word as a method.
fn method_label(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN
        .into_iter()
        .find(|known| *known == method)
        .unwrap_or("other")
}

fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
