//! Whose certificates are believed: the machine's roots, and a certificate authority of the user's own.

use std::path::PathBuf;
use std::sync::Arc;

use engine::sandbox::SandboxError;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use super::RUNTIME;

/// What is spoken over a stream, agreed on while TLS begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Its name in TLS.
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Certificates are read when TLS is first spoken: plain HTTP works on a machine that has none.
#[derive(Default)]
pub(super) struct Trust {
    additional_ca: Option<PathBuf>,
    roots: OnceCell<Arc<RootCertStore>>,
}

impl Trust {
    /// The machine's roots, and what the file holds: certificates in PEM.
    pub(super) fn new(additional_ca: Option<PathBuf>) -> Self {
        Self { additional_ca, roots: OnceCell::new() }
    }

    /// What begins TLS with a server. It is sent nothing else than `protocol`.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub(super) async fn connector(&self, protocol: Protocol) -> Result<TlsConnector, SandboxError> {
        let roots = self.roots.get_or_try_init(|| self.load()).await?;
        let config = tls::client(Arc::clone(roots), &[protocol.alpn()])
            .map_err(|error| unusable(format!("TLS cannot be set up: {error}")))?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn load(&self) -> Result<Arc<RootCertStore>, SandboxError> {
        let additional_ca = self.additional_ca.clone();
        let loaded = spawn_blocking(move || {
            let mut roots = tls::roots();
            if let Some(file) = additional_ca {
                add(&mut roots, &file).map_err(|problem| {
                    unusable(format!(
                        "the CA file {} {problem}: give a file of PEM certificates",
                        file.display()
                    ))
                })?;
            }
            Ok(Arc::new(roots))
        });
        loaded.await.unwrap_or_else(|panic| Err(unusable(format!("loading certificates: {panic}"))))
    }
}

fn add(roots: &mut RootCertStore, file: &std::path::Path) -> Result<(), String> {
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| format!("cannot be read ({error})"))?;
    let mut added = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("is malformed ({error})"))?;
        roots.add(certificate).map_err(|error| format!("holds what is no certificate ({error})"))?;
        added += 1;
    }
    if added == 0 { Err("holds no certificate".into()) } else { Ok(()) }
}

fn unusable(detail: String) -> SandboxError {
    SandboxError::RuntimeUnavailable { runtime: RUNTIME, detail }
}
