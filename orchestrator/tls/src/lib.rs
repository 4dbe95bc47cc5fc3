//! TLS configuration of all clients and of the server: rustls on ring, with the machine's root
//! certificates; and threads for connections to servers that users choose.
//!
//! HTTP clients' default configuration fails on a machine without certificates, even for plain
//! HTTP. No process-wide crypto provider is installed.

mod foreign;
mod server_certificate;

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, Error, InvalidMessage, RootCertStore};

pub use foreign::foreign;
pub use server_certificate::{CertificateError, CertificateFiles, ServerCertificate, server};

/// Loads the machine's root certificates. Not an error if there are none: TLS handshakes fail then.
pub fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, unusable) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(usable, unusable, errors = ?found.errors, "loaded the machine's certificates");
    roots
}

/// Creates the configuration of a client that trusts these roots. `protocols` are ALPN names in
/// order of preference.
///
/// # Errors
/// No TLS version is supported.
pub fn client(
    roots: impl Into<Arc<RootCertStore>>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Whether a handshake has failed because the peer does not speak TLS, such as a server of plain
/// HTTP.
pub fn is_plain_text_peer(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|cause| {
        // The source of an I/O error is the one of its cause, not its cause.
        let inner = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let is_inner = inner.is_some_and(|inner| is_plain_text_peer(inner));
        is_inner
            || matches!(
                cause.downcast_ref(),
                Some(Error::InvalidMessage(InvalidMessage::InvalidContentType))
            )
    })
}

/// Creates the configuration of an HTTP client for URLs of this scheme. Loads certificates for
/// `https` only.
///
/// # Errors
/// See [`client`].
pub fn http_client(scheme: &str) -> Result<ClientConfig, Error> {
    let roots = if scheme == "https" {
        roots()
    } else {
        RootCertStore::empty()
    };
    client(roots, &[b"h2", b"http/1.1"])
}
