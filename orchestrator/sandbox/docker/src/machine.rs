//! Comparison of the architectures of server binary and engine. Used after a failed start, because
//! engines report an unsupported binary in many ways, and in none that is typed.

use std::time::Duration;

use sandbox_client::ServerBinary;
use tokio::time::timeout;

use super::engine::Engine;

/// The error is due within a second after the start timeout.
const QUERY_TIMEOUT: Duration = Duration::from_millis(200);

const MAGIC: &[u8] = b"\x7fELF\x02\x01"; // 64 bits, little endian
const MACHINE_OFFSET: usize = 18;

/// Describes the mismatch if the engine's host cannot run the binary. `None` if it can, or if this
/// is unknown.
pub(super) async fn mismatch(engine: &Engine, server: &ServerBinary) -> Option<String> {
    let ours = machine_of(&server.bytes().await.ok()?)?;
    let theirs = timeout(QUERY_TIMEOUT, engine.docker.version())
        .await
        .ok()?
        .ok()?
        .arch?;
    (theirs != ours).then(|| {
        format!(
            "the action server is built for {ours}, but the engine's machine is {theirs}: use a matching pair"
        )
    })
}

/// Returns the architecture of an ELF file in the engine's notation.
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
    fn architecture_is_read_from_the_elf_header() {
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
