//! One program without a terminal to its one exit, over as many connections as it takes.
//!
//! It is started by its id, which never starts twice, and read from the bytes that were not heard yet. Its input goes over
//! one request: how much of it arrived is not known when that breaks, so the program is ended then.

use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{ByteSource, OnProgramOutput, OutputChunk, SandboxError};
use futures_util::TryStreamExt;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use protocol::ProcessId;
use protocol::sandbox_api::{
    ActionFrame, ErrorCode, OutputStream, ProcessExit, ProcessFrame, ProcessFrameDecoder, ProcessRequest,
    ProcessStdin,
};
use tokio::task::yield_now;
use tokio::time::sleep;
use tokio_util::io::ReaderStream;

use super::heard::Heard;
use super::link::Link;
use super::{is_over, request};

/// How often in a row an answer may break without one new byte.
const MAX_FRUITLESS: u32 = 8;
/// The pause after a break; twice as long after each that follows without a new byte.
const PAUSE: Duration = Duration::from_millis(5);
/// What is read of the input at once.
const INPUT_PIECE: usize = 64 << 10;

/// Runs a program that may be known to the server already.
pub(super) async fn run(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    asked: &ProcessRequest,
    stdin: Option<ByteSource>,
    on_output: &OnProgramOutput<'_>,
) -> Result<ProcessExit, SandboxError> {
    let reads = if stdin.is_some() { ProcessStdin::Pipe } else { asked.stdin };
    let body: Bytes = serde_json::to_vec(&ProcessRequest { stdin: reads, ..asked.clone() })
        .map_err(|error| SandboxError::Malformed { detail: format!("encoding program {id}: {error}") })?
        .into();
    let path = format!("/v1/processes/{id}?follow=false");
    request::ask(link, || request::request(key, Method::POST, &path, body.clone())).await??;

    let (out, err) = (
        |chunk: OutputChunk<'_>| on_output(OutputStream::Stdout, chunk),
        |chunk: OutputChunk<'_>| on_output(OutputStream::Stderr, chunk),
    );
    let streams = Streams { stdout: Heard::nothing(&out), stderr: Heard::nothing(&err) };
    let mut listening = std::pin::pin!(listen(link, key, id, streams));
    let fed = tokio::select! {
        biased;
        exit = &mut listening => Err(exit),
        fed = feed(link, key, id, stdin) => Ok(fed),
    };
    let exit = match fed {
        Err(exit) => exit?,
        Ok(Ok(())) => listening.await?,
        Ok(Err(error)) => {
            end(link, key, id).await?;
            return Err(error);
        }
    };
    let path = format!("/v1/processes/{id}/acknowledge");
    // The server forgets it by itself later.
    let _ = request::ask(link, || request::request(key, Method::POST, &path, Bytes::new())).await;
    Ok(exit)
}

/// Ends a program with all that came of it.
pub(super) async fn end(link: &Link, key: &HeaderValue, id: &ProcessId) -> Result<(), SandboxError> {
    let path = format!("/v1/processes/{id}");
    match request::ask(link, || request::request(key, Method::DELETE, &path, Bytes::new())).await? {
        Err(refusal) if !is_over(refusal.code) => Err(refusal.into()),
        _ => Ok(()),
    }
}

/// Sends what the program reads, at its pace. One that ends, or reads no more, has its reasons.
async fn feed(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    stdin: Option<ByteSource>,
) -> Result<(), SandboxError> {
    let Some(stdin) = stdin else { return Ok(()) };
    let broken = |error: String| SandboxError::Lost {
        detail: format!("the input of program {id} broke off, and the program was ended: {error}"),
    };
    let pieces = ReaderStream::with_capacity(stdin, INPUT_PIECE).map_ok(BodyFrame::data);
    let path = format!("/v1/processes/{id}/stdin?close=true");
    let body = StreamBody::new(pieces).boxed_unsync();
    let mut requests = link.requests().await?;
    // No bound on the time: a person may type it.
    let answered = async {
        requests.ready().await?;
        requests.send_request(request::carrying(key, Method::POST, &path, body)).await
    };
    let response = answered.await.map_err(|error| broken(request::Broken::from(error).to_string()))?;
    if response.status().is_success() {
        return Ok(());
    }
    let refusal = request::refusal(response).await;
    if refusal.code == ErrorCode::Conflict || is_over(refusal.code) { Ok(()) } else { Err(refusal.into()) }
}

/// How far both streams have been told.
struct Streams<'a> {
    stdout: Heard<'a>,
    stderr: Heard<'a>,
}

impl Streams<'_> {
    fn heard(&self) -> u64 {
        self.stdout.next().saturating_add(self.stderr.next())
    }
}

async fn listen(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    mut streams: Streams<'_>,
) -> Result<ProcessExit, SandboxError> {
    let mut fruitless = 0;
    loop {
        let heard_before = streams.heard();
        let (stdout, stderr) = (streams.stdout.next(), streams.stderr.next());
        let path = format!("/v1/processes/{id}/output?follow=true&stdout={stdout}&stderr={stderr}");
        let response =
            request::ask(link, || request::request(key, Method::GET, &path, Bytes::new())).await??;
        let broken = match until_exit(response.into_body(), &mut streams, id).await? {
            Ok(exit) => return Ok(exit),
            Err(broken) => broken,
        };
        fruitless = if streams.heard() > heard_before { 0 } else { fruitless + 1 };
        if fruitless == MAX_FRUITLESS {
            let detail = format!("program {id} broke {MAX_FRUITLESS} times in a row: {broken}");
            return Err(SandboxError::Lost { detail });
        }
        sleep(PAUSE * 2_u32.pow(fruitless)).await;
    }
}

/// The exit, or how the answer broke before it.
async fn until_exit(
    mut body: Incoming,
    streams: &mut Streams<'_>,
    id: &ProcessId,
) -> Result<Result<ProcessExit, String>, SandboxError> {
    let malformed =
        |detail: String| SandboxError::Malformed { detail: format!("output of program {id}: {detail}") };
    let mut decoder = ProcessFrameDecoder::default();
    while let Some(piece) = body.frame().await {
        match piece {
            Ok(piece) => decoder.push(&piece.into_data().unwrap_or_default()), // trailers say nothing
            Err(error) => return Ok(Err(error.to_string())),
        }
        while let Some(frame) = decoder.next_frame().map_err(|error| malformed(error.to_string()))? {
            let (stream, frame) = match frame {
                ProcessFrame::Output { stream, offset, bytes } => {
                    (stream, ActionFrame::Output { offset, bytes })
                }
                ProcessFrame::Gap { stream, from, to } => (stream, ActionFrame::Gap { from, to }),
                ProcessFrame::Exit(exit) => return Ok(Ok(*exit)),
            };
            let heard = match stream {
                OutputStream::Stdout => &mut streams.stdout,
                OutputStream::Stderr => &mut streams.stderr,
            };
            heard.hear(frame).map_err(|error| malformed(error.to_string()))?;
        }
        // As for an action: a flood must not keep others from their turn.
        yield_now().await;
    }
    Ok(Err("the answer ended before the exit".into()))
}
