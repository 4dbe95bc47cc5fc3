//! Logs to standard error. The key and contents are never logged: of a request only method, path,
//! status and duration.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt, registry};

use crate::config::LogFormat;

/// Installs the logger. The filter is the one of the command line, or `RUST_LOG`, or `warn`.
pub(crate) fn start(filter: Option<Targets>, format: LogFormat) {
    // An invalid `RUST_LOG` is ignored: it may be meant for another program.
    let filter = filter
        .or_else(from_environment)
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // Drops a line that cannot be written. The default would report the failure to standard
        // error, which has failed.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    registry().with(lines.with_filter(filter)).init();
}

fn from_environment() -> Option<Targets> {
    std::env::var("RUST_LOG").ok()?.parse().ok()
}
