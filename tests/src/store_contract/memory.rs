//! The engine's store in memory, under test because all other suites trust it.

use std::sync::Arc;

use async_trait::async_trait;
use engine::events::EventStore;
use engine::testing::MemoryStore;

use super::StoreBackend;

/// Stores that are the same object.
#[derive(Default)]
pub struct MemoryBackend(Arc<MemoryStore>);

#[async_trait]
impl StoreBackend for MemoryBackend {
    async fn open(&self) -> Arc<dyn EventStore> {
        Arc::clone(&self.0) as Arc<dyn EventStore>
    }
}
