//! Whether the server's program is made for the engine's processors. Asked when a start has failed: an engine tells of a
//! program that is not in many ways, and in none that is typed.

use std::time::Duration;

use tokio::time::timeout;

use super::engine::Engine;
use crate::ServerBinary;

/// The error is due within a second of the start's timeout.
const PATIENCE: Duration = Duration::from_millis(200);

const MAGIC: &[u8] = b"\x7fELF\x02\x01"; // of 64 bits, the low byte first
const MACHINE_OFFSET: usize = 18;

/// What to say of a program that the engine's machine cannot run; nothing when it can, or nobody knows.
pub(super) async fn mismatch(engine: &Engine, server: &ServerBinary) -> Option<String> {
    let ours = machine_of(&server.bytes().await.ok()?)?;
    let theirs = timeout(PATIENCE, engine.docker.version()).await.ok()?.ok()?.arch?;
    (theirs != ours).then(|| {
        format!("the action server is made for {ours} and the engine's machine is {theirs}: choose another of them")
    })
}

/// The kind of processor that a program is for, as engines name it.
fn machine_of(program: &[u8]) -> Option<&'static str> {
    program.strip_prefix(MAGIC)?;
    match program.get(MACHINE_OFFSET..MACHINE_OFFSET + 2)? {
        [62, 0] => Some("amd64"),
        [183, 0] => Some("arm64"),
        [243, 0] => Some("riscv64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::machine_of;

    #[test]
    fn a_program_tells_its_machine() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        assert_eq!(machine_of(&own), Some(expected));
        assert_eq!(machine_of(b"#!/bin/sh\n"), None);
        assert_eq!(machine_of(b"\x7fELF\x02\x01"), None);
    }
}
