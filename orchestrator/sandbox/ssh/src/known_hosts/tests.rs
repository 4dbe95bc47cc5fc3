use std::path::PathBuf;

use russh::keys::{Algorithm, PublicKey, parse_public_key_base64};

use super::{KeyStatus, KnownKeys, UnknownKey};

const FIRST: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const SECOND: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

fn key(text: &str) -> PublicKey {
    parse_public_key_base64(text).unwrap()
}

/// Status of the key `FIRST` for a host, given the text of the file.
fn status_in(text: &str, host: &str) -> KeyStatus {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known_hosts");
    std::fs::write(&file, text).unwrap();
    let known = KnownKeys::load(host, &[folder.path().join("missing"), file.clone()]).unwrap();
    match known.key_status(&key(FIRST)) {
        KeyStatus::Changed { file: found, line } if found == file => KeyStatus::Changed {
            file: "F".into(),
            line,
        },
        KeyStatus::Revoked { file: found, line } if found == file => KeyStatus::Revoked {
            file: "F".into(),
            line,
        },
        other => other,
    }
}

#[test]
fn key_status_is_known_changed_revoked_or_unknown() {
    let line = |hosts: &str, key: &str| format!("{hosts} ssh-ed25519 {key} a comment\n");
    let file = || PathBuf::from("F");
    assert_eq!(status_in(&line("host", FIRST), "host"), KeyStatus::Known);
    assert_eq!(
        status_in(&line("a,*.org,b", FIRST), "host.org"),
        KeyStatus::Known
    );
    assert_eq!(
        status_in(
            &line("[host]:2222", FIRST).replace(' ', "\t"),
            "[host]:2222"
        ),
        KeyStatus::Known
    );
    assert_eq!(
        status_in(&line("[host]:2222", FIRST), "host"),
        KeyStatus::Unknown
    );
    assert_eq!(
        status_in(&line("#host", SECOND), "host"),
        KeyStatus::Unknown
    );
    assert_eq!(
        status_in(
            "host ssh-ed25519 nonsense\nhost\n@cert-authority host ssh-ed25519 x\n",
            "host"
        ),
        KeyStatus::Unknown
    );
    let changed = format!("# one\n{}", line("host", SECOND));
    assert_eq!(
        status_in(&changed, "host"),
        KeyStatus::Changed {
            file: file(),
            line: 2
        }
    );
    let both = format!("{}{}", line("host", SECOND), line("host", FIRST));
    assert_eq!(status_in(&both, "host"), KeyStatus::Known);
    let revoked = format!("{}@revoked {}", line("host", FIRST), line("*", FIRST));
    assert_eq!(
        status_in(&revoked, "host"),
        KeyStatus::Revoked {
            file: file(),
            line: 2
        }
    );
}

#[test]
fn entry_is_found_when_its_host_name_is_hashed() {
    // `ssh-keygen -H` made the hash of `example.com`.
    let line = format!(
        "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= ssh-ed25519 {FIRST}\n"
    );
    assert_eq!(status_in(&line, "example.com"), KeyStatus::Known);
    assert_eq!(status_in(&line, "example.org"), KeyStatus::Unknown);
}

#[test]
fn learned_key_is_known_and_its_algorithm_preferred() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/known_hosts");
    std::fs::create_dir(folder.path().join("new")).unwrap();
    std::fs::write(&file, "without-end ssh-rsa AAAA").unwrap();
    let unknown = UnknownKey {
        host: "[h]:7".into(),
        key: key(FIRST),
        file: Some(file.clone()),
    };
    unknown.append_to_file().unwrap();
    let known = KnownKeys::load("[h]:7", &[file]).unwrap();
    assert_eq!(known.key_status(&key(FIRST)), KeyStatus::Known);
    let all = [Algorithm::Rsa { hash: None }, Algorithm::Ed25519];
    assert_eq!(
        known.preferred(&all),
        [Algorithm::Ed25519, Algorithm::Rsa { hash: None }]
    );
    assert!(unknown.fingerprint().starts_with("SHA256:"));
}
