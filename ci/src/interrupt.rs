//! The interrupt flag, set by SIGINT, SIGHUP and SIGTERM and checked by every wait.
//!
//! It is the only global state, because signals belong to the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Installs the handlers. From then on the signals no longer terminate the program by themselves.
pub(crate) fn install_handlers() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&REQUESTED))
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    Ok(())
}

pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Returns an error if an interrupt was requested. Called between two operations.
pub(crate) fn check() -> Result<()> {
    if is_requested() {
        bail!("interrupted");
    }
    Ok(())
}
