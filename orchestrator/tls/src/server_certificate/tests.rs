use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{CertifiedKey as Generated, generate_simple_self_signed};
use tempfile::TempDir;

use super::*;

struct Folder {
    folder: TempDir,
    files: CertificateFiles,
}

fn folder() -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        chain: folder.path().join("chain.pem"),
        key: folder.path().join("key.pem"),
    };
    Folder { folder, files }
}

impl Folder {
    /// Writes a new certificate and its key, and returns the certificate.
    fn renew(&self) -> Vec<u8> {
        let Generated { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(&self.files.chain, cert.pem()).unwrap();
        fs::write(&self.files.key, signing_key.serialize_pem()).unwrap();
        cert.der().to_vec()
    }
}

/// Keys with a passphrase, in the forms of OpenSSL.
const ENCRYPTED_KEYS: [&[u8]; 2] = [
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcG\n-----END ENCRYPTED PRIVATE KEY-----\n",
    b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A0B\n\nMIGbMFcG\n-----END EC PRIVATE KEY-----\n",
];

fn served(certificate: &ServerCertificate) -> Vec<u8> {
    certificate.loaded().key.cert[0].to_vec()
}

#[test]
fn renewed_certificate_is_served_after_a_reload() {
    let folder = folder();
    let first = folder.renew();
    let certificate = ServerCertificate::load(folder.files.clone()).unwrap();
    assert!(served(&certificate) == first && !certificate.has_changed());
    let second = folder.renew();
    assert!(certificate.has_changed() && served(&certificate) == first);
    certificate.reload().unwrap();
    assert!(served(&certificate) == second && !certificate.has_changed());
}

#[test]
fn earlier_certificate_is_kept_when_the_files_are_broken() {
    let folder = folder();
    let first = folder.renew();
    let certificate = ServerCertificate::load(folder.files.clone()).unwrap();
    let own_key = fs::read(&folder.files.key).unwrap();
    let chain = fs::read(&folder.files.chain).unwrap();
    folder.renew();
    let other_key = fs::read(&folder.files.key).unwrap();
    for (chain, key, expected) in [
        (&b""[..], &own_key[..], "holds no certificate"),
        (b"no PEM", &own_key, "holds no certificate"),
        (
            &own_key,
            &chain,
            "holds no certificate, but a private key: are the files swapped?",
        ),
        (&chain, b"", "holds no private key"),
        (
            &chain,
            &chain,
            "holds no private key, but a certificate: are the files swapped?",
        ),
        (&chain[..chain.len() / 2], &own_key, "cannot parse"),
        (
            &chain,
            &other_key,
            "does not belong to the first certificate in",
        ),
        (
            &chain,
            ENCRYPTED_KEYS[0],
            "key.pem is encrypted: a key without a passphrase is needed",
        ),
        (
            &chain,
            ENCRYPTED_KEYS[1],
            "key.pem is encrypted: a key without a passphrase is needed",
        ),
        (
            &[b' '; MAX_FILE_BYTES as usize + 1],
            &own_key,
            "cannot read",
        ),
    ] {
        fs::write(&folder.files.chain, chain).unwrap();
        fs::write(&folder.files.key, key).unwrap();
        let error = certificate.reload().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        // The same files are not reported again.
        assert!(
            served(&certificate) == first && !certificate.has_changed(),
            "{error}"
        );
    }
    fs::remove_file(&folder.files.key).unwrap();
    assert!(certificate.has_changed());
    assert!(matches!(
        certificate.reload(),
        Err(CertificateError::Read { .. })
    ));
    fs::remove_file(&folder.files.chain).unwrap();
    std::os::unix::fs::symlink(folder.folder.path(), &folder.files.chain).unwrap();
    assert!(matches!(
        certificate.reload(),
        Err(CertificateError::Read { .. })
    ));
    assert_eq!(served(&certificate), first);
}

#[test]
fn key_is_exposed_when_all_users_can_read_it() {
    let folder = folder();
    folder.renew();
    for (mode, is_exposed) in [
        (0o600, false),
        (0o640, false),
        (0o604, true),
        (0o400, false),
    ] {
        fs::set_permissions(&folder.files.key, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(folder.files.is_key_exposed(), is_exposed, "{mode:o}");
    }
}
