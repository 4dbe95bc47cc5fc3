//! The server inside a sandbox: runs commands, reads and edits files, speaks HTTP to one host.
//!
//! One static file with four lives: `serve` (a supervisor and, below it, the server itself), `serve --detach` (starts
//! that and leaves it running), `v0` (the same for OpenHands V0's clients, in their words) and `dial` (joins its standard
//! streams to the server's socket).

mod accounts;
mod api;
mod auth;
mod children;
mod config;
mod detach;
mod dial;
mod environment;
mod error;
mod execute;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod held_text;
mod init;
mod ledger;
mod logging;
mod openapi;
mod out_of_memory;
mod plugins;
mod ports;
mod process;
mod routes;
mod server;
mod sessions;
mod shell;
mod stdio;
mod terminals;
mod this_program;
mod v0;

use std::process::ExitCode;

use config::{Command, Role};

/// The program: its command line, and one of its lives.
pub fn main() -> ExitCode {
    let command = match config::from_command_line() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let ended = match command {
        Command::Serve(Role::Launcher, config) => detach::run(&config),
        Command::LaunchV0(config) => v0::launch::run(&config),
        Command::Serve(Role::Supervisor, config) => init::run(&config),
        Command::Serve(Role::Server { supervisor }, config) => server::run(config, supervisor),
        Command::Dial { socket, server } => dial::run(&socket, server),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("action-server: {error:#}");
        ExitCode::FAILURE
    })
}
