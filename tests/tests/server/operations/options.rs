//! Options of `glovebox serve` that cannot work, which are refused at the start instead of with
//! each request.

use serde_json::json;
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;

#[test]
fn options_that_cannot_work_are_refused_at_the_start() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let missing = format!("scripted:{}", home.path().join("none.json").display());
    let cases: [(&[&str], &str); 8] = [
        (&["--max-running", "0"], "--max-running"),
        (
            &["--allow-host", "http://x"],
            "expected a name such as example.org",
        ),
        (
            &["--allow-host", "x:80"],
            "expected a name such as example.org",
        ),
        (&["--allow-host", ""], "expected a name such as example.org"),
        (
            &["--listen", "localhost:3000"],
            "expected an address and a port such as 127.0.0.1:3000",
        ),
        (
            &["--network", "foo"],
            "a local sandbox supports `none` and `host`",
        ),
        (&["--model", &missing], "cannot read the script"),
        (&["--model", "scripted:/dev/null"], "the script /dev/null"),
    ];
    for (options, expected) in cases {
        let mut own = vec!["serve", "--runtime", "local"];
        for default in [["--listen", "127.0.0.1:0"], ["--model", model.as_str()]] {
            own.extend(default.iter().filter(|_| !options.contains(&default[0])));
        }
        let output = home.glovebox(&[&own, options].concat()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains(expected),
            "{options:?}: {error}"
        );
    }
    assert!(
        home.glovebox(&["user", "add", "ada"])
            .status()
            .unwrap()
            .success()
    );
    let output = home
        .glovebox(&["user", "key", "add", "ada", "--expires", "0s"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && error.contains("expected a time from 1s"),
        "{error}"
    );
}

/// Several hosts share it, so an operator copies it before there is a conversation.
#[test]
fn secret_exists_when_the_server_has_started() {
    let home = Home::new();
    let server = HostServer::start(&home, &home.script(&json!([finish()])), &[]);
    assert_eq!(
        std::fs::read(home.path().join(".glovebox/secret"))
            .unwrap()
            .len(),
        32
    );
    server.terminate();
}
