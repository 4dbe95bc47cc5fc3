//! Logs to standard error. Nothing that could hold the key is ever logged: requests are, their headers are not.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

/// Installs the log. `filter` is what the command line asks for; else `RUST_LOG`; else warnings.
pub(crate) fn start(filter: Option<Targets>) {
    // The environment's may be meant for other programs, and in a form that only they know.
    let filter =
        filter.or_else(from_environment).unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // What to do when a line cannot be written is decided here: nothing. The default writes to stderr again.
        .log_internal_errors(false);
    registry().with(lines.with_filter(filter)).init();
}

fn from_environment() -> Option<Targets> {
    std::env::var("RUST_LOG").ok()?.parse().ok()
}
