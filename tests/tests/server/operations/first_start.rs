//! The generated key, which is printed once.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::json;
use tests::glovebox::{Home, finish};

/// Starts a server, and returns its first lines after the one with its address.
fn printed(home: &Home, variables: &[(&str, &str)], count: usize) -> Vec<String> {
    let model = home.script(&json!([finish()]));
    let mut command = home.glovebox(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "-l",
        &model,
    ]);
    let mut server = command
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let lines = lines.skip(1).take(count).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    lines
}

#[test]
fn key_is_printed_by_the_first_start_that_succeeds() {
    let home = Home::new();
    let file = home.path().join(".glovebox/server-key");
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let model = home.script(&json!([finish()]));
    let serve =
        |more: &[&str]| home.run(&[&["serve", "--runtime", "local", "-l", &model], more].concat());
    let failed = serve(&["--listen", &address]).expect(1);
    assert!(
        failed.stderr.contains("Address already in use"),
        "{}",
        failed.stderr
    );
    let files = [
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "none.pem",
        "--tls-key",
        "none.pem",
    ];
    serve(&files).expect(2);
    assert!(!file.exists(), "no key that was not printed");

    let lines = printed(&home, &[], 2);
    let key = std::fs::read_to_string(&file).unwrap();
    let place = format!("(printed only this time; it is in {})", file.display());
    assert_eq!(lines, [format!("key: {}", key.trim()), place]);
    assert_eq!(
        printed(&home, &[], 1),
        [format!("key: as before, in {}", file.display())]
    );
    let variable = [("SESSION_API_KEY", "a-key-of-the-operator")];
    assert_eq!(printed(&home, &variable, 1), ["key: from SESSION_API_KEY"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), key);
}
