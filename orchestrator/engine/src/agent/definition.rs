//! What makes an agent this one: its name, its prompt, its tools. How it works is the same for all.

use super::tools::ToolName;

/// An agent as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDefinition {
    /// The name in configuration and in the log.
    pub name: String,
    /// What it is told first.
    pub prompt: String,
    /// What it may call.
    pub tools: Vec<ToolName>,
    /// Those of them that it does not work without; of the others it has what its sandbox can perform.
    pub required: Vec<ToolName>,
    /// Whom it may hand tasks on to.
    pub delegates: Vec<DelegateAgent>,
}

/// An agent that tasks can be handed on to, as the one that does is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateAgent {
    /// Its name.
    pub name: String,
    /// What it is for; may be empty.
    pub description: String,
}

/// Prompts that can be chosen by the names of V0's files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prompt {
    /// For work that nobody watches.
    #[default]
    Unattended,
    /// For work with somebody who answers.
    Interactive,
}

impl Prompt {
    /// The prompt that V0 has in a file of that name. The one for long work is the usual one: what is added to it there
    /// comes with the tool.
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

    /// The name of V0's agent that only looks.
    pub const READ_ONLY: &str = "ReadOnlyAgent";

    /// The name of V0's agent that has a browser and little else.
    pub const BROWSING: &str = "BrowsingAgent";

    /// The name of V0's agent that works in a browser by what it sees.
    pub const VISUAL_BROWSING: &str = "VisualBrowsingAgent";

    /// The name of V0's agent that finds the code that a task is about.
    pub const LOC: &str = "LocAgent";

    /// The name of V0's agent that plays a script; see [`DummyAgent`](super::DummyAgent).
    pub const DUMMY: &str = "DummyAgent";

    /// V0's main agent with these tools; its prompt speaks of what it has.
    pub fn code_act(prompt: Prompt, tools: Vec<ToolName>) -> Self {
        let of_tool = |tool, section| tools.contains(&tool).then_some(section);
        let sections = [
            Some(include_str!("prompt/code_act.md")),
            of_tool(ToolName::ExecuteBash, include_str!("prompt/execute_bash.md")),
            of_tool(ToolName::StrReplaceEditor, include_str!("prompt/str_replace_editor.md")),
            of_tool(ToolName::EditFile, include_str!("prompt/edit_file.md")),
            of_tool(ToolName::TaskTracker, include_str!("prompt/task_tracker.md")),
            (prompt == Prompt::Interactive).then_some(include_str!("prompt/interactive.md")),
        ];
        let prompt = joined(sections, &tools);
        Self { name: Self::CODE_ACT.into(), prompt, tools, required: Vec::new(), delegates: Vec::new() }
    }

    /// V0's agent that has a browser and little else.
    pub fn browsing() -> Self {
        Self::in_browser(Self::BROWSING, include_str!("prompt/browsing.md"))
    }

    /// V0's agent that works in a browser by what it sees: pictures on which the elements have marks.
    pub fn visual_browsing() -> Self {
        Self::in_browser(Self::VISUAL_BROWSING, include_str!("prompt/visual_browsing.md"))
    }

    fn in_browser(name: &str, prompt: &'static str) -> Self {
        let tools = ToolName::BROWSING.to_vec();
        let prompt = joined([Some(prompt)], &tools);
        let required = vec![ToolName::Browser];
        Self { name: name.into(), prompt, tools, required, delegates: Vec::new() }
    }

    /// V0's agent that finds the code that a task is about.
    pub fn loc() -> Self {
        let tools = ToolName::LOCALIZING.to_vec();
        let prompt = joined([Some(include_str!("prompt/loc.md"))], &tools);
        let required = vec![ToolName::SearchCodeSnippets];
        Self { name: Self::LOC.into(), prompt, tools, required, delegates: Vec::new() }
    }

    /// What configuration knows of V0's agent that plays a script: it asks no model, so it has neither prompt nor tools.
    pub fn dummy() -> Self {
        let (prompt, tools) = (String::new(), Vec::new());
        Self { name: Self::DUMMY.into(), prompt, tools, required: Vec::new(), delegates: Vec::new() }
    }

    /// V0's agent that only looks.
    pub fn read_only() -> Self {
        let tools = ToolName::READ_ONLY.to_vec();
        let prompt = joined([Some(include_str!("prompt/read_only.md"))], &tools);
        Self { name: Self::READ_ONLY.into(), prompt, tools, required: Vec::new(), delegates: Vec::new() }
    }
}

/// The sections, and how work ends.
fn joined(sections: impl IntoIterator<Item = Option<&'static str>>, tools: &[ToolName]) -> String {
    let text: String = sections.into_iter().flatten().flat_map(|section| [section, "\n"]).collect();
    let finish = if tools.contains(&ToolName::Finish) { include_str!("prompt/finish.md") } else { "" };
    format!("{text}{}{finish}", include_str!("prompt/ending.md")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_speaks_of_the_tools_that_there_are() {
        let all = AgentDefinition::code_act(Prompt::Interactive, ToolName::ALL.to_vec()).prompt;
        for part in
            ["\n\nShell\n", "\n\nEditor\n", "\n\nPlanning\n", "\n\nAsking\n", "\n\nEnding\n", "`finish`"]
        {
            assert!(all.contains(part), "{part} in {all}");
        }
        let none = AgentDefinition::code_act(Prompt::Unattended, Vec::new()).prompt;
        for tool in ToolName::ALL {
            assert!(!none.contains(&format!("`{}`", tool.name())), "{none}");
        }
        assert!(none.ends_with("in a message without a call."));
    }

    #[test]
    fn an_agent_with_few_tools_has_nothing_else_to_speak_of() {
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
