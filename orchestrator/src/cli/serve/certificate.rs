//! The certificate of `glovebox serve`, and its replacement while the server runs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tls::{CertificateError, CertificateFiles, ServerCertificate};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::cli::print;
use crate::exit::UsageError;

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The only protocol of the server: sockets and ports of sandboxes need upgrades.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

#[derive(Debug, clap::Args)]
pub(super) struct CertificateArguments {
    /// Certificate to serve HTTPS with, followed by its intermediate certificates, in PEM. Loaded
    /// again on SIGHUP, and within a minute of a change.
    #[arg(long = "tls-cert", value_name = "FILE", requires = "key")]
    chain: Option<PathBuf>,

    /// Private key of the certificate, in PEM.
    #[arg(long = "tls-key", value_name = "FILE", requires = "chain")]
    key: Option<PathBuf>,
}

/// The certificate of a server, which is replaced when its files change.
pub(super) struct Certificate {
    certificate: Arc<ServerCertificate>,
    reload_requests: Signal,
}

impl CertificateArguments {
    /// Loads the certificate. `None` if none is named.
    pub(super) fn load(self) -> anyhow::Result<Option<Certificate>> {
        let Some((chain, key)) = self.chain.zip(self.key) else {
            return Ok(None);
        };
        let files = CertificateFiles { chain, key };
        if files.is_key_exposed() {
            let text = "all users of this machine may read it; run chmod o-r";
            print::warning(&format!("{}: {text}", files.key.display()));
        }
        let certificate =
            ServerCertificate::load(files).map_err(|error| UsageError(describe(&error)))?;
        let reload_requests = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        Ok(Some(Certificate {
            certificate,
            reload_requests,
        }))
    }
}

impl Certificate {
    /// Creates the configuration of a server with this certificate.
    pub(super) fn server_config(&self) -> anyhow::Result<Arc<rustls::ServerConfig>> {
        let config = tls::server(Arc::clone(&self.certificate), &PROTOCOLS);
        Ok(Arc::new(config.context("cannot set up TLS")?))
    }

    /// Loads the files again on SIGHUP and when they have changed. Never returns.
    pub(super) async fn reload_when_changed(&mut self) -> Infallible {
        loop {
            let is_requested = tokio::select! {
                Some(()) = self.reload_requests.recv() => true,
                () = sleep(CHECK_INTERVAL) => false,
            };
            let certificate = Arc::clone(&self.certificate);
            let reload = move || {
                (is_requested || certificate.has_changed())
                    .then(|| certificate.reload().map_err(|error| describe(&error)))
            };
            match tokio::task::spawn_blocking(reload).await {
                Ok(Some(Ok(()))) => tracing::info!("loaded the certificate again"),
                Ok(Some(Err(error))) => tracing::error!(error, "keeping the earlier certificate"),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "cannot check the certificate"),
            }
        }
    }
}

/// Returns an error with its causes.
fn describe(error: &CertificateError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
