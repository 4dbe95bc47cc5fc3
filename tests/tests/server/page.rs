//! A web page that the server serves next to its API, and the session of a browser.

use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tests::glovebox::{Home, finish};
use tests::host_server::HostServer;

const PAGE: &str = "<!doctype html><script>start()</script><script src=/assets/app.js></script>";

/// A source of the page besides the server.
const SOURCE: &str = "https://cdn.example.com/vs/";

/// Starts a server with a page of two files.
fn start_with(home: &Home, more: &[&str]) -> HostServer {
    let folder = home.path().join("page");
    std::fs::create_dir_all(folder.join("assets")).unwrap();
    std::fs::write(folder.join("index.html"), PAGE).unwrap();
    std::fs::write(folder.join("assets/app.js"), "start = () => {}").unwrap();
    std::fs::write(home.path().join("outside"), "secret").unwrap();
    let arguments = [
        "--static",
        folder.to_str().unwrap(),
        "--page-source",
        SOURCE,
    ];
    HostServer::start(
        home,
        &home.script(&json!([finish()])),
        &[&arguments, more].concat(),
    )
}

/// Starts a server with a page, whose operator accepts sessions at `127.0.0.1`.
fn start(home: &Home) -> HostServer {
    start_with(home, &["--allow-host", "127.0.0.1"])
}

async fn response(request: RequestBuilder) -> (u16, HeaderMap, String) {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.text().await.unwrap())
}

