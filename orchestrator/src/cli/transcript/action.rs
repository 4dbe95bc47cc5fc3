//! Formats actions.

use engine::llm::Tool;
use protocol::action::SystemAction;
use protocol::{Action, Event, EventSource};

use super::Transcript;
use super::excerpt::{clean, excerpt, shorten};
use crate::cli::palette::TextKind;
use crate::cli::print;

/// Maximum number of shown bytes of a tool's arguments.
const MAX_ARGUMENT_BYTES: usize = 1000;

/// Maximum number of shown bytes of the names of tools.
const MAX_NAMES_BYTES: usize = 200;

impl Transcript {
    pub(super) fn format_action(&mut self, event: &Event, action: &Action) -> String {
        let thought = thought_of(action).filter(|thought| !thought.trim().is_empty());
        let thought = thought
            .map(|thought| self.message("", thought))
            .unwrap_or_default();
        thought + &self.format_without_thought(event, action)
    }

    fn format_without_thought(&mut self, event: &Event, action: &Action) -> String {
        match (event.source, action) {
            (EventSource::User, Action::Message(message)) if event.delegation.is_some() => {
                format!("\ntask:\n{}", excerpt(&message.content))
            }
            (EventSource::User, Action::Message(message)) => {
                let note = match message.image_urls.as_ref().map_or(0, Vec::len) {
                    0 => String::new(),
                    1 => self.palette.paint(TextKind::Note, "[1 picture]\n"),
                    count => self
                        .palette
                        .paint(TextKind::Note, &format!("[{count} pictures]\n")),
                };
                format!(
                    "\n{}{}\n{note}",
                    self.label("user: "),
                    clean(&message.content)
                )
            }
            (_, Action::Message(message)) => self.message("agent: ", &message.content),
            (EventSource::Environment, Action::Run(_)) => {
                self.start_live(event, true);
                String::new()
            }
            (_, Action::Run(run)) => {
                self.start_live(event, false);
                let prompt = if run.is_input { ">" } else { "$" };
                self.title(&format!(
                    "{prompt} {}",
                    clean(&run.command).replace('\n', "\n  ")
                ))
            }
            (_, Action::RunIpython(cell)) => {
                self.start_live(event, false);
                self.title(&format!(
                    ">>> {}",
                    clean(&cell.code).replace('\n', "\n... ")
                ))
            }
            (_, Action::Read(read)) => self.title(&format!("[read {}]", clean(&read.path))),
            (_, Action::Write(write)) => self.title(&format!("[write {}]", clean(&write.path))),
            (_, Action::Edit(edit)) => {
                let command = if edit.is_draft() {
                    "edit"
                } else {
                    edit.command.as_str()
                };
                self.title(&format!("[{} {}]", clean(command), clean(&edit.path)))
            }
            (_, Action::Finish(finish)) => {
                format!(
                    "\n{}{}\n",
                    self.label("agent: "),
                    clean(&finish.final_thought)
                )
            }
            (_, Action::Delegate(delegate)) => {
                self.register_agent(event.id, &delegate.agent);
                self.title(&format!(
                    "[task {} for {}]",
                    event.id,
                    clean(&delegate.agent)
                ))
            }
            (_, Action::CallToolMcp(call)) => {
                let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                let arguments = print::for_terminal(&shorten(&arguments, MAX_ARGUMENT_BYTES));
                self.title(&format!("[{}] {arguments}", clean(&call.name)))
            }
            // The list is shown with the observation.
            (_, Action::TaskTracking(_)) => String::new(),
            (EventSource::Environment, Action::System(system)) => self.offered_tools(system),
            (
                _,
                Action::Think(_)
                | Action::System(_)
                | Action::ChangeAgentState(_)
                | Action::Recall(_),
            ) => String::new(),
            (_, other) => self.title(&format!("[{}] {}", other.kind(), clean(&other.message()))),
        }
    }

    /// Formats the tools that the model gets in addition to the agent's own.
    fn offered_tools(&self, system: &SystemAction) -> String {
        let tools: Vec<Tool> = Tool::all_from_stored(system).collect();
        let names = tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let names = print::for_terminal(&shorten(&names, MAX_NAMES_BYTES));
        let tokens = Tool::estimated_tokens(&tools);
        match names.as_str() {
            "" => String::new(),
            _ => {
                let text =
                    format!("[further tools: {names}; about {tokens} tokens of each request]\n");
                self.palette.paint(TextKind::Note, &text)
            }
        }
    }
}

fn thought_of(action: &Action) -> Option<&str> {
    match action {
        Action::Run(action) => Some(&action.thought),
        Action::RunIpython(action) => Some(&action.thought),
        Action::Read(action) => Some(&action.thought),
        Action::Write(action) => Some(&action.thought),
        Action::Edit(action) => Some(&action.thought),
        Action::Think(action) => Some(&action.thought),
        Action::Finish(action) => Some(&action.thought),
        Action::Delegate(action) => Some(&action.thought),
        _ => None,
    }
}
