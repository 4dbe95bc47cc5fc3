//! What a server says, in a sentence of ours: one line, short, without the secrets that it was given.

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::Transport;

/// The longest text of a server's in a sentence of ours, in characters.
const LONGEST: usize = 2000;

/// Lines of its stderr that are told: why it failed stands at the end.
const LINES: usize = 5;

/// Shorter values are words like `true`; to take those out would only garble the text.
const SHORTEST_SECRET: usize = 8;

pub(crate) struct Words(Vec<SecretString>);

impl Words {
    pub(crate) fn of(transport: &Transport) -> Self {
        let secrets: Vec<SecretString> = match transport {
            Transport::Host(program) | Transport::Sandbox(program) => program.env.values().cloned().collect(),
            Transport::StreamableHttp(remote) | Transport::Sse(remote) => {
                // Some servers want their key in the address.
                let query = remote.url.query().map(SecretString::from);
                remote.api_key.iter().chain(remote.headers.values()).cloned().chain(query).collect()
            }
        };
        let is_long = |secret: &SecretString| secret.expose_secret().len() >= SHORTEST_SECRET;
        Self(secrets.into_iter().filter(is_long).collect())
    }

    /// The beginning of a text. Shortened last: half a secret must not stay at its end.
    pub(crate) fn short(&self, text: &str) -> String {
        let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for secret in &self.0 {
            line = line.replace(secret.expose_secret(), "[redacted]");
        }
        match line.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        }
    }

    /// The end of what it wrote to stderr, to be appended to a sentence; empty when that is nothing.
    pub(crate) fn said(&self, stderr: &str) -> String {
        let mut end: Vec<&str> =
            stderr.lines().rev().filter(|line| !line.trim().is_empty()).take(LINES).collect();
        end.reverse();
        if end.is_empty() { String::new() } else { format!("; it wrote: {}", self.short(&end.join(" | "))) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Program;

    #[test]
    fn a_server_is_quoted_in_one_line_without_its_secrets() {
        let env = BTreeMap::from([
            ("TOKEN".to_owned(), "hunter2-hunter2".into()),
            ("DEBUG".to_owned(), "1".into()),
        ]);
        let words = Words::of(&Transport::Host(Program { command: "x".into(), args: Vec::new(), env }));
        let stderr = "1\n2\n3\n\nhello 1\n  hunter2-hunter2\nbye\n";
        assert_eq!(words.said(stderr), "; it wrote: 2 | 3 | hello 1 | [redacted] | bye");
        assert_eq!(words.said(" \n"), "");
        assert_eq!(words.short(&"y".repeat(5000)).chars().count(), LONGEST + 1);
    }
}
