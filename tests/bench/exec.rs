//! Programs without a terminal, and files: the action server compared with direct calls.
//!
//! 10 MB of output: the server also retains it until it is acknowledged, in files beyond 1.5 MB. It
//! took 1.28 to 1.46 times as long as the pipe in six of seven runs on two shared cores, and 2.7
//! times in one, while the disk was busy. The minimum, a handler that forwards reads of 64 KiB from
//! the pipe, took 1.1 to 1.4 times as long, and 1.3 to 1.5 times with a file. According to `perf`
//! most of it is copying in the kernel: out of the pipe, into the file and into the socket. A slow
//! client reads about half of the output from the file.
//!
//! A pause of 0.3 ms after each short read, for fewer wake-ups, made no difference: 1.39 to 1.82
//! with it, 1.24 to 1.40 without, in turns. The program was suspended meanwhile, and each of its
//! writes woke the server anyway.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::bare_http::BareHttp;
use super::figure::{Figure, quantile_ms};
use super::report::BenchmarkReport;
use super::server::{HttpClient, ServerProcess};

const ROUNDS: usize = 400;
const FLOOD_BYTES: usize = 10_000_000;
const FLOOD_ROUNDS: usize = 25;
const HELD_BYTES: usize = 1_000_000_000;

pub(crate) async fn measure(report: BenchmarkReport) {
    let server = ServerProcess::start().await;
    let bare = BareHttp::start();
    tokio::task::spawn_blocking(move || {
        let mut client = server.connect();
        let mut http = bare.connect();
        let rounds = report.repetitions(ROUNDS);
        let name = "one-shot exec of `true` (floor: spawn + axum)";
        report.add(one_shot(name, "free", rounds, &mut client, &mut http));
        let flood_rounds = report.repetitions(FLOOD_ROUNDS);
        report.add_all(flood(flood_rounds, &mut client, &mut http));
        report.add(files(flood_rounds, &mut client, &mut http));
        hold(report.repetitions(HELD_BYTES), &mut client);
        let name = "the same, with 1 GB of output retained";
        report.add(one_shot(name, "held", rounds, &mut client, &mut http));
    })
    .await
    .unwrap();
}

fn exec(client: &mut HttpClient, id: &str, argv: &[&str], query: &str) -> Vec<u8> {
    client.ask(
        "POST",
        &format!("/v1/processes/{id}{query}"),
        &json!({"argv": argv}).to_string(),
    )
}

fn one_shot(
    name: &'static str,
    id: &str,
    rounds: usize,
    client: &mut HttpClient,
    http: &mut HttpClient,
) -> Figure {
    let (mut bare, mut trips, mut served) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let started = Instant::now();
        assert!(
            Command::new("/bin/true")
                .stdin(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        bare.push(started.elapsed());
        let started = Instant::now();
        http.ask("POST", "/", "echo hi");
        trips.push(started.elapsed());
        let started = Instant::now();
        let answer = exec(client, &format!("{id}-{round}"), &["/bin/true"], "");
        assert!(
            answer.windows(8).any(|window| window == b"\"code\":0"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        served.push(started.elapsed());
    }
    let floor = quantile_ms(&mut bare, 0.5) + quantile_ms(&mut trips, 0.5);
    Figure::within(name, quantile_ms(&mut served, 0.5), "ms", floor, 1.3)
}

fn flood(rounds: usize, client: &mut HttpClient, http: &mut HttpClient) -> Vec<Figure> {
    let count = FLOOD_BYTES.to_string();
    let argv = ["head", "-c", &count, "/dev/zero"];
    let (mut bare, mut forwarded, mut held, mut served) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let started = Instant::now();
        let output = Command::new(argv[0])
            .args(&argv[1..])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.stdout.len(), FLOOD_BYTES);
        bare.push(started.elapsed());
        let started = Instant::now();
        assert!(http.ask("POST", "/pipe", &argv.join(" ")).len() > FLOOD_BYTES);
        forwarded.push(started.elapsed());
        let started = Instant::now();
        assert!(http.ask("POST", "/held-pipe", &argv.join(" ")).len() > FLOOD_BYTES);
        held.push(started.elapsed());
        let started = Instant::now();
        assert!(exec(client, &format!("flood-{round}"), &argv, "").len() > FLOOD_BYTES);
        served.push(started.elapsed());
    }
    let floor = quantile_ms(&mut bare, 0.5);
    let forwarded = quantile_ms(&mut forwarded, 0.5);
    let held = quantile_ms(&mut held, 0.5);
    let served = quantile_ms(&mut served, 0.5);
    vec![
        Figure::plain(
            "10 MB from a pipe through bare axum (floor: pipe)",
            forwarded,
            "ms",
        )
        .with_floor(floor),
        Figure::plain("the same, and held in a file (floor: pipe)", held, "ms").with_floor(floor),
        Figure::within(
            "10 MB from a one-shot exec (floor: pipe)",
            served,
            "ms",
            floor,
            1.5,
        ),
        Figure::plain(
            "the same (floor: pipe through bare axum, held)",
            served,
            "ms",
        )
        .with_floor(held),
    ]
}

/// 10 MB written and read through the server. The floor is an echo by axum and a plain file.
fn files(rounds: usize, client: &mut HttpClient, http: &mut HttpClient) -> Figure {
    let folder = tempfile::tempdir().unwrap();
    let (bare_path, path) = (folder.path().join("bare"), folder.path().join("served"));
    let content = "x".repeat(FLOOD_BYTES);
    let (mut bare, mut served) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let started = Instant::now();
        assert!(http.ask("POST", "/", &content).len() > FLOOD_BYTES);
        fs::write(&bare_path, &content).unwrap();
        assert_eq!(fs::read(&bare_path).unwrap().len(), FLOOD_BYTES);
        bare.push(started.elapsed());
        let started = Instant::now();
        let route = format!("/v1/files?path={}", path.display());
        client.ask("PUT", &route, &content);
        assert!(client.ask("GET", &route, "").len() > FLOOD_BYTES);
        served.push(started.elapsed());
    }
    let floor = quantile_ms(&mut bare, 0.5);
    Figure::within(
        "10 MB written and read (floor: axum + file)",
        quantile_ms(&mut served, 0.5),
        "ms",
        floor,
        2.0,
    )
}

/// Leaves the output of a process in the ledger's files.
fn hold(bytes: usize, client: &mut HttpClient) {
    let count = bytes.to_string();
    exec(
        client,
        "held",
        &["head", "-c", &count, "/dev/zero"],
        "?follow=false",
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_held = |answer: &[u8]| {
        String::from_utf8_lossy(answer).contains(&format!("\"stdout_bytes\":{bytes}"))
    };
    while !is_held(&client.ask("GET", "/v1/processes/held", "")) {
        assert!(Instant::now() < deadline, "1 GB of output takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}
