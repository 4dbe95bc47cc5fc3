//! Formats the events of a conversation for people.

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::conversation::SANDBOX_REPLACED;
use protocol::action::TrackedTask;
use protocol::observation::{RecallObservation, RunIpythonObservation};
use protocol::record::{Limit, LimitExtended};
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind, Record,
};
use serde_json::Value;

use super::bounded_output::BoundedOutput;
use super::palette::{Palette, Part};
use super::partial_answer::PartialAnswer;
use super::print;

/// Maximum number of shown lines of an observation whose output was not shown live.
const MAX_LINES: usize = 30;

/// Maximum number of shown bytes of a line of such an observation.
const MAX_LINE_BYTES: usize = 2000;

/// Maximum length of an incomplete line of a set-up's output that is held back until it is complete.
const MAX_HELD_BYTES: usize = 4096;

const GAP: &str = "  [output comes faster than it can be shown: from here on some is missing; the log has what the agent sees]\n";

/// Maximum number of shown bytes of a tool's arguments.
const MAX_ARGUMENT_BYTES: usize = 1000;

/// Formats events one by one. Records which output was shown live, so that it is not shown twice.
pub(super) struct Transcript {
    palette: Palette,
    /// The action whose output is shown live.
    live: Option<LiveOutput>,
    /// The model's answer until its event is received.
    partial_answer: PartialAnswer,
    /// The delegate action whose agent the latest text was from. `None`: the conversation's own agent.
    speaker: Option<EventId>,
    /// Names of the agents that tasks were delegated to, by the ids of the delegate actions.
    agents: BTreeMap<EventId, String>,
}

/// State of the live output of one action.
struct LiveOutput {
    action: EventId,
    /// The delegate action whose agent performs the action. `None`: the conversation's own agent.
    agent: Option<EventId>,
    has_output: bool,
    is_line_open: bool,
    bounds: BoundedOutput,
    /// A gap in the output was reported.
    has_gap: bool,
    /// The first bytes of a character that is split between two chunks.
    partial: Vec<u8>,
    /// The incomplete line of a set-up's output, so that a progress bar is shown once, in its last state. `None` for actions of
    /// agents.
    held: Option<String>,
}

impl LiveOutput {
    fn new(event: &Event, held: Option<String>) -> Self {
        let (action, agent) = (event.id, event.delegation);
        let (has_output, is_line_open, has_gap) = (false, false, false);
        let (bounds, partial) = (BoundedOutput::default(), Vec::new());
        Self { action, agent, has_output, is_line_open, bounds, has_gap, partial, held }
    }

    fn show(&mut self, text: &str) -> String {
        let text = print::for_terminal(text);
        self.has_output |= !text.is_empty();
        let text = self.bounds.push(&text);
        let shown = indent(&text, self.is_line_open);
        if !text.is_empty() {
            self.is_line_open = !text.ends_with('\n');
        }
        shown
    }

    /// Returns the held line, the end of an incomplete line, and a note on output that was left out.
    fn finish(&mut self) -> String {
        let mut text = self.held.take().map(|held| self.show(&held)).unwrap_or_default();
        if self.is_line_open {
            text.push('\n');
        }
        text + &indent(&self.bounds.end(), false)
    }
}

impl Transcript {
    pub(super) fn new() -> Self {
        Self::coloured(Palette::default())
    }

    pub(super) fn coloured(palette: Palette) -> Self {
        Self {
            palette,
            live: None,
            partial_answer: PartialAnswer::default(),
            speaker: None,
            agents: BTreeMap::new(),
        }
    }

    /// Returns the text of an event. Empty for an event that is not shown.
    pub(super) fn event(&mut self, event: &Event) -> String {
        let text = match &event.body {
            EventBody::Action(action) => self.action(event, action),
            EventBody::Observation(observation) => self.observation(event, observation),
            EventBody::Record(record) => self.palette.paint(Part::Note, &record_text(record)),
        };
        self.discard_partial_answer();
        self.with_heading(event.delegation, text)
    }

    /// Registers the agent that a task was delegated to.
    pub(super) fn register_agent(&mut self, id: EventId, name: &str) {
        self.agents.insert(id, clean(name));
    }

