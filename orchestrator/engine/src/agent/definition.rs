//! Definitions of agents: name, prompt and tools.

use super::tools::ToolName;

/// The definition of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDefinition {
    /// The name in the configuration and in the log.
    pub name: String,
    /// The system prompt.
    pub prompt: String,
    /// Its tools.
    pub tools: Vec<ToolName>,
    /// Tools without which it refuses to work. The others are omitted if the sandbox does not
    /// support them.
    pub required: Vec<ToolName>,
    /// The agents that it may delegate tasks to.
    pub delegates: Vec<DelegateAgent>,
}

/// An agent that tasks can be delegated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateAgent {
    /// Its name.
    pub name: String,
    /// Its purpose, for the delegating agent; may be empty.
    pub description: String,
}

/// The prompts that can be selected by the names of V0's files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prompt {
    /// For work without a user's attention.
    #[default]
    Unattended,
    /// For work with a user who replies.
    Interactive,
}

impl Prompt {
    /// Returns the prompt of V0's file of that name. The prompt for long-horizon work is the
    /// default one, because its additional section comes with the tool.
    pub fn by_v0_name(name: &str) -> Option<Self> {
        match name {
            "system_prompt.j2" | "system_prompt_long_horizon.j2" => Some(Self::Unattended),
            "system_prompt_interactive.j2" => Some(Self::Interactive),
            _ => None,
        }
    }
}

impl AgentDefinition {
    /// The name of V0's main agent.
    pub const CODE_ACT: &str = "CodeActAgent";

    /// The name of V0's read-only agent.
    pub const READ_ONLY: &str = "ReadOnlyAgent";

    /// The name of V0's browsing agent.
    pub const BROWSING: &str = "BrowsingAgent";

    /// The name of V0's visual browsing agent.
    pub const VISUAL_BROWSING: &str = "VisualBrowsingAgent";

    /// The name of V0's code localization agent.
    pub const LOC: &str = "LocAgent";

    /// The name of V0's scripted agent; see [`DummyAgent`](super::DummyAgent).
    pub const DUMMY: &str = "DummyAgent";

    /// Returns V0's main agent with these tools. Its prompt describes only them.
    pub fn code_act(prompt: Prompt, tools: Vec<ToolName>) -> Self {
        let of_tool = |tool, section| tools.contains(&tool).then_some(section);
        let sections = [
            Some(include_str!("prompt/code_act.md")),
            of_tool(
                ToolName::ExecuteBash,
                include_str!("prompt/execute_bash.md"),
            ),
            of_tool(
                ToolName::StrReplaceEditor,
                include_str!("prompt/str_replace_editor.md"),
            ),
            of_tool(ToolName::EditFile, include_str!("prompt/edit_file.md")),
            of_tool(
                ToolName::TaskTracker,
                include_str!("prompt/task_tracker.md"),
            ),
            (prompt == Prompt::Interactive).then_some(include_str!("prompt/interactive.md")),
        ];
        let prompt = assemble_prompt(sections, &tools);
        Self {
            name: Self::CODE_ACT.into(),
            prompt,
            tools,
            required: Vec::new(),
            delegates: Vec::new(),
        }
    }

    /// Returns V0's browsing agent, which has few other tools.
    pub fn browsing() -> Self {
        Self::browser_agent(Self::BROWSING, include_str!("prompt/browsing.md"))
    }

    /// Returns V0's visual browsing agent, which uses screenshots with marked elements.
    pub fn visual_browsing() -> Self {
        Self::browser_agent(
            Self::VISUAL_BROWSING,
            include_str!("prompt/visual_browsing.md"),
        )
    }

    fn browser_agent(name: &str, prompt: &'static str) -> Self {
        let tools = ToolName::BROWSING.to_vec();
        let prompt = assemble_prompt([Some(prompt)], &tools);
        let required = vec![ToolName::Browser];
        Self {
            name: name.into(),
            prompt,
            tools,
            required,
            delegates: Vec::new(),
        }
    }

    /// Returns V0's code localization agent.
    pub fn loc() -> Self {
        let tools = ToolName::LOCALIZING.to_vec();
        let prompt = assemble_prompt([Some(include_str!("prompt/loc.md"))], &tools);
        let required = vec![ToolName::SearchCodeSnippets];
        Self {
            name: Self::LOC.into(),
            prompt,
            tools,
            required,
            delegates: Vec::new(),
        }
    }

    /// Returns the definition of V0's scripted agent. It calls no model, so it has neither prompt
    /// nor tools.
    pub fn dummy() -> Self {
        let (prompt, tools) = (String::new(), Vec::new());
        Self {
            name: Self::DUMMY.into(),
            prompt,
            tools,
            required: Vec::new(),
            delegates: Vec::new(),
        }
    }

    /// Returns V0's read-only agent.
    pub fn read_only() -> Self {
        let tools = ToolName::READ_ONLY.to_vec();
        let prompt = assemble_prompt([Some(include_str!("prompt/read_only.md"))], &tools);
        Self {
            name: Self::READ_ONLY.into(),
            prompt,
            tools,
            required: Vec::new(),
            delegates: Vec::new(),
        }
    }
}

/// Joins the sections, and adds how to finish.
fn assemble_prompt(
    sections: impl IntoIterator<Item = Option<&'static str>>,
    tools: &[ToolName],
) -> String {
    let text: String = sections
        .into_iter()
        .flatten()
        .flat_map(|section| [section, "\n"])
        .collect();
    let finish = if tools.contains(&ToolName::Finish) {
        include_str!("prompt/finish.md")
    } else {
        ""
    };
    format!("{text}{}{finish}", include_str!("prompt/ending.md"))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_describes_only_available_tools() {
        let all = AgentDefinition::code_act(Prompt::Interactive, ToolName::ALL.to_vec()).prompt;
        for part in [
            "\n\nShell\n",
            "\n\nEditor\n",
            "\n\nPlanning\n",
            "\n\nAsking\n",
            "\n\nEnding\n",
            "`finish`",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        let none = AgentDefinition::code_act(Prompt::Unattended, Vec::new()).prompt;
        for tool in ToolName::ALL {
            assert!(!none.contains(&format!("`{}`", tool.name())), "{none}");
        }
        assert!(none.ends_with("in a message without a call."));
    }

    #[test]
    fn prompts_of_other_agents_mention_only_their_tools() {
        for definition in [
            AgentDefinition::read_only(),
            AgentDefinition::browsing(),
            AgentDefinition::visual_browsing(),
            AgentDefinition::loc(),
        ] {
            let AgentDefinition { prompt, tools, .. } = definition;
            for tool in ToolName::ALL.iter().filter(|tool| !tools.contains(tool)) {
                assert!(!prompt.contains(&format!("`{}`", tool.name())), "{prompt}");
            }
        }
    }
}
