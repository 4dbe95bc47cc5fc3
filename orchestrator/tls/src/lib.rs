//! How TLS is begun by everything here that speaks it: rustls on ring, with the machine's roots.
//!
//! Set up by hand, because clients' own set-up fails on a machine without certificates, even for plain HTTP. A provider of
//! cryptography that was installed for the whole process is not needed. Opens no connection.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, Error, RootCertStore};

/// The machine's roots. That there are none is no error here: TLS fails when it is spoken, and says so then.
pub fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (usable, unusable) = roots.add_parsable_certificates(found.certs);
    tracing::debug!(usable, unusable, errors = ?found.errors, "loaded the machine's certificates");
    roots
}

/// A client that believes in these roots. It agrees on one of `protocols`, named as TLS names them, the best first.
///
/// # Errors
/// None of the protocol's versions can be spoken.
pub fn client(roots: impl Into<Arc<RootCertStore>>, protocols: &[&[u8]]) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// An HTTP client, for addresses of this scheme: certificates are read for `https` only.
///
/// # Errors
/// See [`client`].
pub fn http_client(scheme: &str) -> Result<ClientConfig, Error> {
    let roots = if scheme == "https" { roots() } else { RootCertStore::empty() };
    client(roots, &[b"h2", b"http/1.1"])
}
