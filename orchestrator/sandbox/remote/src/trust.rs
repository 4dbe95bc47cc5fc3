//! The trusted certificate authorities: those of the machine, and the configured one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::sandbox::SandboxError;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use super::unavailable;

/// The protocol over a stream, negotiated by TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Returns the ALPN id.
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Trusted certificates. Loaded on first use, so that plain HTTP works on a machine without
/// certificates.
#[derive(Default)]
pub(super) struct TrustStore {
    additional_ca: Option<PathBuf>,
    roots: OnceCell<Arc<RootCertStore>>,
}

impl TrustStore {
    /// Trusts the authorities of the machine, and those in the PEM file if there is one.
    pub(super) fn new(additional_ca: Option<PathBuf>) -> Self {
        Self {
            additional_ca,
            roots: OnceCell::new(),
        }
    }

    /// Returns a connector that offers only this protocol.
    ///
    /// # Errors
    /// The file cannot be read, or contains no certificate.
    pub(super) async fn connector(&self, protocol: Protocol) -> Result<TlsConnector, SandboxError> {
        let roots = self.roots.get_or_try_init(|| self.load()).await?;
        let config = tls::client(Arc::clone(roots), &[protocol.alpn()])
            .map_err(|error| unavailable(format!("cannot set up TLS: {error}")))?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn load(&self) -> Result<Arc<RootCertStore>, SandboxError> {
        let additional_ca = self.additional_ca.clone();
        let loaded = spawn_blocking(move || {
            let mut roots = tls::roots();
            if let Some(file) = additional_ca {
                add_certificates(&mut roots, &file).map_err(|problem| {
                    unavailable(format!(
                        "the CA file {} {problem}: configure a file of PEM certificates",
                        file.display()
                    ))
                })?;
            }
            Ok(Arc::new(roots))
        });
        loaded
            .await
            .unwrap_or_else(|panic| Err(unavailable(format!("loading certificates: {panic}"))))
    }
}

/// Adds the certificates of a PEM file.
fn add_certificates(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| format!("cannot be read ({error})"))?;
    let mut added = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("is malformed ({error})"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("contains an invalid certificate ({error})"))?;
        added += 1;
    }
    if added == 0 {
        Err("contains no certificate".into())
    } else {
        Ok(())
    }
}