    /// Puts a heading before the text if it is from another agent than the text before.
    fn with_heading(&mut self, agent: Option<EventId>, text: String) -> String {
        if text.is_empty() || agent == self.speaker {
            return text;
        }
        self.speaker = agent;
        let speaker = match agent {
            Some(id) => format!("{} on task {id}", self.agents.get(&id).map_or("an agent", String::as_str)),
            None => "the agent".to_owned(),
        };
        let speaker = self.palette.paint(Part::Speaker, &format!("\n--- {speaker} ---"));
        format!("{speaker}{}{text}", if text.starts_with('\n') { "" } else { "\n" })
    }

    /// Returns the lines of the model's answer that a streamed piece completes.
    pub(super) fn push_answer(&mut self, piece: &str) -> String {
        let is_first = self.partial_answer.is_unshown();
        match print::for_terminal(self.partial_answer.push(piece)) {
            lines if is_first && !lines.is_empty() => {
                format!("\n{}{}", self.label("agent: "), lines.trim_start_matches('\n'))
            }
            lines => lines,
        }
    }

    /// Discards the partial answer, because the model call is retried.
    pub(super) fn discard_partial_answer(&mut self) {
        self.partial_answer = PartialAnswer::default();
    }

    fn label(&self, label: &str) -> String {
        self.palette.paint(Part::Speaker, label)
    }

    /// Formats the first line of an action.
    fn title(&self, text: &str) -> String {
        self.palette.paint(Part::Action, &format!("\n{text}\n"))
    }

    /// Formats a message of the agent: all of it, or what was not shown while it was streamed.
    fn message(&self, label: &str, text: &str) -> String {
        match self.partial_answer.remaining(text).map(|rest| clean(rest.trim_start_matches('\n'))) {
            None => format!("\n{}{}\n", self.label(label), clean(text)),
            Some(rest) if rest.is_empty() => rest,
            Some(rest) => rest + "\n",
        }
    }

    /// Formats output of a running action. Empty until the action itself was shown.
    pub(super) fn output(&mut self, action: EventId, bytes: &[u8]) -> String {
        let Some(live) = self.live.as_mut().filter(|live| live.action == action) else {
            return String::new();
        };
        live.partial.extend_from_slice(bytes);
        let mut text = take_whole_text(&mut live.partial);
        if let Some(held) = &mut live.held {
            held.push_str(&text);
            text = take_complete_lines(held);
        }
        let (agent, shown) = (live.agent, live.show(&text));
        self.with_heading(agent, shown)
    }

    /// Reports a gap in an action's output; without an id, in the output that is shown live. Reported once per action: a
    /// command that floods its output has gaps all the time.
    pub(super) fn gap(&mut self, action: Option<EventId>) -> String {
        let is_meant = |live: &&mut LiveOutput| action.is_none_or(|action| live.action == action);
        let Some(live) = self.live.as_mut().filter(is_meant) else { return String::new() };
        if std::mem::replace(&mut live.has_gap, true) {
            return String::new();
        }
        live.partial.clear();
        // The amount is reported at the end.
        if live.bounds.has_left_out() {
            return String::new();
        }
        let end = if std::mem::take(&mut live.is_line_open) { "\n" } else { "" };
        let (agent, text) = (live.agent, format!("{end}{GAP}"));
        self.with_heading(agent, text)
    }

    /// Starts to show an action's output live. Of several concurrent actions only one is shown live: the output of the others
    /// is shown with their observations.
    fn start_live(&mut self, event: &Event, held: Option<String>) {
        if self.live.as_ref().is_none_or(|live| live.agent == event.delegation) {
            self.live = Some(LiveOutput::new(event, held));
        }
    }