/// Signs in, and returns the cookie.
async fn sign_in(server: &HostServer) -> String {
    let form = server
        .request_without_key(Method::POST, "/sign-in")
        .header("Origin", &server.url);
    let form = form.header("Content-Type", "application/x-www-form-urlencoded");
    let (status, headers, body) = response(form.body(format!("key={}", server.key))).await;
    assert_eq!(
        (status, headers[LOCATION].to_str().unwrap()),
        (303, "/"),
        "{body}"
    );
    let cookie = headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Lax; "), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn page_is_served_after_sign_in() {
    let home = Home::new();
    let server = start(&home);
    let get = |path: &str| server.request_without_key(Method::GET, path);
    for path in ["/", "/conversations/a"] {
        let (status, headers, _) = response(get(path)).await;
        assert_eq!(
            (status, headers[LOCATION].to_str().unwrap()),
            (303, "/sign-in"),
            "{path}"
        );
    }
    let (status, headers, body) = response(get("/sign-in")).await;
    assert!(
        status == 200 && body.contains("type=\"password\""),
        "{status} {body}"
    );
    assert!(
        headers["content-security-policy"]
            .to_str()
            .unwrap()
            .starts_with("default-src 'none'")
    );
    let wrong = server
        .request_without_key(Method::POST, "/sign-in")
        .body("key=wrong");
    let wrong = wrong.header("Content-Type", "application/x-www-form-urlencoded");
    let (status, headers, body) = response(wrong).await;
    assert!(
        status == 401 && !headers.contains_key(SET_COOKIE) && body.contains("not a key"),
        "{body}"
    );

    for (form, problem) in [
        ("", "missing field `key`"),
        ("key=a&key=b", "duplicate field `key`"),
    ] {
        let (status, _, body) = response(
            server
                .request_without_key(Method::POST, "/sign-in")
                .body(form),
        )
        .await;
        let error: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &error["msg_id"]),
            (422, &json!("API$INVALID_REQUEST")),
            "{form}: {body}"
        );
        assert_eq!(
            (&error["field"], &error["message"]),
            (&json!("body"), &json!(format!("body: {problem}")))
        );
    }

    let cookie = sign_in(&server).await;
    for path in ["/", "/conversations/a", "/index.html"] {
        let (status, headers, body) = response(get(path).header("Cookie", &cookie)).await;
        assert_eq!((status, body.as_str()), (200, PAGE), "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        // The hash of `start()`.
        assert!(
            policy.contains("'sha256-DIm7WJS6ZKDYe5qFLPy+h4JFI9Bol5QmYC57mt3Fb00='"),
            "{policy}"
        );
        assert_eq!(policy.matches(SOURCE).count(), 4, "{policy}");
        assert_eq!(headers["cache-control"], "no-store");
    }
    let (status, headers, body) = response(get("/assets/app.js")).await;
    assert_eq!((status, body.as_str()), (200, "start = () => {}"));
    assert_eq!(
        (&headers["content-type"], &headers["cache-control"]),
        (
            &"text/javascript".parse().unwrap(),
            &"no-cache".parse().unwrap()
        )
    );
    for path in [
        "/..%2foutside",
        "/assets/..%2f..%2foutside",
        "/%2e%2e/outside",
        "//etc/hostname",
    ] {
        let (_, _, body) = response(get(path).header("Cookie", &cookie)).await;
        assert!(body != "secret" && !body.contains("root"), "{path}: {body}");
    }
    let folder = home.path().join("page");
    std::os::unix::fs::symlink("/etc", folder.join("etc")).unwrap();
    std::os::unix::fs::symlink("app.js", folder.join("assets/link.js")).unwrap();
    std::fs::write(folder.join(".env"), "secret").unwrap();
    std::os::unix::fs::symlink("../.env", folder.join("assets/env.txt")).unwrap();
    std::fs::create_dir(folder.join(".git")).unwrap();
    std::fs::write(folder.join(".git/config"), "secret").unwrap();
    std::os::unix::fs::symlink(".git", folder.join("git")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(folder.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let long = format!("/{}", "a".repeat(3000));
    let hidden = ["/.env", "/assets/env.txt", "/git/config"];
    for path in ["/etc/passwd", "/fifo", &long, &"/a".repeat(3000)]
        .iter()
        .chain(&hidden)
    {
        let (status, _, body) = response(get(path).header("Cookie", &cookie)).await;
        assert_eq!((status, body.as_str()), (200, PAGE), "{path}");
    }
    assert_eq!(response(get("/assets/link.js")).await.2, "start = () => {}");
    let (status, _, body) = response(server.request_without_key(Method::POST, "/elsewhere")).await;
    assert!(
        status == 405 && body.contains("API$NO_METHOD"),
        "{status} {body}"
    );
    let (status, _, body) = response(get("/api/none").header("Cookie", &cookie)).await;
    assert!(
        status == 404 && body.contains("API$NO_ROUTE"),
        "{status} {body}"
    );
    // A page with a button: a link cannot end the session.
    let (status, headers, body) = response(get("/sign-out").header("Cookie", &cookie)).await;
    assert!(
        status == 200 && body.contains("method=\"post\" action=\"sign-out\""),
        "{status} {body}"
    );
    assert!(!headers.contains_key(SET_COOKIE));
    assert_eq!(response(get("/").header("Cookie", &cookie)).await.0, 200);
    let out = server
        .request_without_key(Method::POST, "/sign-out")
        .header("Cookie", &cookie);
    let out = response(out.header("Origin", &server.url)).await;
    assert!(out.1[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(response(get("/").header("Cookie", &cookie)).await.0, 303);
}

#[tokio::test]
async fn session_is_of_a_name_that_no_other_program_has() {
    let home = Home::new();
    let server = start_with(&home, &[]);
    let port = server.url.rsplit(':').next().unwrap();
    let own = format!("glovebox.localhost:{port}");
    let at = |method: Method, host: &str, path: &str| {
        let request = server
            .request_without_key(method, path)
            .header("Host", host);
        request.header("Origin", format!("http://{host}"))
    };
    let sign_in = |host: &str| {
        let form = at(Method::POST, host, "/sign-in")
            .header("Content-Type", "application/x-www-form-urlencoded");
        response(form.body(format!("key={}", server.key)))
    };
    let (status, headers, body) = sign_in(&own).await;
    assert_eq!(status, 303, "{body}");
    let cookie = headers[SET_COOKIE]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let list = |host: &str| at(Method::GET, host, "/api/conversations").header("Cookie", &cookie);
    assert_eq!(response(list(&own)).await.0, 200);
    for name in ["localhost", "LocalHost", "127.0.0.1", "[::1]"] {
        let host = format!("{name}:{port}");
        let (status, headers, body) = sign_in(&host).await;
        assert!(
            status == 421 && !headers.contains_key(SET_COOKIE) && body.contains(&own),
            "{name}: {body}"
        );
        for path in ["/", "/conversations/a?b=c", "/sign-in"] {
            let (status, headers, _) = response(at(Method::GET, &host, path)).await;
            let location = headers[LOCATION].to_str().unwrap();
            assert_eq!(
                (status, location),
                (303, format!("http://{own}{path}").as_str()),
                "{name}"
            );
        }
        assert_eq!(response(list(&host)).await.0, 401, "{name}");
        assert_eq!(
            response(list(&host).header("X-Session-API-Key", &server.key))
                .await
                .0,
            200,
            "{name}"
        );
    }
}

#[tokio::test]
async fn session_is_accepted_from_the_own_origin_only() {
    let home = Home::new();
    let server = start(&home);
    let cookie = sign_in(&server).await;
    let with_cookie = |method, path| {
        server
            .request_without_key(method, path)
            .header("Cookie", &cookie)
    };
    let list = with_cookie(Method::GET, "/api/conversations");
    assert_eq!(response(list).await.0, 200);
    let create = || with_cookie(Method::POST, "/api/conversations").body("{}");
    assert_eq!(response(create()).await.0, 401, "without the origin");
    assert_eq!(
        response(create().header("Origin", "http://evil.example"))
            .await
            .0,
        403
    );
    let (status, _, body) = response(create().header("Origin", &server.url)).await;
    assert_eq!(status, 200, "{body}");
    let socket = "/socket.io/?EIO=4&transport=polling&session_api_key=null";
    assert_eq!(response(with_cookie(Method::GET, socket)).await.0, 200);
    assert_eq!(
        response(server.request_without_key(Method::GET, socket))
            .await
            .0,
        401
    );
}

#[tokio::test]
async fn key_in_a_header_outranks_the_session() {
    let home = Home::new();
    let server = start(&home);
    let cookie = sign_in(&server).await;
    let user_key = home.add_user("ada");
    let create = |key: &str| {
        let request = server
            .request_without_key(Method::POST, "/api/conversations")
            .body("{}");
        request
            .header("Cookie", &cookie)
            .header("X-Session-API-Key", key)
    };
    // With the origin of the page, and without.
    let from_page = create(&user_key).header("Origin", &server.url);
    for request in [from_page, create(&user_key)] {
        let (status, _, body) = response(request).await;
        assert_eq!(status, 200, "{body}");
    }
    let (_, listed) = server
        .send_as(&user_key, Method::GET, "/api/conversations", None)
        .await;
    assert_eq!(
        listed["results"].as_array().unwrap().len(),
        2,
        "both are the user's: {listed}"
    );
    let wrong = create("wrong").header("Origin", &server.url);
    assert_eq!(response(wrong).await.0, 401);
}

#[test]
fn source_that_is_no_url_is_rejected() {
    let home = Home::new();
    for source in ["'unsafe-eval'", "https://a;script-src *", "data:"] {
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--runtime",
            "local",
            "--static",
            "/",
            "--page-source",
            source,
        ];
        let output = home.glovebox(&arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains("--page-source"),
            "{error}"
        );
    }
}

#[test]
fn folder_without_a_page_is_rejected() {
    let home = Home::new();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--runtime",
        "local",
        "--static",
        "/proc/self",
    ];
    let output = home.glovebox(&arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && error.contains("/proc/self/index.html"),
        "{error}"
    );
}
