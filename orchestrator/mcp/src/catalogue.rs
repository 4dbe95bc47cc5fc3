//! Which tool of which server a name stands for.
//!
//! A tool keeps its own name where it can. What models' providers do not take is replaced; a name that the agent or a
//! server earlier in the configuration has gets its server's name before it, and a number after it where that is taken
//! too. So the same servers with the same tools always have the same names.

use std::collections::HashSet;

use engine::llm::Tool;
use engine::tool_servers::ToolServerFailure;

use crate::tool_list::ListedTool;

/// The longest name that models' providers take.
const LONGEST_NAME: usize = 64;

/// Tools of all servers together. Providers take 128, and the agent has its own.
const MOST_TOOLS: usize = 100;

/// All tools, by the names that they are offered under.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    entries: Vec<Entry>,
}

#[derive(Debug, PartialEq)]
struct Entry {
    offered: Tool,
    server: usize,
    /// What the server calls it.
    name: String,
}

impl Catalogue {
    /// Of the servers' lists in the order of the configuration, each with its server's name, and what did not fit.
    pub(crate) fn new(
        reserved: &[String],
        lists: &[(&str, Vec<ListedTool>)],
    ) -> (Self, Vec<ToolServerFailure>) {
        let mut taken: HashSet<String> = reserved.iter().cloned().collect();
        let mut catalogue = Self::default();
        let mut failures = Vec::new();
        for (index, (server, tools)) in lists.iter().enumerate() {
            let room = MOST_TOOLS.saturating_sub(catalogue.entries.len());
            for tool in tools.iter().take(room) {
                let name = name_apart(server, &tool.name, &taken);
                taken.insert(name.clone());
                let offered =
                    Tool { name, description: tool.description.clone(), parameters: tool.parameters.clone() };
                catalogue.entries.push(Entry { offered, server: index, name: tool.name.clone() });
            }
            if tools.len() > room {
                let (all, server) = (tools.len(), (*server).to_owned());
                let reason = format!(
                    "it has {all} tools and {room} of them are offered: all servers together may offer {MOST_TOOLS}"
                );
                failures.push(ToolServerFailure { server, reason });
            }
        }
        (catalogue, failures)
    }

    /// What is offered.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        self.entries.iter().map(|entry| entry.offered.clone()).collect()
    }

    /// The place of the server that has a tool of this name, and what it calls it.
    pub(crate) fn find(&self, offered: &str) -> Option<(usize, &str)> {
        let entry = self.entries.iter().find(|entry| entry.offered.name == offered)?;
        Some((entry.server, &entry.name))
    }
}

fn name_apart(server: &str, tool: &str, taken: &HashSet<String>) -> String {
    let plain = valid(tool);
    if !taken.contains(&plain) {
        return plain;
    }
    let with_server = valid(&format!("{server}_{tool}"));
    let numbered = (2..).map(|number| {
        let number = format!("_{number}");
        let rest = with_server.len().min(LONGEST_NAME - number.len());
        // ASCII by now.
        format!("{}{number}", with_server.get(..rest).unwrap_or_default())
    });
    let free = std::iter::once(with_server.clone()).chain(numbered).find(|name| !taken.contains(name));
    free.unwrap_or(with_server)
}

/// The name as `^[a-zA-Z0-9_-]{1,64}$`.
fn valid(name: &str) -> String {
    let is_taken = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let valid: String =
        name.chars().map(|letter| if is_taken(letter) { letter } else { '_' }).take(LONGEST_NAME).collect();
    if valid.is_empty() { "tool".to_owned() } else { valid }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> ListedTool {
        ListedTool { name: name.into(), description: String::new(), parameters: json!({"type": "object"}) }
    }

    fn names(catalogue: &Catalogue) -> Vec<String> {
        catalogue.tools().into_iter().map(|tool| tool.name).collect()
    }

    #[test]
    fn tools_of_one_name_are_told_apart() {
        let lists = [
            ("git", vec![tool("status"), tool("log"), tool("think")]),
            ("svn", vec![tool("status"), tool("svn_status"), tool("log"), tool("log")]),
        ];
        let (catalogue, failures) = Catalogue::new(&["think".to_owned()], &lists);
        assert_eq!(
            names(&catalogue),
            ["status", "log", "git_think", "svn_status", "svn_svn_status", "svn_log", "svn_log_2"]
        );
        assert_eq!(catalogue.find("svn_status"), Some((1, "status")));
        assert_eq!(catalogue.find("git_think"), Some((0, "think")));
        assert_eq!(catalogue.find("think"), None);
        assert_eq!(failures, []);
    }

    #[test]
    fn every_name_is_one_that_providers_take() {
        let long = "x".repeat(200);
        let wild = ["", "a/b c.d", "füße\u{0}", long.as_str(), long.as_str(), long.as_str()];
        let lists = [("s\u{1f9e4}", wild.iter().map(|name| tool(name)).collect())];
        let (catalogue, _) = Catalogue::new(&[], &lists);
        let names = names(&catalogue);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), wild.len(), "{names:?}");
        for name in &names {
            assert!((1..=64).contains(&name.len()), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{name}");
        }
        assert_eq!(names[1], "a_b_c_d");
        assert_eq!(catalogue.find(&names[2]), Some((0, "füße\u{0}")));
    }

    #[test]
    fn what_is_too_much_is_told() {
        let many = |count: usize| (0..count).map(|index| tool(&format!("t{index}"))).collect::<Vec<_>>();
        let (catalogue, failures) = Catalogue::new(&[], &[("a", many(90)), ("b", many(20))]);
        assert_eq!(catalogue.tools().len(), MOST_TOOLS);
        assert_eq!(failures.len(), 1);
        assert_eq!(
            (failures[0].server.as_str(), failures[0].reason.contains("20 tools and 10")),
            ("b", true)
        );
    }
}
