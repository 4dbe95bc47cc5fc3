//! The server inside a sandbox: runs commands, reads and edits files, and serves one host over
//! HTTP.
//!
//! One static binary with four commands: `serve` (a supervisor and the server as its child), `serve
//! --detach` (starts both and returns), `v0` (the same with the API of OpenHands V0) and `dial`
//! (connects standard input and output to the server's socket).

#[cfg(test)]
extern crate self as action_server; // the name that the fuzz targets use

mod activity;
mod api;
mod auth;
mod clients;
mod config;
mod detach;
mod dial;
mod embedded_text;
mod environment;
mod execute;
mod files;
#[cfg(test)]
#[path = "../fuzz/src/lib.rs"]
pub mod fuzz;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod init;
mod ledger;
mod logging;
mod openapi;
mod os;
mod plugins;
mod ports;
mod process;
mod routes;
mod server;
mod sessions;
mod shell;
#[cfg(test)]
#[path = "../../tests/skip.rs"]
mod skip;
mod stdio;
mod terminals;
mod this_program;
mod timeouts;
mod v0;

use std::process::ExitCode;

use config::{ProcessRole, ProgramCommand};

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let command = match config::from_command_line() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let result = match command {
        ProgramCommand::Serve(ProcessRole::Launcher, config) => detach::run(&config),
        ProgramCommand::LaunchV0(config) => v0::launch::run(&config),
        ProgramCommand::Serve(ProcessRole::Supervisor, config) => init::run(&config),
        ProgramCommand::Serve(ProcessRole::Server { supervisor }, config) => {
            server::run(config, supervisor)
        }
        ProgramCommand::Dial { socket, server } => dial::run(&socket, server),
    };
    result.unwrap_or_else(|error| {
        eprintln!("action-server: {error:#}");
        ExitCode::FAILURE
    })
}
