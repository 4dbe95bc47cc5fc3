//! Logs to standard error. Nothing that could hold the key is ever logged: requests are, their headers are not.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

/// Installs the log. `level` is what the command line asks for; else `RUST_LOG`; else warnings.
pub(crate) fn start(level: Option<&str>) -> anyhow::Result<()> {
    let asked = level.map(str::to_owned).or_else(|| std::env::var(EnvFilter::DEFAULT_ENV).ok());
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or("warn")).context("reading the log level")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // What to do when a line cannot be written is decided here: nothing. The default writes to stderr again.
        .log_internal_errors(false)
        .init();
    Ok(())
}
