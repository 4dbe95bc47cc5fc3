//! Servers written as shell scripts. A test replaces parts of a correct one.

use std::fmt::Write as _;
use std::path::PathBuf;

use mcp::{McpServer, Transport};
use tempfile::TempDir;

use crate::fixture::{program, server};

/// The reaction of a script to each request. `answer` sends a result, and `$id` is the id of the
/// request.
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
            on_call: text_result("hello"),
            on_cancelled: String::new(),
        }
    }
}

/// A response with the list of tools.
pub(crate) fn list(names: &[&str]) -> String {
    let tools: Vec<_> = names
        .iter()
        .map(|name| {
            format!(r#"{{"name":"{name}","description":"d","inputSchema":{{"type":"object"}}}}"#)
        })
        .collect();
    format!(r#"answer '{{"tools":[{}]}}'"#, tools.join(","))
}

/// A response to a call.
pub(crate) fn text_result(text: &str) -> String {
    format!(r#"answer '{{"content":[{{"type":"text","text":"{text}"}}]}}'"#)
}

/// A script in a temporary folder.
pub(crate) struct ScriptServer {
    pub(crate) folder: TempDir,
}

impl Script {
    pub(crate) fn write(&self) -> ScriptServer {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "answer() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$1\"; }\n",
        );
        writeln!(text, "cd '{}'\n{}", folder.path().display(), self.at_start).unwrap();
        text.push_str(
            "while read -r line; do\nid=${line#*\\\"id\\\":}; id=${id%%[,\\}]*}\ncase $line in\n",
        );
        for (method, reaction) in [
            ("initialize", &self.on_initialize),
            ("tools/list", &self.on_list),
            ("tools/call", &self.on_call),
            ("notifications/cancelled", &self.on_cancelled),
        ] {
            writeln!(text, "*'\"method\":\"{method}\"'*)\n{reaction}\n;;").unwrap();
        }
        text.push_str("esac\ndone\n");
        std::fs::write(folder.path().join("server.sh"), text).unwrap();
        ScriptServer { folder }
    }
}

impl ScriptServer {
    pub(crate) fn server(&self, name: &str) -> McpServer {
        server(
            name,
            Transport::Host(program("sh", &[self.path("server.sh").to_str().unwrap()])),
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
