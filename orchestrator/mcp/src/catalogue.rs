//! Unique names of the tools of all servers.
//!
//! A tool keeps its name if possible. Characters that model providers reject are replaced. A name
//! that the agent or an earlier server already uses is prefixed with the name of the server, and
//! numbered if that is used too. The same servers with the same tools get the same names, and a
//! tool keeps its name while the process runs.

use std::collections::{HashMap, HashSet};

use engine::llm::Tool;
use engine::tool_servers::ToolServerFailure;

use crate::search;
use crate::tool_list::ListedTool;

/// Maximum length of a name that model providers accept.
const MAX_NAME_LENGTH: usize = 64;

/// Maximum number of tools of all servers, and of the bytes of their definitions. They stay in
/// memory.
const MAX_TOOLS: usize = 1000;
const MAX_DEFINITION_BYTES: usize = 4 << 20;

/// Maximum number of names that are given. A server may list other tools each time.
const MAX_NAMES: usize = 10 * MAX_TOOLS;

/// The names that tools have been given. A tool keeps its name, and no other tool gets it: the
/// model and the user's approvals know a tool by its name only.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    taken: HashSet<String>,
    /// By server, which has a number and a name, and by name there.
    given: HashMap<(usize, String, String), String>,
}

impl ToolNames {
    /// Creates the names, without those of the agent's own tools.
    pub(crate) fn new(reserved: Vec<String>) -> Self {
        Self {
            taken: reserved.into_iter().collect(),
            given: HashMap::new(),
        }
    }

    /// `None` if too many names have been given.
    fn name_of(&mut self, number: usize, server: &str, tool: &str) -> Option<String> {
        let key = (number, server.to_owned(), tool.to_owned());
        if let Some(name) = self.given.get(&key) {
            return Some(name.clone());
        }
        if self.given.len() >= MAX_NAMES {
            return None;
        }
        let name = unique_name(server, tool, &self.taken);
        self.taken.insert(name.clone());
        self.given.insert(key, name.clone());
        Some(name)
    }
}

/// Tools of all servers, by unique name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    entries: Vec<CatalogueEntry>,
}

#[derive(Debug, PartialEq)]
struct CatalogueEntry {
    offered: Tool,
    server: usize,
    /// Its name at the server.
    name: String,
}

impl Catalogue {
    /// Creates a catalogue of the servers' tools, in the order of the configuration. Also returns
    /// which servers have too many.
    pub(crate) fn new(
        names: &mut ToolNames,
        lists: &[(&str, Vec<ListedTool>)],
    ) -> (Self, Vec<ToolServerFailure>) {
        let mut catalogue = Self::default();
        let mut failures = Vec::new();
        let mut bytes = 0;
        for (index, (server, tools)) in lists.iter().enumerate() {
            let before = catalogue.entries.len();
            for tool in tools {
                bytes +=
                    tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
                if catalogue.entries.len() == MAX_TOOLS || bytes > MAX_DEFINITION_BYTES {
                    break;
                }
                let Some(name) = names.name_of(index, server, &tool.name) else {
                    break;
                };
                let offered = Tool {
                    name,
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                };
                catalogue.entries.push(CatalogueEntry {
                    offered,
                    server: index,
                    name: tool.name.clone(),
                });
            }
            let offered = catalogue.entries.len() - before;
            if tools.len() > offered {
                let (all, server) = (tools.len(), (*server).to_owned());
                let reason = format!(
                    "it has {all} tools and {offered} of them are offered: all servers together may offer {MAX_TOOLS}, \
                     with definitions of at most {MAX_DEFINITION_BYTES} bytes"
                );
                failures.push(ToolServerFailure { server, reason });
            }
        }
        (catalogue, failures)
    }

    /// Returns the offered tools.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        self.entries
            .iter()
            .map(|entry| entry.offered.clone())
            .collect()
    }

    /// Searches for tools. Takes time in proportion to their definitions.
    pub(crate) fn search(&self, query: &str) -> String {
        search::search(&self.tools(), query)
    }

    /// Returns a tool, the index of the server that has it, and its name there.
    pub(crate) fn find(&self, offered: &str) -> Option<(&Tool, usize, &str)> {
        let entry = self
            .entries
            .iter()
            .find(|entry| entry.offered.name == offered)?;
        Some((&entry.offered, entry.server, &entry.name))
    }
}

fn unique_name(server: &str, tool: &str, taken: &HashSet<String>) -> String {
    let plain = valid(tool);
    if !taken.contains(&plain) {
        return plain;
    }
    let with_server = valid(&format!("{server}_{tool}"));
    let numbered = (2..).map(|number| {
        let number = format!("_{number}");
        let rest = with_server.len().min(MAX_NAME_LENGTH - number.len());
        // ASCII by now.
        format!("{}{number}", with_server.get(..rest).unwrap_or_default())
    });
    let free = std::iter::once(with_server.clone())
        .chain(numbered)
        .find(|name| !taken.contains(name));
    free.unwrap_or(with_server)
}

