//! Formats the events of a conversation for people.

mod action;
mod excerpt;
mod live_output;
mod observation;

use std::collections::BTreeMap;

use protocol::record::{Limit, LimitExtended};
use protocol::{Event, EventBody, EventId, Record};

use super::palette::{Palette, TextKind};
use super::partial_answer::PartialAnswer;
use super::print;
use excerpt::clean;
use live_output::LiveOutput;

/// Formats events one by one. Output that was shown live is not repeated.
pub(super) struct Transcript {
    palette: Palette,
    /// The action whose output is shown live.
    live: Option<LiveOutput>,
    /// The model's answer until its event is received.
    partial_answer: PartialAnswer,
    /// The delegate action whose agent the latest text was from. `None` for the conversation's own
    /// agent.
    speaker: Option<EventId>,
    /// Names of the agents that tasks were delegated to, by the ids of the delegate actions.
    agents: BTreeMap<EventId, String>,
    /// Whether the text of each event starts with its id.
    shows_ids: bool,
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
            shows_ids: false,
        }
    }

    /// Shows the id of each event, for `conversations fork --at`.
    pub(super) fn with_ids(self) -> Self {
        Self {
            shows_ids: true,
            ..self
        }
    }

    /// Returns the text of an event. Empty for an event that is not shown.
    pub(super) fn format_event(&mut self, event: &Event) -> String {
        let text = match &event.body {
            EventBody::Action(action) => self.format_action(event, action),
            EventBody::Observation(observation) => self.format_observation(event, observation),
            EventBody::Record(record) => self.palette.paint(TextKind::Note, &record_text(record)),
        };
        let end = self.discard_partial_answer();
        let text = if text.starts_with('\n') {
            text
        } else {
            format!("{end}{text}")
        };
        let text = if self.shows_ids {
            self.with_id(event.id, &text)
        } else {
            text
        };
        self.with_heading(event.delegation, text)
    }

    /// Puts the id of an event before its text: on a line of its own if the text is indented, which
    /// it keeps aligned.
    fn with_id(&self, id: EventId, text: &str) -> String {
        let shown = text.trim_start_matches('\n');
        if shown.is_empty() {
            return text.to_owned();
        }
        let lead = &text[..text.len() - shown.len()];
        let separator = if shown.starts_with(' ') { '\n' } else { ' ' };
        format!(
            "{lead}{}{separator}{shown}",
            self.palette.paint(TextKind::Note, &format!("#{id}"))
        )
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
            Some(id) => format!(
                "{} on task {id}",
                self.agents.get(&id).map_or("an agent", String::as_str)
            ),
            None => "the agent".to_owned(),
        };
        let speaker = self
            .palette
            .paint(TextKind::Speaker, &format!("\n--- {speaker} ---"));
        format!(
            "{speaker}{}{text}",
            if text.starts_with('\n') { "" } else { "\n" }
        )
    }

    /// Returns the words of the model's answer that a streamed piece completes.
    pub(super) fn push_answer(&mut self, piece: &str) -> String {
        let is_first = self.partial_answer.is_unshown();
        match print::for_terminal(self.partial_answer.push(piece)) {
            words if is_first && !words.is_empty() => format!("\n{}{words}", self.label("agent: ")),
            words => words,
        }
    }

    /// Discards the partial answer, as when the model call is retried. Returns the end of its line.
    pub(super) fn discard_partial_answer(&mut self) -> &'static str {
        std::mem::take(&mut self.partial_answer).end_line()
    }

    fn label(&self, label: &str) -> String {
        self.palette.paint(TextKind::Speaker, label)
    }

    /// Formats the first line of an action.
    fn title(&self, text: &str) -> String {
        self.palette.paint(TextKind::Action, &format!("\n{text}\n"))
    }

    /// Formats a message of the agent: all of it, or what was not shown while it was streamed.
    fn message(&mut self, label: &str, text: &str) -> String {
        match std::mem::take(&mut self.partial_answer).finish(text) {
            None => format!("\n{}{}\n", self.label(label), clean(text)),
            Some(rest) => print::for_terminal(&rest),
        }
    }

    /// Formats output of a running action. Empty until the action itself was shown.
    pub(super) fn format_output(&mut self, action: EventId, text: &str) -> String {
        let Some(live) = self.live.as_mut().filter(|live| live.action == action) else {
            return String::new();
        };
        let (agent, text) = (live.agent, live.push(text));
        let end = if text.is_empty() {
            ""
        } else {
            self.partial_answer.end_line()
        };
        self.with_heading(agent, format!("{end}{text}"))
    }

    /// Formats a gap in an action's output. `None` for the output that is shown live.
    pub(super) fn format_gap(&mut self, action: Option<EventId>) -> String {
        let is_match = |live: &&mut LiveOutput| action.is_none_or(|action| live.action == action);
        let Some(live) = self.live.as_mut().filter(is_match) else {
            return String::new();
        };
        let (agent, text) = (live.agent, live.report_gap());
        self.with_heading(agent, text)
    }

    /// Starts to show an action's output live. Of several concurrent actions only one is shown
    /// live: the output of the others is shown with their observations.
    fn start_live(&mut self, event: &Event, holds_lines: bool) {
        if self
            .live
            .as_ref()
            .is_none_or(|live| live.agent == event.delegation)
        {
            self.live = Some(LiveOutput::new(event, holds_lines));
        }
    }
}

