//! Harness and suites for whole flows. The tests are the one binary `tests/main.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test says what it expects by panicking

pub mod sandbox_contract;