    fn action(&mut self, event: &Event, action: &Action) -> String {
        let thought = thought_of(action).filter(|thought| !thought.trim().is_empty());
        let mut text = thought.map(|thought| self.message("", thought)).unwrap_or_default();
        match (event.source, action) {
            (EventSource::User, Action::Message(message)) if event.delegation.is_some() => {
                text.push_str(&format!("\ntask:\n{}", excerpt(&message.content)));
            }
            (EventSource::User, Action::Message(message)) => {
                text.push_str(&format!("\n{}{}\n", self.label("user: "), clean(&message.content)));
                let pictures = message.image_urls.as_ref().map_or(0, Vec::len);
                if pictures > 0 {
                    text.push_str(&self.palette.paint(Part::Note, &format!("[{pictures} pictures]\n")));
                }
            }
            (_, Action::Message(message)) => text.push_str(&self.message("agent: ", &message.content)),
            (EventSource::Environment, Action::Run(_)) => {
                self.start_live(event, Some(String::new()));
            }
            (_, Action::Run(run)) => {
                self.start_live(event, None);
                let sign = if run.is_input { ">" } else { "$" };
                text.push_str(&self.title(&format!("{sign} {}", clean(&run.command).replace('\n', "\n  "))));
            }
            (_, Action::RunIpython(cell)) => {
                self.start_live(event, None);
                text.push_str(&self.title(&format!(">>> {}", clean(&cell.code).replace('\n', "\n... "))));
            }
            (_, Action::Read(read)) => text.push_str(&self.title(&format!("[read {}]", clean(&read.path)))),
            (_, Action::Write(write)) => {
                text.push_str(&self.title(&format!("[write {}]", clean(&write.path))));
            }
            (_, Action::Edit(edit)) => {
                let command = if edit.is_draft() { "edit" } else { edit.command.as_str() };
                text.push_str(&self.title(&format!("[{} {}]", clean(command), clean(&edit.path))));
            }
            (_, Action::Finish(finish)) => {
                text.push_str(&format!("\n{}{}\n", self.label("agent: "), clean(&finish.final_thought)));
            }
            (_, Action::Delegate(delegate)) => {
                self.register_agent(event.id, &delegate.agent);
                text.push_str(&self.title(&format!("[task {} for {}]", event.id, clean(&delegate.agent))));
            }
            (_, Action::CallToolMcp(call)) => {
                let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                let arguments = print::for_terminal(&shortened(&arguments, MAX_ARGUMENT_BYTES));
                text.push_str(&self.title(&format!("[{}] {arguments}", clean(&call.name))));
            }
            // The list is shown with the observation.
            (_, Action::TaskTracking(_)) => {}
            (_, Action::Think(_) | Action::System(_) | Action::ChangeAgentState(_) | Action::Recall(_)) => {}
            (_, other) => {
                text.push_str(&self.title(&format!("[{}] {}", other.kind(), clean(&other.message()))));
            }
        }
        text
    }

    fn observation(&mut self, event: &Event, observation: &Observation) -> String {
        let mut live = self.live.take_if(|live| Some(live.action) == event.cause);
        match &observation.kind {
            ObservationKind::AgentStateChanged(changed) => match changed.agent_state {
                AgentState::Error => {
                    self.palette.paint(Part::Failure, &format!("\nstopped: {}\n", clean(&changed.reason)))
                }
                _ => String::new(),
            },
            ObservationKind::Think(_) | ObservationKind::Null(_) => String::new(),
            ObservationKind::Recall(recall) => recall_text(recall),
            ObservationKind::Run(run) => {
                let mut text = live.as_mut().map(LiveOutput::finish).unwrap_or_default();
                if live.is_none_or(|live| !live.has_output) {
                    text = excerpt(&observation.content);
                }
                match run.metadata.exit_code {
                    0 => {}
                    -1 => text.push_str(&self.palette.paint(Part::Note, "  [still running]\n")),
                    code => {
                        text.push_str(&self.palette.paint(Part::Failure, &format!("  [exit code {code}]\n")));
                    }
                }
                text
            }
            ObservationKind::RunIpython(_) => {
                let text = live.as_mut().map(LiveOutput::finish).unwrap_or_default();
                let is_shown = live.is_some_and(|live| live.has_output);
                if is_shown {
                    text
                } else {
                    excerpt(RunIpythonObservation::without_kernel_info(&observation.content))
                }
            }
            ObservationKind::Edit(edit) => match &edit.diff {
                Some(diff) if !diff.is_empty() => excerpt(diff),
                _ => excerpt(&observation.content),
            },
            ObservationKind::TaskTracking(tracking) => {
                let task = |task: &TrackedTask| format!("[{}] {}", task.status, task.title);
                let list: Vec<_> = tracking.task_list.iter().map(task).collect();
                format!("{}{}", self.title("[plan]"), excerpt(&list.join("\n")))
            }
            ObservationKind::Delegate(delegate) => {
                let task = event.cause.map(|id| id.to_string()).unwrap_or_default();
                match delegate.outputs.get("outcome").and_then(Value::as_str) {
                    // Its message was already shown.
                    Some(outcome @ ("finished" | "rejected")) => format!("\n[task {task}: {outcome}]\n"),
                    _ => format!("\n[task {task}: {}]\n", clean(&observation.content)),
                }
            }
            // Not a failure: the conversation continues in another sandbox.
            ObservationKind::Error(error) if error.error_id == SANDBOX_REPLACED => {
                format!("[{}]\n", clean(&observation.content))
            }
            ObservationKind::Error(_) => {
                let text = excerpt(&format!("error: {}", observation.content));
                self.palette.paint(Part::Failure, &text)
            }
            _ => excerpt(&observation.content),
        }
    }
}

