use std::path::Path;
use std::time::Duration;

use super::HostSettings;
use super::lines::parse;

fn settings(text: &str, host: &str) -> HostSettings {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".ssh/more")).unwrap();
    let file = home.path().join(".ssh/config");
    std::fs::write(&file, text).unwrap();
    std::fs::write(
        home.path().join(".ssh/more/a.conf"),
        "Port 7\nHost inner\n  User included\n",
    )
    .unwrap();
    std::fs::write(home.path().join(".ssh/more/.hidden.conf"), "Port 9\n").unwrap();
    HostSettings::for_host(
        host,
        "me",
        &[home.path().join("missing"), file],
        home.path(),
    )
    .unwrap()
}

#[test]
fn settings_keep_the_first_value_and_all_key_files() {
    let text = "
        # a comment
        Host build *.example.org !old.example.org
            HostName=build.example.org
            User  worker   # and why
            Port = 2222
            IdentityFile ~/.ssh/build
            IdentityFile \"~/.ssh/a key\"
            IdentitiesOnly yes
            ProxyJump one,me@two:23
            UserKnownHostsFile /dev/null ~/.ssh/more
            StrictHostKeyChecking accept-new
            ConnectTimeout 3
        Host *
            User other
            Port 1
            IdentityFile ~/.ssh/all
        Match host build.example.org user worker
            HostKeyAlias known
        Match exec \"true\"
            IdentityAgent none
        ";
    let found = settings(text, "build");
    assert_eq!(
        found,
        HostSettings {
            host_name: Some("build.example.org".into()),
            user: Some("worker".into()),
            port: Some(2222),
            identity_files: vec![
                "~/.ssh/build".into(),
                "~/.ssh/a key".into(),
                "~/.ssh/all".into()
            ],
            identities_only: Some(true),
            proxy_jump: Some("one,me@two:23".into()),
            user_known_hosts: Some(vec!["/dev/null".into(), "~/.ssh/more".into()]),
            strict_host_key_checking: Some("accept-new".into()),
            host_key_alias: Some("known".into()),
            connect_timeout: Some(Duration::from_secs(3)),
            ..HostSettings::default()
        }
    );
    assert_eq!(settings(text, "old.example.org").port, Some(1));
}

#[test]
fn settings_of_included_files_apply_at_the_include() {
    let text = "Include more/*.conf\nHost *\n  Port 8\n  User me\n";
    assert_eq!(settings(text, "outer").port, Some(7));
    assert_eq!(settings(text, "outer").user.as_deref(), Some("me"));
    assert_eq!(settings(text, "inner").user.as_deref(), Some("included"));
}

#[test]
fn error_names_file_and_line_when_a_line_is_invalid() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    for (text, problem) in [
        ("\nPort many\n", ":2: this is no port"),
        ("User \"open\n", ""),
        ("IdentityFile \"open\n", ":1: a quote has no end"),
        ("Include ~/config\n", "times over"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = HostSettings::for_host("h", "me", std::slice::from_ref(&file), home.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(problem) && error.contains("config:"),
            "{error}"
        );
    }
    assert_eq!(
        HostSettings::for_host("h", "me", &[], Path::new("/")).unwrap(),
        HostSettings::default()
    );
}

#[test]
fn line_is_parsed_into_keyword_and_words() {
    let words = |line: &str| parse(line).unwrap().unwrap();
    assert_eq!(words("Host a b").words, ["a", "b"]);
    assert_eq!(words("PORT=22").keyword, "port");
    assert_eq!(words("port = 22").words, ["22"]);
    assert_eq!(words("user\"x y\"").words, ["x y"]);
    assert!(parse("  # nothing").is_none());
}
