//! Metrics of `glovebox serve`, in the text format of OpenMetrics.
//!
//! Measured by decorators around the engine's traits, which the composition root adds, so that no
//! adapter knows of metrics. Labels name no user and no conversation, and each has a bounded number
//! of values. `docs/operations.md` lists all metrics.

mod model;
mod model_names;
mod requests;
mod sandbox;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex};

use engine::events::EventStore;
use engine::sandbox::SandboxProvider;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use storage::postgres::PoolUsage;

pub(crate) use model::ModelMetrics;
use model_names::ModelNames;
use requests::RequestMetrics;
use sandbox::{MeteredProvider, SandboxMetrics};
use store::{MeteredStore, StoreMetrics};

/// Reads the use of the connections to a database. Returns `None` if there is none.
pub(crate) type ReadPool = Box<dyn Fn() -> Option<PoolUsage> + Send + Sync>;

/// The metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
    models: ModelMetrics,
    sandboxes: SandboxMetrics,
    store: StoreMetrics,
    requests: RequestMetrics,
    read_pool: ReadPool,
    /// Held while the gauges are set and written. A blocking mutex, because that does not await.
    rendering: Mutex<()>,
}

impl Metrics {
    /// Creates the metrics of a server whose configuration names these models.
    pub(crate) fn new(models: impl IntoIterator<Item = String>, read_pool: ReadPool) -> Arc<Self> {
        let mut registry = Registry::with_prefix("glovebox");
        let models = ModelMetrics::register(&mut registry, ModelNames::new(models));
        let sandboxes = SandboxMetrics::register(&mut registry);
        let store = StoreMetrics::register(&mut registry);
        let requests = RequestMetrics::register(&mut registry, read_pool().is_some());
        Arc::new(Self {
            registry,
            models,
            sandboxes,
            store,
            requests,
            read_pool,
            rendering: Mutex::new(()),
        })
    }

    /// The metrics of models, for [`CallMode`](crate::compose::CallMode).
    pub(crate) fn models(&self) -> &ModelMetrics {
        &self.models
    }

    /// Measures the starts of sandboxes.
    pub(crate) fn provider(&self, provider: Arc<dyn SandboxProvider>) -> Arc<dyn SandboxProvider> {
        Arc::new(MeteredProvider::new(provider, self.sandboxes.clone()))
    }

    /// Measures appends to event logs.
    pub(crate) fn store(&self, store: Arc<dyn EventStore>) -> Arc<dyn EventStore> {
        Arc::new(MeteredStore::new(store, self.store.clone()))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Buckets of operations that take milliseconds, in seconds.
fn short_times() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

/// Buckets of operations that take seconds to minutes.
fn long_times() -> Histogram {
    Histogram::new([
        0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ])
}

#[cfg(test)]
mod tests;
