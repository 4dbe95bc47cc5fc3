//! Servers written as shell scripts: an ordinary one, of which a test replaces what it wants to be otherwise.

use std::fmt::Write as _;
use std::path::PathBuf;

use mcp::{McpServer, Transport};
use tempfile::TempDir;

use crate::scene::{program, server};

/// What a script does on each request. `answer` takes a result; `$id` is the request's.
pub(crate) struct Script {
    pub(crate) at_start: String,
    pub(crate) on_initialize: String,
    pub(crate) on_list: String,
    pub(crate) on_call: String,
    pub(crate) on_cancelled: String,
}

impl Default for Script {
    fn default() -> Self {
        let initialized = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
        Self {
            at_start: String::new(),
            on_initialize: format!("answer '{initialized}'"),
            on_list: list(&["echo"]),
            on_call: says("hello"),
            on_cancelled: String::new(),
        }
    }
}

/// The answer to a request for the list of tools.
pub(crate) fn list(names: &[&str]) -> String {
    let tools: Vec<_> = names
        .iter()
        .map(|name| format!(r#"{{"name":"{name}","description":"d","inputSchema":{{"type":"object"}}}}"#))
        .collect();
    format!(r#"answer '{{"tools":[{}]}}'"#, tools.join(","))
}

/// The answer to a call.
pub(crate) fn says(text: &str) -> String {
    format!(r#"answer '{{"content":[{{"type":"text","text":"{text}"}}]}}'"#)
}

/// A script in a folder, which goes with it.
pub(crate) struct Scripted {
    pub(crate) folder: TempDir,
}

impl Script {
    pub(crate) fn write(&self) -> Scripted {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "answer() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$1\"; }\n",
        );
        writeln!(text, "cd '{}'\n{}", folder.path().display(), self.at_start).unwrap();
        text.push_str("while read -r line; do\nid=${line#*\\\"id\\\":}; id=${id%%[,\\}]*}\ncase $line in\n");
        for (method, does) in [
            ("initialize", &self.on_initialize),
            ("tools/list", &self.on_list),
            ("tools/call", &self.on_call),
            ("notifications/cancelled", &self.on_cancelled),
        ] {
            writeln!(text, "*'\"method\":\"{method}\"'*)\n{does}\n;;").unwrap();
        }
        text.push_str("esac\ndone\n");
        std::fs::write(folder.path().join("server.sh"), text).unwrap();
        Scripted { folder }
    }
}

impl Scripted {
    pub(crate) fn server(&self, name: &str) -> McpServer {
        server(name, Transport::Host(program("sh", &[self.path("server.sh").to_str().unwrap()])))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
