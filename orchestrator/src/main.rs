//! `glovebox`: lets a language-model agent work on a machine without touching it.

mod cli;
mod compose;
mod config;
mod exit;
mod input_file;
mod metrics;
mod redacted_stderr;
mod resolved_path;
mod terminal_input;
mod terminal_text;
mod trust;
mod v0_folder;
mod workspace;
mod writable;

use std::process::ExitCode;

use clap::Parser as _;

use exit::Exit;

fn main() -> ExitCode {
    // Must come first: a local sandbox starts this program again, which isolates itself and executes another one.
    if let Some(code) = sandbox::confine_if_requested() {
        return code;
    }
    cli::complete_if_requested();
    let arguments = cli::Arguments::parse();
    init_logging(arguments.log_level.as_deref(), arguments.log_format);
    match run(arguments) {
        Ok(exit) => exit.into(),
        Err(error) => {
            cli::print::error(&format!("{error:#}"));
            exit::of_error(&error).into()
        }
    }
}

fn run(arguments: cli::Arguments) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(cli::run(arguments));
    // A pending read of the terminal must not delay the exit.
    runtime.shutdown_background();
    exit
}

fn init_logging(level: Option<&str>, format: cli::LogFormat) {
    use tracing_subscriber::EnvFilter;
    let configured = std::env::var(EnvFilter::DEFAULT_ENV).ok().and_then(|text| cli::log_filter(&text).ok());
    let filter = level.map(str::to_owned).or(configured).unwrap_or_else(cli::default_log_filter);
    let filter = EnvFilter::new(filter);
    let log =
        // A failed write is not reported to stderr itself, which would panic.
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| redacted_stderr::RedactedStderr)
            .log_internal_errors(false);
    match format {
        cli::LogFormat::Text => log.init(),
        cli::LogFormat::Json => log.json().init(),
    }
}