fn record_text(record: &Record) -> String {
    match record {
        Record::SandboxLeased(lease) => {
            format!("[sandbox {} ready, working in {}]\n", lease.sandbox_id, clean(&lease.working_dir))
        }
        Record::LimitExtended(LimitExtended { limit: Limit::Iterations, to }) => {
            format!("[limit of steps: {to}]\n")
        }
        Record::LimitExtended(LimitExtended { limit: Limit::Budget, to }) => format!("[budget: ${to:.4}]\n"),
        // A retried call is reported live.
        Record::ConversationStarted(_)
        | Record::SandboxReleased(_)
        | Record::LimitReached(_)
        | Record::ConfirmationChanged(_)
        | Record::ApprovalGranted(_)
        | Record::ConversationTitled(_)
        | Record::EditDrafted(_)
        | Record::ModelRetried(_) => String::new(),
    }
}

/// Lists the names of the knowledge that was added to the user's message.
fn recall_text(recall: &RecallObservation) -> String {
    let instructions = (!recall.repo_instructions.is_empty()).then_some("the workspace's instructions");
    let knowledge = recall.microagent_knowledge.iter().map(|knowledge| knowledge.name.as_str());
    let names: Vec<_> = instructions.into_iter().chain(knowledge).collect();
    if names.is_empty() { String::new() } else { format!("[recalled: {}]\n", clean(&names.join(", "))) }
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

fn clean(text: &str) -> String {
    print::for_terminal(text.trim_end())
}

/// Returns the first lines of a text, indented, and the number of further lines.
fn excerpt(text: &str) -> String {
    let text = clean(text);
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = text.lines().map(|line| shortened(line, MAX_LINE_BYTES)).collect();
    let mut shown = indent(&lines[..lines.len().min(MAX_LINES)].join("\n"), false);
    if lines.len() > MAX_LINES {
        shown.push_str(&format!("\n  … {} more lines", lines.len() - MAX_LINES));
    }
    shown + "\n"
}

/// Returns at most `max_bytes` of a text, and the number of further bytes.
fn shortened(text: &str, max_bytes: usize) -> Cow<'_, str> {
    match text.get(..text.floor_char_boundary(max_bytes)) {
        Some(shown) if shown.len() < text.len() => {
            format!("{shown} … {} more bytes", text.len() - shown.len()).into()
        }
        _ => text.into(),
    }
}

/// Indents each line by two columns, except the first if it continues an incomplete line.
fn indent(text: &str, is_line_open: bool) -> String {
    let mut shown = String::with_capacity(text.len() + 16);
    let mut at_line_start = !is_line_open;
    for character in text.chars() {
        if at_line_start && character != '\n' {
            shown.push_str("  ");
        }
        at_line_start = character == '\n';
        shown.push(character);
    }
    shown
}

/// Takes the complete lines, each without the text that a carriage return overwrote, as a terminal shows it. The last
/// carriage return may belong to a line end whose newline was not received yet.
fn take_complete_lines(held: &mut String) -> String {
    let rest = held.split_off(held.rfind('\n').map_or(0, |end| end + 1));
    let complete = std::mem::replace(held, rest);
    let overwritten = held.trim_end_matches('\r').rfind('\r').map_or(0, |at| at + 1);
    held.drain(..overwritten);
    let mut lines = String::new();
    for line in complete.lines() {
        lines.push_str(line.rsplit('\r').next().unwrap_or_default());
        lines.push('\n');
    }
    if held.len() > MAX_HELD_BYTES {
        lines.push_str(&std::mem::take(held));
    }
    lines
}