fn record_text(record: &Record) -> String {
    match record {
        Record::SandboxLeased(lease) => {
            format!(
                "[sandbox {} ready, working in {}]\n",
                lease.sandbox_id,
                clean(&lease.working_dir)
            )
        }
        Record::LimitExtended(LimitExtended {
            limit: Limit::Iterations,
            to,
        }) => {
            format!("[limit of steps: {to}]\n")
        }
        Record::LimitExtended(LimitExtended {
            limit: Limit::Budget,
            to,
        }) => format!("[budget: ${to:.4}]\n"),
        Record::ModelChanged(changed) => format!("[model: {}]\n", changed.model),
        // A retried call is reported live.
        Record::ConversationStarted(_)
        | Record::SandboxReleased(_)
        | Record::LimitReached(_)
        | Record::ConfirmationChanged(_)
        | Record::ApprovalGranted(_)
        | Record::ConversationTitled(_)
        | Record::FeedbackGiven(_)
        | Record::EditDrafted(_)
        | Record::ModelRetried(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::action::RunAction;
    use protocol::observation::{
        CommandMetadata, NOT_EXECUTED_NOTICE, RunIpythonObservation, RunObservation,
    };
    use protocol::{Action, EventSource, Observation, Timestamp};

    use super::*;

    fn event(id: u64, cause: Option<u64>, body: impl Into<EventBody>) -> Event {
        let timestamp = Timestamp::try_from("2026-01-02T03:04:05".to_owned()).unwrap();
        let mut event = Event::new(EventId(id), timestamp, EventSource::Agent, body);
        event.cause = cause.map(EventId);
        event
    }

    fn run() -> Event {
        let action = RunAction {
            command: "make".into(),
            thought: "build it".into(),
            ..Default::default()
        };
        event(1, None, Action::from(action))
    }

    fn ran(exit_code: i64) -> Event {
        let metadata = CommandMetadata {
            exit_code,
            ..Default::default()
        };
        event(
            2,
            Some(1),
            Observation::new(
                "a\nb",
                RunObservation {
                    metadata,
                    ..Default::default()
                },
            ),
        )
    }

    #[test]
    fn output_is_not_repeated_when_it_was_shown_live() {
        let mut transcript = Transcript::new();
        let shown = [
            transcript.format_event(&run()),
            transcript.format_output(EventId(1), "a\n"),
            transcript.format_output(EventId(1), "€\x1b[2J"),
            transcript.format_event(&ran(2)),
        ];
        assert_eq!(
            shown.concat(),
            "\nbuild it\n\n$ make\n  a\n  €\n  [exit code 2]\n"
        );
    }

    #[test]
    fn message_is_not_repeated_when_it_was_streamed() {
        let message = |content: &str| {
            let content = content.to_owned();
            event(
                1,
                None,
                Action::from(protocol::action::MessageAction {
                    content,
                    ..Default::default()
                }),
            )
        };
        let mut transcript = Transcript::new();
        let shown = [
            transcript.push_answer("One"),
            transcript.push_answer(" line\nand\x1b[2J"),
            transcript.push_answer(" another\nand"),
            transcript.format_event(&message("One line\nand\x1b[2J another\nand the end")),
            transcript.format_event(&message("Short.")),
        ];
        assert_eq!(shown[1], "\nagent: One line\n");
        assert_eq!(
            shown.concat(),
            "\nagent: One line\nand another\nand the end\n\nagent: Short.\n"
        );
        transcript.push_answer("first try");
        assert_eq!(transcript.discard_partial_answer(), "\n");
        assert_eq!(transcript.push_answer("second\n"), "\nagent: second\n");
        let shown = [
            transcript.push_answer("and a"),
            transcript.format_event(&ran(1)),
        ];
        assert_eq!(shown.concat(), "and \n  a\n  b\n  [exit code 1]\n");
    }

    #[test]
    fn output_is_in_the_observation_when_it_was_not_live() {
        let mut transcript = Transcript::new();
        let shown = [
            transcript.format_event(&run()),
            transcript.format_event(&ran(0)),
        ];
        assert_eq!(shown.concat(), "\nbuild it\n\n$ make\n  a\n  b\n");
    }

    #[test]
    fn command_that_was_not_executed_is_not_shown_as_running() {
        let not_executed = format!("{NOT_EXECUTED_NOTICE}make\" is NOT executed.");
        for (suffix, note) in [
            ("\n[The command has no new output.]", "still running"),
            (
                &not_executed,
                "not executed: the previous command is still running",
            ),
        ] {
            let metadata = CommandMetadata {
                suffix: suffix.to_owned(),
                ..Default::default()
            };
            let run = RunObservation {
                metadata,
                ..Default::default()
            };
            let shown =
                Transcript::new().format_event(&event(2, Some(1), Observation::new("", run)));
            assert_eq!(shown, format!("  [{note}]\n"));
        }
    }

    #[test]
    fn id_precedes_the_text_of_each_shown_event() {
        let mut transcript = Transcript::new().with_ids();
        let hidden = event(
            7,
            None,
            Observation::new("", protocol::observation::NullObservation {}),
        );
        let shown = [run(), ran(1), hidden].map(|event| transcript.format_event(&event));
        assert_eq!(
            shown.concat(),
            "\n#1 build it\n\n$ make\n#2\n  a\n  b\n  [exit code 1]\n"
        );
    }

    #[test]
    fn setup_step_is_shown_by_name_and_its_progress_once() {
        let mut transcript = Transcript::new();
        let mut step = run();
        step.source = EventSource::Environment;
        let shown = [
            transcript.format_event(&step),
            transcript.format_output(EventId(1), "10%\r50%\r"),
            transcript.format_output(EventId(1), "100%, done.\r"),
            transcript.format_output(EventId(1), "\nlast"),
            transcript.format_event(&ran(1)),
        ];
        assert_eq!(
            shown.concat(),
            "\nbuild it\n  100%, done.\n  last\n  [exit code 1]\n"
        );
    }

    #[test]
    fn gap_in_the_output_is_reported_once_per_command() {
        let mut transcript = Transcript::new();
        assert_eq!(transcript.format_gap(None), "", "nothing is being shown");
        for _ in 0..2 {
            transcript.format_event(&run());
            let shown = [
                transcript.format_output(EventId(1), "one"),
                transcript.format_gap(Some(EventId(7))),
                transcript.format_gap(None),
                transcript.format_output(EventId(1), "two\n"),
                transcript.format_gap(Some(EventId(1))),
                transcript.format_gap(None),
                transcript.format_event(&ran(0)),
            ];
            assert_eq!(
                shown.concat(),
                format!("  one\n{}  two\n", live_output::GAP)
            );
        }
    }

    #[test]
    fn cell_output_is_shown_without_kernel_info() {
        let mut transcript = Transcript::new();
        let mut shown = |content: &str| {
            let place =
                "\n[Jupyter current working directory: /w]\n[Jupyter Python interpreter: /p]";
            let kind = RunIpythonObservation::default();
            transcript.format_event(&event(
                2,
                Some(1),
                Observation::new(format!("{content}{place}"), kind),
            ))
        };
        assert_eq!(shown("42"), "  42\n");
        assert_eq!(shown(""), "");
    }

    #[test]
    fn output_is_not_shown_live_before_its_action() {
        let mut transcript = Transcript::new();
        assert_eq!(transcript.format_output(EventId(1), "early"), "");
    }
}
