//! The file of the static action server, which the build script builds.
//!
//! A crate of its own, so that the build of the server holds up only the program, and not the
//! crates that use a server. A release build contains the file. A debug build reads it from the
//! target folder, so that another server in its place rebuilds nothing.

use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::sync::OnceLock;

/// The action server's file.
#[derive(Clone, Copy)]
pub struct EmbeddedServer {
    /// Content of the file.
    pub content: &'static [u8],
    /// Hash of the content.
    hash: u64,
}

impl EmbeddedServer {
    /// Returns the file. The first call takes milliseconds.
    ///
    /// # Errors
    /// The target folder of a debug build was removed.
    pub fn get() -> io::Result<Self> {
        static SERVER: OnceLock<EmbeddedServer> = OnceLock::new();
        if let Some(server) = SERVER.get() {
            return Ok(*server);
        }
        let content = content()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(content);
        Ok(*SERVER.get_or_init(|| Self {
            content,
            hash: hasher.finish(),
        }))
    }

    /// Returns a name for the file that no other version has.
    pub fn file_name(&self) -> String {
        format!("action-server-{:016x}", self.hash)
    }
}

#[cfg(is_embedded)]
fn content() -> io::Result<&'static [u8]> {
    Ok(include_bytes!(env!("ACTION_SERVER_FILE")))
}

#[cfg(not(is_embedded))]
fn content() -> io::Result<&'static [u8]> {
    const PATH: &str = env!("ACTION_SERVER_FILE");
    let content = std::fs::read(PATH).map_err(|source| {
        let text = format!("cannot read the action server {PATH}: {source}; build glovebox again");
        io::Error::new(source.kind(), text)
    })?;
    Ok(content.leak()) // once per process
}

#[cfg(test)]
mod tests {
    use super::EmbeddedServer;

    #[test]
    fn file_is_an_executable_with_one_name() {
        let server = EmbeddedServer::get().unwrap();
        assert!(server.content.starts_with(b"\x7fELF"));
        assert_eq!(
            server.file_name(),
            EmbeddedServer::get().unwrap().file_name()
        );
    }
}