/// Takes the text before a character that is still incomplete, with invalid bytes replaced.
fn take_whole_text(bytes: &mut Vec<u8>) -> String {
    let cut = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let rest = bytes.split_off(cut);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use protocol::action::RunAction;
    use protocol::observation::{CommandMetadata, RunObservation};
    use protocol::{Event, Timestamp};

    use super::*;

    fn event(id: u64, cause: Option<u64>, body: impl Into<EventBody>) -> Event {
        let timestamp = Timestamp::try_from("2026-01-02T03:04:05".to_owned()).unwrap();
        let mut event = Event::new(EventId(id), timestamp, EventSource::Agent, body);
        event.cause = cause.map(EventId);
        event
    }

    fn run() -> Event {
        let action = RunAction { command: "make".into(), thought: "build it".into(), ..Default::default() };
        event(1, None, Action::from(action))
    }

    fn ran(exit_code: i64) -> Event {
        let metadata = CommandMetadata { exit_code, ..Default::default() };
        event(2, Some(1), Observation::new("a\nb", RunObservation { metadata, ..Default::default() }))
    }

    #[test]
    fn output_is_not_repeated_when_it_was_shown_live() {
        let mut transcript = Transcript::new();
        let shown = [
            transcript.event(&run()),
            transcript.output(EventId(1), b"a\n\xe2\x82"),
            transcript.output(EventId(1), b"\xac\x1b[2J"),
            transcript.event(&ran(2)),
        ];
        assert_eq!(shown.concat(), "\nbuild it\n\n$ make\n  a\n  €\n  [exit code 2]\n");
    }

    #[test]
    fn message_is_not_repeated_when_it_was_streamed() {
        let message = |content: &str| {
            let content = content.to_owned();
            event(1, None, Action::from(protocol::action::MessageAction { content, ..Default::default() }))
        };
        let mut transcript = Transcript::new();
        let shown = [
            transcript.push_answer("One"),
            transcript.push_answer(" line\nand\x1b[2J"),
            transcript.push_answer(" another\nand"),
            transcript.event(&message("One line\nand\x1b[2J another\nand the end")),
            transcript.event(&message("Short.")),
        ];
        assert_eq!(shown.concat(), "\nagent: One line\nand another\nand the end\n\nagent: Short.\n");
        transcript.push_answer("first try\n");
        transcript.discard_partial_answer();
        assert_eq!(transcript.push_answer("second\n"), "\nagent: second\n");
    }

    #[test]
    fn output_is_in_the_observation_when_it_was_not_live() {
        let mut transcript = Transcript::new();
        let shown = [transcript.event(&run()), transcript.event(&ran(0))];
        assert_eq!(shown.concat(), "\nbuild it\n\n$ make\n  a\n  b\n");
    }

    #[test]
    fn setup_step_is_shown_by_name_and_its_progress_once() {
        let mut transcript = Transcript::new();
        let mut step = run();
        step.source = EventSource::Environment;
        let shown = [
            transcript.event(&step),
            transcript.output(EventId(1), b"10%\r50%\r"),
            transcript.output(EventId(1), b"100%, done.\r"),
            transcript.output(EventId(1), b"\nlast"),
            transcript.event(&ran(1)),
        ];
        assert_eq!(shown.concat(), "\nbuild it\n  100%, done.\n  last\n  [exit code 1]\n");
        let mut long = "x".repeat(MAX_HELD_BYTES + 1);
        assert_eq!(take_complete_lines(&mut long).len(), MAX_HELD_BYTES + 1);
        assert_eq!(long, "");
    }

    #[test]
    fn gap_in_the_output_is_reported_once_per_command() {
        let mut transcript = Transcript::new();
        assert_eq!(transcript.gap(None), "", "nothing is being shown");
        for _ in 0..2 {
            transcript.event(&run());
            let shown = [
                transcript.output(EventId(1), b"one\xe2"),
                transcript.gap(Some(EventId(7))),
                transcript.gap(None),
                transcript.output(EventId(1), b"two\n"),
                transcript.gap(Some(EventId(1))),
                transcript.gap(None),
                transcript.event(&ran(0)),
            ];
            assert_eq!(shown.concat(), format!("  one\n{GAP}  two\n"));
        }
    }

    #[test]
    fn cell_output_is_shown_without_kernel_info() {
        let mut transcript = Transcript::new();
        let mut shown = |content: &str| {
            let place = "\n[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /p]";
            let kind = RunIpythonObservation::default();
            transcript.event(&event(2, Some(1), Observation::new(format!("{content}{place}"), kind)))
        };
        assert_eq!(shown("42"), "  42\n");
        assert_eq!(shown(""), "");
    }

    #[test]
    fn output_is_not_shown_live_before_its_action() {
        let mut transcript = Transcript::new();
        assert_eq!(transcript.output(EventId(1), b"early"), "");
    }

    #[test]
    fn long_observation_is_truncated_with_a_line_count() {
        let text = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert!(excerpt(&text).ends_with("  29\n  … 70 more lines\n"));
    }
}
