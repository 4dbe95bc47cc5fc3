//! Runs one program without a terminal to its exit, over as many connections as needed.
//!
//! The program is started by its id, which never starts twice, and its output is read from the
//! first byte that was not received. Its input is sent in one request. If that breaks, the number
//! of arrived bytes is unknown, so the program is killed.

use bytes::Bytes;
use engine::sandbox::{ByteSource, OnProgramOutput, OutputChunk, SandboxError};
use futures_util::TryStreamExt;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use protocol::ProcessId;
use protocol::sandbox_api::{
    ActionFrame, ErrorCode, OutputStream, ProcessExit, ProcessFrame, ProcessFrameDecoder,
    ProcessRequest, ProcessStdin,
};
use tokio::task::yield_now;
use tokio_util::io::ReaderStream;

use super::link::Link;
use super::output_cursor::OutputCursor;
use super::resume_backoff::ResumeBackoff;
use super::{is_over, request};

/// The size of the chunks in which the input is read.
const INPUT_CHUNK_BYTES: usize = 64 << 10;

/// Runs a program that the server may already know.
pub(super) async fn run(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    process: &ProcessRequest,
    stdin: Option<ByteSource>,
    on_output: &OnProgramOutput<'_>,
) -> Result<ProcessExit, SandboxError> {
    let stdin_kind = if stdin.is_some() {
        ProcessStdin::Pipe
    } else {
        process.stdin
    };
    let body: Bytes = serde_json::to_vec(&ProcessRequest {
        stdin: stdin_kind,
        ..process.clone()
    })
    .map_err(|error| SandboxError::Malformed {
        detail: format!("encoding program {id}: {error}"),
    })?
    .into();
    let path = format!("/v1/processes/{id}?follow=false");
    let start = || request::new(key, Method::POST, &path, body.clone());
    request::send_with_retries(link, start).await??;

    let (out, err) = (
        |chunk: OutputChunk<'_>| on_output(OutputStream::Stdout, chunk),
        |chunk: OutputChunk<'_>| on_output(OutputStream::Stderr, chunk),
    );
    let streams = Streams {
        stdout: OutputCursor::new(&out),
        stderr: OutputCursor::new(&err),
    };
    let mut receive = std::pin::pin!(receive(link, key, id, streams));
    let fed = tokio::select! {
        biased;
        exit = &mut receive => Err(exit),
        fed = feed(link, key, id, stdin) => Ok(fed),
    };
    let exit = match fed {
        Err(exit) => exit?,
        Ok(Ok(())) => receive.await?,
        Ok(Err(error)) => {
            kill(link, key, id).await?;
            return Err(error);
        }
    };
    let path = format!("/v1/processes/{id}/acknowledge");
    let acknowledge = || request::new(key, Method::POST, &path, Bytes::new());
    // Best effort: the server's retention expires later.
    let _ = request::send_with_retries(link, acknowledge).await;
    Ok(exit)
}

/// Kills the process tree of a program.
pub(super) async fn kill(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
) -> Result<(), SandboxError> {
    let path = format!("/v1/processes/{id}");
    let kill = || request::new(key, Method::DELETE, &path, Bytes::new());
    match request::send_with_retries(link, kill).await? {
        Err(error) if !is_over(error.code) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Sends the input at the program's pace. It is no error if the program exits or closes its input
/// before the end.
async fn feed(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    stdin: Option<ByteSource>,
) -> Result<(), SandboxError> {
    let Some(stdin) = stdin else { return Ok(()) };
    let broken = |error: String| SandboxError::Lost {
        detail: format!("the input of program {id} broke off, and the program was killed: {error}"),
    };
    let chunks = ReaderStream::with_capacity(stdin, INPUT_CHUNK_BYTES).map_ok(BodyFrame::data);
    let path = format!("/v1/processes/{id}/stdin?close=true");
    let body = StreamBody::new(chunks).boxed_unsync();
    let mut sender = link.sender().await?;
    // No timeout: a person may type the input.
    let response = async {
        sender.ready().await?;
        sender
            .send_request(request::streaming(key, Method::POST, &path, body))
            .await
    };
    let response = response
        .await
        .map_err(|error| broken(request::TransportError::from(error).to_string()))?;
    if response.status().is_success() {
        return Ok(());
    }
    let error = request::read_error(response).await;
    if error.code == ErrorCode::Conflict || is_over(error.code) {
        Ok(())
    } else {
        Err(error.into())
    }
}

/// The positions in both outputs.
struct Streams<'a> {
    stdout: OutputCursor<'a>,
    stderr: OutputCursor<'a>,
}

impl Streams<'_> {
    fn received_bytes(&self) -> u64 {
        self.stdout
            .next_offset()
            .saturating_add(self.stderr.next_offset())
    }
}

async fn receive(
    link: &Link,
    key: &HeaderValue,
    id: &ProcessId,
    mut streams: Streams<'_>,
) -> Result<ProcessExit, SandboxError> {
    let mut backoff = ResumeBackoff::new(format!("program {id}"));
    loop {
        let received_before = streams.received_bytes();
        let (stdout, stderr) = (streams.stdout.next_offset(), streams.stderr.next_offset());
        let path = format!("/v1/processes/{id}/output?follow=true&stdout={stdout}&stderr={stderr}");
        let follow = || request::new(key, Method::GET, &path, Bytes::new());
        let response = request::send_with_retries(link, follow).await??;
        let reason = match receive_until_exit(response.into_body(), &mut streams, id).await? {
            Ok(exit) => return Ok(exit),
            Err(reason) => reason,
        };
        backoff
            .wait(streams.received_bytes() > received_before, &reason)
            .await?;
    }
}

/// Returns the exit, or why the response broke off before it.
async fn receive_until_exit(
    mut body: Incoming,
    streams: &mut Streams<'_>,
    id: &ProcessId,
) -> Result<Result<ProcessExit, String>, SandboxError> {
    let malformed = |detail: String| SandboxError::Malformed {
        detail: format!("output of program {id}: {detail}"),
    };
    let mut decoder = ProcessFrameDecoder::default();
    while let Some(chunk) = body.frame().await {
        match chunk {
            Ok(chunk) => decoder.push(&chunk.into_data().unwrap_or_default()), // trailers are ignored
            Err(error) => return Ok(Err(error.to_string())),
        }
        while let Some(frame) = decoder
            .next_frame()
            .map_err(|error| malformed(error.to_string()))?
        {
            let (stream, frame) = match frame {
                ProcessFrame::Output {
                    stream,
                    offset,
                    bytes,
                } => (stream, ActionFrame::Output { offset, bytes }),
                ProcessFrame::Gap { stream, from, to } => (stream, ActionFrame::Gap { from, to }),
                ProcessFrame::Exit(exit) => return Ok(Ok(*exit)),
            };
            let cursor = match stream {
                OutputStream::Stdout => &mut streams.stdout,
                OutputStream::Stderr => &mut streams.stderr,
            };
            cursor
                .on_frame(frame)
                .map_err(|error| malformed(error.to_string()))?;
        }
        // With a flood of output, this task would never yield to others.
        yield_now().await;
    }
    Ok(Err("the response ended before the exit".into()))
}
