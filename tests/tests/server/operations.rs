//! What an operator needs: HTTPS, probes, metrics, the log, traces, a base path, and files to
//! deploy the server.

mod base_path;
mod connections;
mod deploy;
mod first_start;
mod log;
mod metrics;
mod options;
mod probes;
mod startup_checks;
mod tls;
mod traces;
