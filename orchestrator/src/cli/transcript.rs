//! A conversation as people read it, event by event.

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
use super::print;
use super::writing::Writing;

/// How much of an observation is shown that was not seen live, in lines.
const LINES_SHOWN: usize = 30;

/// How much of a line of such an observation is shown, in bytes.
const LONGEST_SHOWN: usize = 2000;

/// The longest line of a set-up's output that is held until it is known how it ends, in bytes.
const LONGEST_HELD: usize = 4096;

const GAP: &str = "  [output comes faster than it can be shown: from here on some is missing; the log has what the agent sees]\n";

/// How much of a tool's arguments is shown, in bytes.
const ARGUMENTS_SHOWN: usize = 1000;

/// Writes events as they come. Knows what of an action's output was shown live, to not show it twice.
pub(super) struct Transcript {
    palette: Palette,
    /// The action whose output is being shown live, and whether the line is open.
    live: Option<Live>,
    /// What is shown of the model's answer before its event comes.
    writing: Writing,
    /// Whose the latest text was: of which delegate action's agent, or the conversation's own.
    speaker: Option<EventId>,
    /// The agents that tasks were handed on to, by these actions.
    agents: BTreeMap<EventId, String>,
}

struct Live {
    action: EventId,
    /// Whose it is.
    agent: Option<EventId>,
    has_output: bool,
    is_line_open: bool,
    bounds: BoundedOutput,
    /// Some of it could not be shown, and that was said.
    has_gap: bool,
    /// The beginning of a character that was cut by a chunk's end.
    partial: Vec<u8>,
    /// Of a set-up, the line that has not ended: what draws its progress in one line is shown once, as it ends.
    held: Option<String>,
}

