//! The certificate of a server, from files that can be replaced while it serves.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};

/// Maximum size of each file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The bit of a file's mode that lets all users read it. Not that of its group, to which the server
/// may belong.
const READABLE_BY_OTHERS: u32 = 0o004;

/// The files of a certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the server, followed by those that lead to the root.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be loaded. A retry fails until the files have changed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not PEM, or does not contain what it should.
    #[error("cannot parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The file of the certificate has none.
    #[error("{} holds no certificate{}", path.display(), hint(*has_other, "a private key"))]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// Whether it holds a private key.
        has_other: bool,
    },
    /// The file of the key has none.
    #[error("{} holds no private key{}", path.display(), hint(*has_other, "a certificate"))]
    NoKey {
        /// The file.
        path: PathBuf,
        /// Whether it holds a certificate.
        has_other: bool,
    },
    /// The key is encrypted.
    #[error(
        "{} is encrypted: a key without a passphrase is needed, as `openssl pkey` writes it",
        path.display()
    )]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error(
        "the key {} does not belong to the first certificate in {}: name the files of one pair",
        key.display(), chain.display()
    )]
    OtherKey {
        /// The file of the certificate.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate and the key cannot be used together.
    #[error("cannot use the certificate {} with its key", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Error,
    },
}

/// The certificate with which a server accepts connections. Established connections keep the one
/// that they were accepted with.
#[derive(Debug)]
pub struct ServerCertificate {
    files: CertificateFiles,
    /// A blocking lock, because it is held only to copy or replace a pointer.
    loaded: RwLock<Loaded>,
}

#[derive(Debug, Clone)]
struct Loaded {
    key: Arc<CertifiedKey>,
    /// The files when they were last read.
    version: Version,
}

/// What changes when the files are written or replaced. `None` for a file that cannot be inspected.
type Version = [Option<FileVersion>; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    /// Device and inode: a renewal may replace a link, whose new target is older.
    identity: (u64, u64),
    length: u64,
    modified: (i64, i64),
}

impl ServerCertificate {
    /// Loads a certificate. Blocks on the file system.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn load(files: CertificateFiles) -> Result<Arc<Self>, CertificateError> {
        let version = files.version();
        let key = files.load()?;
        Ok(Arc::new(Self {
            files,
            loaded: RwLock::new(Loaded { key, version }),
        }))
    }

    /// Loads the files again. After an error the earlier certificate stays in use. Blocks on the
    /// file system.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn reload(&self) -> Result<(), CertificateError> {
        // Before the content is read: a file that is written meanwhile counts as changed.
        let version = self.files.version();
        let key = self.files.load();
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        // Also of files that cannot be used, which would otherwise be reported at each check.
        loaded.version = version;
        loaded.key = key?;
        Ok(())
    }

    /// Whether the files have changed since they were last loaded. Blocks on the file system.
    pub fn has_changed(&self) -> bool {
        self.files.version() != self.loaded().version
    }

    fn loaded(&self) -> Loaded {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.loaded().key)
    }
}

/// What the user may have confused.
fn hint(has_other: bool, other: &'static str) -> String {
    if has_other {
        format!(", but {other}: are the files swapped?")
    } else {
        String::new()
    }
}

impl CertificateFiles {
    /// Whether all users of the machine may read the key.
    pub fn is_key_exposed(&self) -> bool {
        self.key
            .metadata()
            .is_ok_and(|metadata| metadata.mode() & READABLE_BY_OTHERS != 0)
    }

    fn load(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let parse = |path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::Parse { path, source }
        };
        let content = read(&self.chain)?;
        let chain = CertificateDer::pem_slice_iter(&content).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(parse(&self.chain))?;
        if chain.is_empty() {
            let has_other = PrivateKeyDer::from_pem_slice(&content).is_ok();
            return Err(CertificateError::NoCertificate {
                path: self.chain.clone(),
                has_other,
            });
        }
        let content = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&content).map_err(|error| match error {
            _ if is_encrypted_key(&content) => CertificateError::EncryptedKey {
                path: self.key.clone(),
            },
            pem::Error::NoItemsFound => {
                let has_other = CertificateDer::from_pem_slice(&content).is_ok();
                CertificateError::NoKey {
                    path: self.key.clone(),
                    has_other,
                }
            }
            error => parse(&self.key)(error),
        })?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
        Ok(Arc::new(key.map_err(|source| self.unusable(source))?))
    }

    fn unusable(&self, error: Error) -> CertificateError {
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::OtherKey {
                chain: self.chain.clone(),
                key: self.key.clone(),
            },
            source => CertificateError::Unusable {
                path: self.chain.clone(),
                source,
            },
        }
    }

    fn version(&self) -> Version {
        [&self.chain, &self.key].map(|path| path.metadata().ok().map(FileVersion::from))
    }
}

impl From<Metadata> for FileVersion {
    fn from(metadata: Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Whether a file contains an encrypted private key: of PKCS #8, or in the older form of OpenSSL.
fn is_encrypted_key(content: &[u8]) -> bool {
    content
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .any(|line| {
            line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----" || line == b"Proc-Type: 4,ENCRYPTED"
        })
}

/// Reads a regular file.
fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let read = || {
        // A pipe would block.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let mut bytes = Vec::new();
        File::open(path)?
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "longer than 1 MiB",
            ));
        }
        Ok(bytes)
    };
    read().map_err(|source| CertificateError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Creates the configuration of a server with a certificate. `protocols` are ALPN names in order of
/// preference.
///
/// # Errors
/// No TLS version is supported.
pub fn server(
    certificate: Arc<ServerCertificate>,
    protocols: &[&[u8]],
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

#[cfg(test)]
mod tests;
