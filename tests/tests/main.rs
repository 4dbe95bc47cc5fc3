//! All suites in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test says what it expects by panicking

mod accounts_postgres;
mod accounts_sqlite;
mod agent_behaviour;
mod agents;
mod browser;
mod command_line;
mod conversation;
mod conversations_command;
mod crash_recovery;
mod custom_backend;
mod delegation;
mod docker_start_errors;
mod draft_edits;
mod engine_restart;
mod host_killed;
mod hostile_sandbox;
mod image_check;
mod interrupts;
mod mcp_servers;
mod models;
mod moto;
mod out_of_memory;
#[path = "../pypi.rs"]
mod pypi;
mod remote_commands;
mod replay_and_fork;
mod run_output;
mod sandbox_commands;
mod sandbox_docker;
mod sandbox_local;
mod sandbox_local_bounds;
mod sandbox_local_isolated;
mod sandbox_remote;
mod sandbox_ssh;
mod sandbox_sweep;
mod secrets;
mod server;
mod server_api_examples;
mod service;
#[path = "../skip.rs"]
mod skip;
mod skipped_tests;
mod store_blobs;
mod store_command;
mod store_memory;
mod store_postgres;
mod store_sqlite;
mod terminal_prompts;
#[path = "../test_packages.rs"]
mod test_packages;
mod untrusted_config;
mod v0_template;
mod workspace_setup;