impl Live {
    fn of(event: &Event, held: Option<String>) -> Self {
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

    /// What is held back, the end of the line that is open, and what is said of output that was left out.
    fn end(&mut self) -> String {
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
        Self { palette, live: None, writing: Writing::default(), speaker: None, agents: BTreeMap::new() }
    }

    /// The text of an event; empty for those that people need not see.
    pub(super) fn event(&mut self, event: &Event) -> String {
        let text = match &event.body {
            EventBody::Action(action) => self.action(event, action),
            EventBody::Observation(observation) => self.observation(event, observation),
            EventBody::Record(record) => self.palette.paint(Part::Note, &record_text(record)),
        };
        self.forget_writing();
        self.headed(event.delegation, text)
    }

    /// An agent that a task was handed on to.
    pub(super) fn know_agent(&mut self, id: EventId, name: &str) {
        self.agents.insert(id, clean(name));
    }

    /// The text, and whose it is if that is another's than the text before.
    fn headed(&mut self, agent: Option<EventId>, text: String) -> String {
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

    /// The lines of the model's answer that have ended, while it is written.
    pub(super) fn written(&mut self, piece: &str) -> String {
        let is_new = self.writing.is_new();
        match print::for_terminal(self.writing.more(piece)) {
            lines if is_new && !lines.is_empty() => {
                format!("\n{}{}", self.label("agent: "), lines.trim_start_matches('\n'))
            }
            lines => lines,
        }
    }

    /// The answer begins anew.
    pub(super) fn forget_writing(&mut self) {
        self.writing = Writing::default();
    }

    fn label(&self, label: &str) -> String {
        self.palette.paint(Part::Speaker, label)
    }

    /// The first line of an action.
    fn head(&self, text: &str) -> String {
        self.palette.paint(Part::Action, &format!("\n{text}\n"))
    }

    /// What the agent says: all of it, or what was not shown while it was written.
    fn said(&self, label: &str, text: &str) -> String {
        match self.writing.rest_of(text).map(|rest| clean(rest.trim_start_matches('\n'))) {
            None => format!("\n{}{}\n", self.label(label), clean(text)),
            Some(rest) if rest.is_empty() => rest,
            Some(rest) => rest + "\n",
        }
    }

    /// The text of output that comes while an action is performed; nothing before the action itself was shown.
    pub(super) fn output(&mut self, action: EventId, bytes: &[u8]) -> String {
        let Some(live) = self.live.as_mut().filter(|live| live.action == action) else {
            return String::new();
        };
        live.partial.extend_from_slice(bytes);
        let mut text = take_whole_text(&mut live.partial);
        if let Some(held) = &mut live.held {
            held.push_str(&text);
            text = take_ended_lines(held);
        }
        let (agent, shown) = (live.agent, live.show(&text));
        self.headed(agent, shown)
    }

    /// Some of an action's output cannot be shown; without its id, of the one whose output is. That is said once, as often
    /// as it happens: a command that prints without end is behind all the time.
    pub(super) fn gap(&mut self, action: Option<EventId>) -> String {
        let is_meant = |live: &&mut Live| action.is_none_or(|action| live.action == action);
        let Some(live) = self.live.as_mut().filter(is_meant) else { return String::new() };
        if std::mem::replace(&mut live.has_gap, true) {
            return String::new();
        }
        live.partial.clear();
        // How much is left out is said at the end.
        if live.bounds.has_left_out() {
            return String::new();
        }
        let end = if std::mem::take(&mut live.is_line_open) { "\n" } else { "" };
        let (agent, text) = (live.agent, format!("{end}{GAP}"));
        self.headed(agent, text)
    }

    /// Shows the output of an action while it comes. Of several at once only one's: the others' stands with their
    /// observations.
    fn begin_live(&mut self, event: &Event, held: Option<String>) {
        if self.live.as_ref().is_none_or(|live| live.agent == event.delegation) {
            self.live = Some(Live::of(event, held));
        }
    }

    fn action(&mut self, event: &Event, action: &Action) -> String {
        let thought = thought_of(action).filter(|thought| !thought.trim().is_empty());
        let mut text = thought.map(|thought| self.said("", thought)).unwrap_or_default();
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
            (_, Action::Message(message)) => text.push_str(&self.said("agent: ", &message.content)),
            (EventSource::Environment, Action::Run(_)) => {
                self.begin_live(event, Some(String::new()));
            }
            (_, Action::Run(run)) => {
                self.begin_live(event, None);
                let sign = if run.is_input { ">" } else { "$" };
                text.push_str(&self.head(&format!("{sign} {}", clean(&run.command).replace('\n', "\n  "))));
            }
            (_, Action::RunIpython(cell)) => {
                self.begin_live(event, None);
                text.push_str(&self.head(&format!(">>> {}", clean(&cell.code).replace('\n', "\n... "))));
            }
            (_, Action::Read(read)) => text.push_str(&self.head(&format!("[read {}]", clean(&read.path)))),
            (_, Action::Write(write)) => {
                text.push_str(&self.head(&format!("[write {}]", clean(&write.path))));
            }
            (_, Action::Edit(edit)) => {
                let command = if edit.is_draft() { "edit" } else { edit.command.as_str() };
                text.push_str(&self.head(&format!("[{} {}]", clean(command), clean(&edit.path))));
            }
            (_, Action::Finish(finish)) => {
                text.push_str(&format!("\n{}{}\n", self.label("agent: "), clean(&finish.final_thought)));
            }
            (_, Action::Delegate(delegate)) => {
                self.know_agent(event.id, &delegate.agent);
                text.push_str(&self.head(&format!("[task {} for {}]", event.id, clean(&delegate.agent))));
            }
            (_, Action::CallToolMcp(call)) => {
                let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                let arguments = print::for_terminal(&shortened(&arguments, ARGUMENTS_SHOWN));
                text.push_str(&self.head(&format!("[{}] {arguments}", clean(&call.name))));
            }
            // The list is shown with the observation.
            (_, Action::TaskTracking(_)) => {}
            (_, Action::Think(_) | Action::System(_) | Action::ChangeAgentState(_) | Action::Recall(_)) => {}
            (_, other) => {
                text.push_str(&self.head(&format!("[{}] {}", other.kind(), clean(&other.message()))));
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
            ObservationKind::Recall(recall) => recalled(recall),
            ObservationKind::Run(run) => {
                let mut text = live.as_mut().map(Live::end).unwrap_or_default();
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
                let text = live.as_mut().map(Live::end).unwrap_or_default();
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
                format!("{}{}", self.head("[plan]"), excerpt(&list.join("\n")))
            }
            ObservationKind::Delegate(delegate) => {
                let task = event.cause.map(|id| id.to_string()).unwrap_or_default();
                match delegate.outputs.get("outcome").and_then(Value::as_str) {
                    // It was seen while it was said.
                    Some(outcome @ ("finished" | "rejected")) => format!("\n[task {task}: {outcome}]\n"),
                    _ => format!("\n[task {task}: {}]\n", clean(&observation.content)),
                }
            }
            // Nothing went wrong: the conversation goes on in another one.
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
        // Of a call that is made again people are told as it happens.
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

/// What the agent was told beside what the user said, by name.
fn recalled(recall: &RecallObservation) -> String {
    let instructions = (!recall.repo_instructions.is_empty()).then_some("the workspace's instructions");
    let knowledge = recall.microagent_knowledge.iter().map(|knowledge| knowledge.name.as_str());
    let told: Vec<_> = instructions.into_iter().chain(knowledge).collect();
    if told.is_empty() { String::new() } else { format!("[recalled: {}]\n", clean(&told.join(", "))) }
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

/// The first lines of a text, indented, and how many more there are.
fn excerpt(text: &str) -> String {
    let text = clean(text);
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = text.lines().map(beginning).collect();
    let mut shown = indent(&lines[..lines.len().min(LINES_SHOWN)].join("\n"), false);
    if lines.len() > LINES_SHOWN {
        shown.push_str(&format!("\n  … {} more lines", lines.len() - LINES_SHOWN));
    }
    shown + "\n"
}

/// As much of a line as is shown.
fn beginning(line: &str) -> Cow<'_, str> {
    shortened(line, LONGEST_SHOWN)
}

/// At most so many bytes of a text, and how many there are more.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.get(..text.floor_char_boundary(most)) {
        Some(shown) if shown.len() < text.len() => {
            format!("{shown} … {} more bytes", text.len() - shown.len()).into()
        }
        _ => text.into(),
    }
}

/// Two columns to the right; the first line too, unless it goes on where another was left open.
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

/// Takes the lines that have ended, each as a terminal shows it in the end: without what was overwritten. A line end may
/// be cut after its carriage return.
fn take_ended_lines(held: &mut String) -> String {
    let rest = held.split_off(held.rfind('\n').map_or(0, |end| end + 1));
    let ended = std::mem::replace(held, rest);
    let drawn_over = held.trim_end_matches('\r').rfind('\r').map_or(0, |at| at + 1);
    held.drain(..drawn_over);
    let mut lines = String::new();
    for line in ended.lines() {
        lines.push_str(line.rsplit('\r').next().unwrap_or_default());
        lines.push('\n');
    }
    if held.len() > LONGEST_HELD {
        lines.push_str(&std::mem::take(held));
    }
    lines
}

/// Takes what is whole UTF-8 from the front, what is not UTF-8 at all replaced; a cut character stays.
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
    fn output_that_was_shown_live_is_not_shown_again() {
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
    fn what_was_shown_while_it_was_written_is_not_shown_again() {
        let message = |content: &str| {
            let content = content.to_owned();
            event(1, None, Action::from(protocol::action::MessageAction { content, ..Default::default() }))
        };
        let mut transcript = Transcript::new();
        let shown = [
            transcript.written("One"),
            transcript.written(" line\nand\x1b[2J"),
            transcript.written(" another\nand"),
            transcript.event(&message("One line\nand\x1b[2J another\nand the end")),
            transcript.event(&message("Short.")),
        ];
        assert_eq!(shown.concat(), "\nagent: One line\nand another\nand the end\n\nagent: Short.\n");
        transcript.written("first try\n");
        transcript.forget_writing();
        assert_eq!(transcript.written("second\n"), "\nagent: second\n");
    }

    #[test]
    fn output_that_was_not_shown_live_is_shown_with_the_observation() {
        let mut transcript = Transcript::new();
        let shown = [transcript.event(&run()), transcript.event(&ran(0))];
        assert_eq!(shown.concat(), "\nbuild it\n\n$ make\n  a\n  b\n");
    }

    #[test]
    fn a_step_of_a_setup_is_shown_by_its_name_and_its_progress_once() {
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
        let mut long = "x".repeat(LONGEST_HELD + 1);
        assert_eq!(take_ended_lines(&mut long).len(), LONGEST_HELD + 1);
        assert_eq!(long, "");
    }

    #[test]
    fn output_that_is_missing_is_told_once_a_command() {
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
    fn a_cell_is_shown_without_where_it_ran() {
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
    fn output_before_its_action_is_left_to_the_observation() {
        let mut transcript = Transcript::new();
        assert_eq!(transcript.output(EventId(1), b"early"), "");
    }

    #[test]
    fn a_long_observation_is_cut_and_says_so() {
        let text = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert!(excerpt(&text).ends_with("  29\n  … 70 more lines\n"));
    }
}