/// Replaces characters so that the name matches `^[a-zA-Z0-9_-]{1,64}$`.
fn valid(name: &str) -> String {
    let is_taken = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let valid: String = name
        .chars()
        .map(|letter| if is_taken(letter) { letter } else { '_' })
        .take(MAX_NAME_LENGTH)
        .collect();
    if valid.is_empty() {
        "tool".to_owned()
    } else {
        valid
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> ListedTool {
        ListedTool {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        }
    }

    fn names(catalogue: &Catalogue) -> Vec<String> {
        catalogue
            .tools()
            .into_iter()
            .map(|tool| tool.name)
            .collect()
    }

    #[test]
    fn tools_of_the_same_name_get_unique_names() {
        let lists = [
            ("git", vec![tool("status"), tool("log"), tool("think")]),
            (
                "svn",
                vec![
                    tool("status"),
                    tool("svn_status"),
                    tool("log"),
                    tool("svn/log"),
                ],
            ),
        ];
        let (catalogue, failures) =
            Catalogue::new(&mut ToolNames::new(vec!["think".to_owned()]), &lists);
        assert_eq!(
            names(&catalogue),
            [
                "status",
                "log",
                "git_think",
                "svn_status",
                "svn_svn_status",
                "svn_log",
                "svn_svn_log"
            ]
        );
        let found = |name: &str| catalogue.find(name).map(|(_, server, name)| (server, name));
        assert_eq!(found("svn_status"), Some((1, "status")));
        assert_eq!(found("git_think"), Some((0, "think")));
        assert_eq!(found("think"), None);
        assert_eq!(failures, []);
    }

    #[test]
    fn every_name_is_accepted_by_providers() {
        let long = "x".repeat(200);
        let longer = [1, 2].map(|count| format!("{long}{}", "y".repeat(count)));
        let wild = ["", "a/b c.d", "füße\u{0}", &long, &longer[0], &longer[1]];
        let lists = [("s\u{1f9e4}", wild.iter().map(|name| tool(name)).collect())];
        let (catalogue, _) = Catalogue::new(&mut ToolNames::default(), &lists);
        let names = names(&catalogue);
        assert_eq!(
            names.iter().collect::<HashSet<_>>().len(),
            wild.len(),
            "{names:?}"
        );
        for name in &names {
            assert!((1..=64).contains(&name.len()), "{name}");
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
                "{name}"
            );
        }
        assert_eq!(names[1], "a_b_c_d");
        assert_eq!(
            catalogue
                .find(&names[2])
                .map(|(_, server, name)| (server, name)),
            Some((0, "füße\u{0}"))
        );
    }

    #[test]
    fn too_many_tools_are_reported() {
        let many = |count: usize| {
            (0..count)
                .map(|index| tool(&format!("t{index}")))
                .collect::<Vec<_>>()
        };
        let (catalogue, failures) = Catalogue::new(
            &mut ToolNames::default(),
            &[("a", many(MAX_TOOLS - 10)), ("b", many(20))],
        );
        assert_eq!(catalogue.tools().len(), MAX_TOOLS);
        assert_eq!(failures.len(), 1);
        assert_eq!(
            (
                failures[0].server.as_str(),
                failures[0].reason.contains("20 tools and 10")
            ),
            ("b", true)
        );
    }

    #[test]
    fn definitions_are_bounded() {
        let wide = |name: &str| ListedTool {
            description: "d".repeat(MAX_DEFINITION_BYTES / 2),
            ..tool(name)
        };
        let (catalogue, failures) = Catalogue::new(
            &mut ToolNames::default(),
            &[("a", vec![wide("x"), wide("y")]), ("b", vec![tool("z")])],
        );
        assert_eq!(names(&catalogue), ["x"]);
        assert_eq!(failures.len(), 2);
    }

    #[test]
    fn name_of_a_tool_is_not_given_to_another() {
        let mut given = ToolNames::default();
        let mut catalogue = |lists: &[(&str, Vec<ListedTool>)]| Catalogue::new(&mut given, lists).0;
        assert_eq!(
            names(&catalogue(&[
                ("evil", vec![]),
                ("bank", vec![tool("status")])
            ])),
            ["status"]
        );
        let later = catalogue(&[
            ("evil", vec![tool("status")]),
            ("bank", vec![tool("status")]),
        ]);
        assert_eq!(names(&later), ["evil_status", "status"]);
        assert_eq!(later.find("status").map(|(_, server, _)| server), Some(1));
        assert_eq!(
            names(&catalogue(&[
                ("evil", vec![tool("status")]),
                ("bank", vec![])
            ])),
            ["evil_status"]
        );
    }
}
