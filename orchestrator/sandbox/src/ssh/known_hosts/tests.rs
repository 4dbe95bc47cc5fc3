use std::path::PathBuf;

use russh::keys::{Algorithm, PublicKey, parse_public_key_base64};

use super::{KnownKeys, UnknownKey, Verdict};

const FIRST: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const SECOND: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

fn key(text: &str) -> PublicKey {
    parse_public_key_base64(text).unwrap()
}

/// What a file with this text says about a host's first key.
fn judged(text: &str, host: &str) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known_hosts");
    std::fs::write(&file, text).unwrap();
    let known = KnownKeys::of(host, &[folder.path().join("missing"), file.clone()]).unwrap();
    match known.judge(&key(FIRST)) {
        Verdict::Changed { file: found, line } if found == file => {
            Verdict::Changed { file: "F".into(), line }
        }
        Verdict::Revoked { file: found, line } if found == file => {
            Verdict::Revoked { file: "F".into(), line }
        }
        other => other,
    }
}

#[test]
fn a_key_is_known_changed_revoked_or_unknown() {
    let line = |hosts: &str, key: &str| format!("{hosts} ssh-ed25519 {key} a comment\n");
    let file = || PathBuf::from("F");
    assert_eq!(judged(&line("host", FIRST), "host"), Verdict::Known);
    assert_eq!(judged(&line("a,*.org,b", FIRST), "host.org"), Verdict::Known);
    assert_eq!(judged(&line("[host]:2222", FIRST).replace(' ', "\t"), "[host]:2222"), Verdict::Known);
    assert_eq!(judged(&line("[host]:2222", FIRST), "host"), Verdict::Unknown);
    assert_eq!(judged(&line("#host", SECOND), "host"), Verdict::Unknown);
    assert_eq!(
        judged("host ssh-ed25519 nonsense\nhost\n@cert-authority host ssh-ed25519 x\n", "host"),
        Verdict::Unknown
    );
    let changed = format!("# one\n{}", line("host", SECOND));
    assert_eq!(judged(&changed, "host"), Verdict::Changed { file: file(), line: 2 });
    let both = format!("{}{}", line("host", SECOND), line("host", FIRST));
    assert_eq!(judged(&both, "host"), Verdict::Known);
    let revoked = format!("{}@revoked {}", line("host", FIRST), line("*", FIRST));
    assert_eq!(judged(&revoked, "host"), Verdict::Revoked { file: file(), line: 2 });
}

#[test]
fn a_hashed_name_is_recognised() {
    // `ssh-keygen -H` made the hash of `example.com`.
    let line = format!("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= ssh-ed25519 {FIRST}\n");
    assert_eq!(judged(&line, "example.com"), Verdict::Known);
    assert_eq!(judged(&line, "example.org"), Verdict::Unknown);
}

#[test]
fn learned_key_is_known_and_its_algorithm_preferred() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new/known_hosts");
    std::fs::create_dir(folder.path().join("new")).unwrap();
    std::fs::write(&file, "without-end ssh-rsa AAAA").unwrap();
    let unknown = UnknownKey { host: "[h]:7".into(), key: key(FIRST), file: Some(file.clone()) };
    unknown.learn().unwrap();
    let known = KnownKeys::of("[h]:7", &[file]).unwrap();
    assert_eq!(known.judge(&key(FIRST)), Verdict::Known);
    let all = [Algorithm::Rsa { hash: None }, Algorithm::Ed25519];
    assert_eq!(known.preferred(&all), [Algorithm::Ed25519, Algorithm::Rsa { hash: None }]);
    assert!(unknown.fingerprint().starts_with("SHA256:"));
}
