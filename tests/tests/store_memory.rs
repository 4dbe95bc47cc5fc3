//! The contract of event stores on the one in memory.

use tests::store_contract::memory::MemoryBackend;

tests::store_contract!(Some(MemoryBackend::default()));
