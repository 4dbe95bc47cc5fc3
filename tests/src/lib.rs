//! Harness and suites for whole flows. The tests are the one binary `tests/main.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)] // a test says what it expects by panicking

pub mod account_contract;
pub mod glovebox;
pub mod host_server;
pub mod model_server;
pub mod moto_server;
pub mod own_engine;
pub mod postgres;
pub mod sandbox_contract;
pub mod server_sent_events;
pub mod service_contract;
#[path = "../skip.rs"]
mod skip;
pub mod sshd;
pub mod store_contract;
pub mod strict_server;
pub mod tcp_proxy;
pub mod terminal;
pub mod tool_server;
