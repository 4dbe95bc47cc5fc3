//! What the probes of this host have found, so that every provider of a program does not repeat
//! them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::bounds::Bounds;
use super::isolation::{Isolation, IsolationChoice};

/// The requested isolation, and whether the network is available: both change the probe.
type IsolationProbe = (IsolationChoice, bool);

/// Results of probes, shared by the providers of one program. A probe that failed is repeated.
#[derive(Debug, Default)]
pub struct LocalProbes {
    isolation: Mutex<HashMap<IsolationProbe, Arc<OnceCell<Isolation>>>>,
    pub(super) bounds: OnceCell<Bounds>,
}

impl LocalProbes {
    pub(super) fn isolation(
        &self,
        choice: IsolationChoice,
        network: bool,
    ) -> Arc<OnceCell<Isolation>> {
        let mut probed = self
            .isolation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(probed.entry((choice, network)).or_default())
    }
}
