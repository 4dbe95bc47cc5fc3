//! ^C, a terminal that closes, a polite kill: remembered here, looked at wherever something is waited for.
//!
//! The one piece of global state, because a signal is the process's and not anybody's in particular.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From here on those signals no longer end the program by themselves.
pub(crate) fn watch() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&REQUESTED))
            .with_context(|| format!("watching for signal {signal}"))?;
    }
    Ok(())
}

pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// For the places between two things worth doing.
pub(crate) fn check() -> Result<()> {
    if requested() {
        bail!("interrupted");
    }
    Ok(())
}
