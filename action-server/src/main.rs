//! The server inside a sandbox: runs commands, reads and edits files, speaks HTTP to one host.
//!
//! One static file with three lives: `serve` (a supervisor and, below it, the server itself), `serve --detach` (starts
//! that and leaves it running) and `dial` (joins its standard streams to the server's socket).

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
mod init;
mod ledger;
mod logging;
mod process;
mod routes;
mod server;
mod shell;
mod stdio;

use std::process::ExitCode;

use config::{Command, Role};

fn main() -> ExitCode {
    let ended = match config::from_command_line() {
        Command::Serve(Role::Launcher, config) => detach::run(&config),
        Command::Serve(Role::Supervisor, config) => init::run(&config),
        Command::Serve(Role::Server { supervisor }, config) => server::run(config, supervisor),
        Command::Dial { socket } => dial::run(&socket),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("action-server: {error:#}");
        ExitCode::FAILURE
    })
}
