//! Quotes output of a server in our messages: one short line without the server's secrets.

use std::cmp::Reverse;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{McpServer, Transport};

/// Maximum length of a quote, in characters.
const MAX_CHARS: usize = 2000;

/// Number of quoted lines of stderr, from its end, where the cause of a failure is.
const STDERR_LINES: usize = 5;

/// Minimum length of a secret. Shorter values are words like `true`, and redacting them would
/// garble the text.
const MIN_SECRET_BYTES: usize = 8;

/// Quotes a server, and redacts the secrets of its configuration. Longer ones come first, because
/// they may contain shorter ones.
pub(crate) struct Quoter(Vec<SecretString>);

impl Quoter {
    pub(crate) fn new(server: &McpServer) -> Self {
        let query = match &server.transport {
            Transport::Host(_) | Transport::Sandbox(_) => None,
            // Some servers require their key in the URL.
            Transport::StreamableHttp(remote) | Transport::Sse(remote) => remote.url.query(),
        };
        let secrets = server
            .secrets()
            .into_iter()
            .cloned()
            .chain(query.map(SecretString::from));
        let is_long = |secret: &SecretString| secret.expose_secret().len() >= MIN_SECRET_BYTES;
        let mut secrets: Vec<SecretString> = secrets.filter(is_long).collect();
        secrets.sort_by_key(|secret| Reverse(secret.expose_secret().len()));
        Self(secrets)
    }

    /// Quotes the start of a text. Truncates last, so that no part of a secret remains at the end.
    pub(crate) fn line(&self, text: &str) -> String {
        let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in &self.0 {
            line = line.replace(secret.expose_secret(), "[redacted]");
        }
        match line.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        }
    }

    /// Quotes the end of stderr, to be appended to a message. Empty if there is none.
    pub(crate) fn stderr(&self, stderr: &str) -> String {
        let mut end: Vec<&str> = stderr
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .take(STDERR_LINES)
            .collect();
        end.reverse();
        if end.is_empty() {
            String::new()
        } else {
            format!("; it wrote: {}", self.line(&end.join(" | ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::Program;

    #[test]
    fn server_is_quoted_in_one_line_without_its_secrets() {
        let env = BTreeMap::from([
            ("TOKEN".to_owned(), "hunter2-hunter2".into()),
            ("DEBUG".to_owned(), "1".into()),
            ("WITH_TOKEN".to_owned(), "user:hunter2-hunter2@host".into()),
        ]);
        let quoter = Quoter::new(&McpServer {
            name: "s".into(),
            transport: Transport::Host(Program {
                command: "x".into(),
                args: Vec::new(),
                env,
            }),
            start_timeout: Duration::ZERO,
            call_timeout: Duration::ZERO,
        });
        let stderr = "1\n2\n3\n\nhello 1\n  hunter2-hunter2\nuser:hunter2-hunter2@host bye\n";
        assert_eq!(
            quoter.stderr(stderr),
            "; it wrote: 2 | 3 | hello 1 | [redacted] | [redacted] bye"
        );
        assert_eq!(quoter.stderr(" \n"), "");
        assert_eq!(
            quoter.line(&"y".repeat(5000)).chars().count(),
            MAX_CHARS + 1
        );
    }
}
