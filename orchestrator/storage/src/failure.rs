//! The engine's error for a failed operation of a store.

use engine::events::StoreError;

/// Creates the error of an operation, with its cause.
pub(crate) fn failed(
    operation: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Storage { operation, source: source.into() }
}
