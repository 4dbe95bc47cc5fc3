//! Agent files: Markdown with `name`, `description`, `tools`, `model` and `delegates` in the front
//! matter. The body is the prompt.

use super::definition::AgentDefinition;
use super::tools::ToolName;
use crate::front_matter::{FrontMatterError, MarkdownDocument};

/// Maximum length of a file, in bytes.
pub const MAX_AGENT_FILE_BYTES: usize = 256 << 10;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;

const FIELDS: [&str; 5] = ["name", "description", "tools", "model", "delegates"];

/// The content of an agent file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFile {
    /// The agent. Without `tools` it has `default_tools`, without `name` it is named like the file.
    pub definition: AgentDefinition,
    /// Its purpose, for users and for agents that delegate to it.
    pub description: String,
    /// A model, or a model section of the configuration. `None` for the configured model.
    pub model: Option<String>,
    /// The names of the agents that it may delegate to. `None` for those of the configuration.
    pub delegates: Option<Vec<String>>,
}

/// The error of an invalid agent file. The user has to correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct AgentFileError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem, with the name of the field.
    pub problem: String,
}

impl AgentFile {
    /// Parses a file; `file` is its path.
    ///
    /// # Errors
    /// The first problem found. An unknown field is an error, because a misspelled `tools` would
    /// grant all tools.
    pub fn parse(
        file: &str,
        text: &str,
        default_tools: &[ToolName],
    ) -> Result<Self, AgentFileError> {
        read(file, text, default_tools).map_err(|FrontMatterError { line, problem }| {
            AgentFileError {
                file: file.to_owned(),
                line,
                problem,
            }
        })
    }
}

fn read(file: &str, text: &str, default_tools: &[ToolName]) -> Result<AgentFile, FrontMatterError> {
    if text.len() > MAX_AGENT_FILE_BYTES {
        return Err(FrontMatterError {
            line: 1,
            problem: format!("it is longer than {MAX_AGENT_FILE_BYTES} bytes"),
        });
    }
    let document = MarkdownDocument::parse(text)?;
    if document.body.len() == text.len()
        && text
            .lines()
            .next()
            .is_some_and(|line| line.trim_end() == "---")
    {
        // Not a prompt that starts with a horizontal rule: its agent would have every tool.
        return Err(FrontMatterError {
            line: 1,
            problem: "the front matter has no closing line `---`".to_owned(),
        });
    }
    if let Some(unknown) = document.names().find(|name| !FIELDS.contains(name)) {
        return Err(document.malformed(
            unknown,
            &format!("is not a field; the fields are {}", FIELDS.join(", ")),
        ));
    }
    let stem = file
        .rsplit('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".md");
    let name = document.text("name")?.unwrap_or(stem);
    let is_name =
        |character: char| character.is_alphanumeric() || matches!(character, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_name) {
        let problem = format!(
            "must be at most {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores"
        );
        return Err(document.malformed("name", &problem));
    }
    let (tools, required) = match named_tools(&document)? {
        // Tools that the file names are required.
        Some(named) => (named.clone(), named),
        None => (default_tools.to_vec(), Vec::new()),
    };
    let prompt = document.body.trim().to_owned();
    if prompt.is_empty() {
        let problem = "there is no prompt: write it below the front matter".to_owned();
        return Err(FrontMatterError {
            line: text.lines().count().max(1),
            problem,
        });
    }
    let has_delegates = document.names().any(|name| name == "delegates");
    Ok(AgentFile {
        definition: AgentDefinition {
            name: name.to_owned(),
            prompt,
            tools,
            required,
            delegates: Vec::new(),
        },
        description: document.text("description")?.unwrap_or_default().to_owned(),
        model: document.text("model")?.map(str::to_owned),
        delegates: has_delegates
            .then(|| document.texts("delegates"))
            .transpose()?,
    })
}

fn named_tools(document: &MarkdownDocument<'_>) -> Result<Option<Vec<ToolName>>, FrontMatterError> {
    if !document.names().any(|name| name == "tools") {
        return Ok(None);
    }
    let mut tools = Vec::new();
    for name in document.texts("tools")? {
        let Some(tool) = ToolName::find(&name) else {
            let known: Vec<_> = ToolName::ALL.iter().map(|tool| tool.name()).collect();
            let problem = format!(
                "has {name:?}, which is not a tool; the tools are {}",
                known.join(", ")
            );
            return Err(document.malformed("tools", &problem));
        };
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    Ok(Some(tools))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT_TOOLS: [ToolName; 2] = [ToolName::ExecuteBash, ToolName::Finish];

    fn parse(text: &str) -> Result<AgentFile, String> {
        AgentFile::parse("agents/reviewer.md", text, &DEFAULT_TOOLS)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn file_defines_name_tools_model_and_prompt() {
        let text = "---\nname: critic\ndescription: >\n  Finds\n  faults.\ntools: [view, grep, view]\nmodel: small\ndelegates: reader\n---\n\nBe strict.\n";
        let definition = AgentDefinition {
            name: "critic".into(),
            prompt: "Be strict.".into(),
            tools: vec![ToolName::View, ToolName::Grep],
            required: vec![ToolName::View, ToolName::Grep],
            delegates: Vec::new(),
        };
        let read = AgentFile {
            definition,
            description: "Finds faults.".into(),
            model: Some("small".into()),
            delegates: Some(vec!["reader".into()]),
        };
        assert_eq!(parse(text), Ok(read));
        let least = parse("Be kind.").unwrap();
        assert_eq!(
            (least.definition.name.as_str(), least.model, least.delegates),
            ("reviewer", None, None)
        );
        assert_eq!(
            (&least.definition.tools[..], &least.definition.required[..]),
            (&DEFAULT_TOOLS[..], &[][..])
        );
        assert_eq!(
            parse("---\ntools: []\n---\nTalk.")
                .unwrap()
                .definition
                .tools,
            []
        );
    }

    #[test]
    fn error_names_file_line_and_field() {
        for (text, error) in [
            (
                "---\nname: a b\n---\nx",
                "2: `name` must be at most 64 letters, digits, dots, dashes and underscores",
            ),
            (
                "---\n\ntools:\n- {a: 1}\n---\nx",
                "3: `tools` must be a list of texts",
            ),
            ("---\nmodel: [a]\n---\nx", "2: `model` must be a text"),
            (
                "---\ntool: view\n---\nx",
                "2: `tool` is not a field; the fields are name, description, tools, model, delegates",
            ),
            ("---\nname\n---\nx", "2: expected `name: value`"),
            (
                "---\nname: a\n---\n \n",
                "4: there is no prompt: write it below the front matter",
            ),
            (
                "---\ntools: [finish]\nSay hello.",
                "1: the front matter has no closing line `---`",
            ),
            ("", "1: there is no prompt: write it below the front matter"),
        ] {
            assert_eq!(
                parse(text).unwrap_err(),
                format!("agents/reviewer.md:{error}")
            );
        }
        let no_tool = parse("---\ntools: view, fly\n---\nx").unwrap_err();
        assert!(no_tool.starts_with(
            "agents/reviewer.md:2: `tools` has \"fly\", which is not a tool; the tools are execute_bash, "
        ));
        assert_eq!(
            parse(&"x".repeat(MAX_AGENT_FILE_BYTES + 1)).unwrap_err(),
            "agents/reviewer.md:1: it is longer than 262144 bytes"
        );
    }
}
