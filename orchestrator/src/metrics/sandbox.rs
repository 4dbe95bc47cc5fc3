//! Starts of sandboxes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use engine::sandbox::decorator::{ConnectResult, ProviderDecorator};
use engine::sandbox::{SandboxProvider, SandboxSpec, StartProgress};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::long_times;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    backend: &'static str,
    phase: &'static str,
}

/// Metrics of sandboxes. Clones share their values.
#[derive(Debug, Clone)]
pub(super) struct SandboxMetrics {
    starts: Family<BackendLabels, Histogram, fn() -> Histogram>,
    phases: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    failures: Family<PhaseLabels, Counter>,
}

impl SandboxMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            starts: Family::new_with_constructor(long_times),
            phases: Family::new_with_constructor(long_times),
            failures: Family::default(),
        };
        registry.register_with_unit(
            "sandbox_start_duration",
            "Time until the action server of a new sandbox responds",
            Unit::Seconds,
            metrics.starts.clone(),
        );
        registry.register_with_unit(
            "sandbox_start_phase_duration",
            "Time of each phase of a start: pulling, starting, connecting",
            Unit::Seconds,
            metrics.phases.clone(),
        );
        registry.register(
            "sandbox_start_failures",
            "Starts that failed, by the phase in which they did",
            metrics.failures.clone(),
        );
        metrics
    }
}

/// The phase of a start, and since when.
struct StartPhases<'a> {
    metrics: &'a SandboxMetrics,
    backend: &'static str,
    /// A blocking mutex, because the progress is reported by a function.
    current: Mutex<(&'static str, Instant)>,
}

impl StartPhases<'_> {
    fn enter(&self, progress: &StartProgress) {
        let phase = match progress {
            StartProgress::Pulling { .. } => "pulling",
            StartProgress::Starting => "starting",
            StartProgress::Connecting => "connecting",
            // A part of the phase whose attempt has failed.
            StartProgress::Retrying { .. } => return,
        };
        if self.phase() != phase {
            self.end(phase);
        }
    }

    fn phase(&self) -> &'static str {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Records the current phase, and starts the next one.
    fn end(&self, next: &'static str) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (phase, started) = std::mem::replace(&mut *current, (next, Instant::now()));
        let labels = PhaseLabels {
            backend: self.backend,
            phase,
        };
        self.metrics
            .phases
            .get_or_create(&labels)
            .observe(started.elapsed().as_secs_f64());
    }
}

/// A provider whose starts are measured.
pub(super) struct MeteredProvider {
    inner: Arc<dyn SandboxProvider>,
    metrics: SandboxMetrics,
}

impl MeteredProvider {
    pub(super) fn new(inner: Arc<dyn SandboxProvider>, metrics: SandboxMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl ProviderDecorator for MeteredProvider {
    fn inner(&self) -> &dyn SandboxProvider {
        &*self.inner
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> ConnectResult {
        let (started, backend) = (Instant::now(), self.inner.runtime());
        let current = Mutex::new(("starting", started));
        let phases = StartPhases {
            metrics: &self.metrics,
            backend,
            current,
        };
        let measured = |progress: StartProgress| {
            phases.enter(&progress);
            on_progress(progress);
        };
        let created = self.inner.create(spec, &measured).await;
        let phase = phases.phase();
        match &created {
            Ok(_) => {
                phases.end(phase);
                let start = self
                    .metrics
                    .starts
                    .get_or_create(&BackendLabels { backend });
                start.observe(started.elapsed().as_secs_f64());
            }
            Err(_) => {
                self.metrics
                    .failures
                    .get_or_create(&PhaseLabels { backend, phase })
                    .inc();
            }
        }
        created
    }
}
