//! The terminal output of a running conversation, and of a sandbox that is created.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use protocol::update::{ModelProgress, SandboxStart};
use protocol::{ConversationId, ConversationUpdate, Event, EventId};

use super::palette::{self, Palette};
use super::{print, transcript::Transcript};
use crate::redacted_stderr;
use crate::status_terminal;

/// Interval at which the status line is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Format of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// For people, on standard error.
    Transcript,
    /// JSON on standard output, one event per line.
    Json,
    /// Nothing.
    Silent,
}

/// The transcript, and below it a status line with the current operation.
pub(super) struct Screen {
    output: Output,
    transcript: Transcript,
    status: ProgressBar,
    /// The last line is incomplete. The status is hidden, because it would overwrite it.
    is_line_open: bool,
    /// The incomplete line is text of the model that is streamed.
    is_answer_open: bool,
}

impl Screen {
    pub(super) fn new(output: Output) -> Self {
        let status = match output {
            // Draws nothing when standard error is not a terminal.
            Output::Transcript if !palette::is_dumb_terminal() => {
                ProgressBar::with_draw_target(None, status_terminal::target())
            }
            Output::Transcript | Output::Json | Output::Silent => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        status.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        status.enable_steady_tick(DRAW_INTERVAL);
        redacted_stderr::set_status(&status);
        let transcript = Transcript::coloured(Palette::for_stderr());
        Self {
            output,
            transcript,
            status,
            is_line_open: false,
            is_answer_open: false,
        }
    }

    /// Registers the agents that were started before the first shown event.
    pub(super) fn register_agents(&mut self, agents: Vec<(EventId, String)>) {
        for (id, agent) in agents {
            self.transcript.register_agent(id, &agent);
        }
    }

    /// Hides the status while a question is asked, because it would overwrite the question.
    pub(super) async fn without_status<T>(&self, question: impl Future<Output = T>) -> T {
        self.hide_status();
        let answer = question.await;
        self.unhide_status();
        answer
    }

    pub(super) fn show_event(
        &mut self,
        conversation: &ConversationId,
        event: &Event,
    ) -> anyhow::Result<()> {
        match self.output {
            Output::Silent => {}
            Output::Json => print::event(conversation, event)?,
            Output::Transcript => {
                let text = self.transcript.format_event(event);
                self.show(&text);
            }
        }
        Ok(())
    }

    pub(super) fn show_gap(&mut self, action: Option<EventId>) {
        let text = self.transcript.format_gap(action);
        self.show(&text);
    }

    /// Shows progress between events.
    pub(super) fn show_update<E>(&mut self, update: ConversationUpdate<E>) {
        match update {
            ConversationUpdate::Output { action, text, .. } => {
                let text = self.transcript.format_output(action, &text);
                self.show(&text);
            }
            ConversationUpdate::OutputGap { action, .. } => self.show_gap(Some(action)),
            ConversationUpdate::LiveGap {} => self.show_gap(None),
            ConversationUpdate::Start(start) => self.show_start(&start),
            ConversationUpdate::Problem { message } => {
                self.show(&format!("[warning: {}]\n", print::visible_line(&message)));
            }
            ConversationUpdate::Model { agent, progress } => self.show_progress(agent, progress),
            ConversationUpdate::Event(_)
            | ConversationUpdate::Attached(_)
            | ConversationUpdate::Title { .. }
            | ConversationUpdate::Waiting(_)
            | ConversationUpdate::Closed {}
            | ConversationUpdate::Error { .. } => {}
        }
    }

    fn show_progress(&mut self, agent: Option<EventId>, progress: ModelProgress) {
        match progress {
            // Only on a terminal, and only for the main agent, because concurrent texts would mix.
            ModelProgress::Text { text } if agent.is_none() && !self.status.is_hidden() => {
                let text = self.transcript.push_answer(&text);
                self.show(&text);
                self.is_answer_open = self.is_line_open;
            }
            ModelProgress::Text { .. } | ModelProgress::Reasoning { .. } => {}
            ModelProgress::Retrying {
                attempt,
                attempts,
                after_secs,
                reason,
            } => {
                let end = self.transcript.discard_partial_answer();
                let reason = retry_reason(&reason, "the model cannot be called");
                self.show(&format!(
                    "{end}[{reason}; try {attempt} of {attempts} in {after_secs:.1} s]\n"
                ));
            }
        }
    }

    pub(super) fn show_start(&mut self, start: &SandboxStart) {
        match start {
            SandboxStart::Pulling {
                image,
                received_bytes,
                total_bytes,
            } => {
                let of = total_bytes
                    .map(|total| format!(" of {}", HumanBytes(total)))
                    .unwrap_or_default();
                let image = if image.is_empty() { "the image" } else { image };
                self.set_status(&format!(
                    "pulling {image}: {}{of}",
                    HumanBytes(*received_bytes)
                ));
            }
            SandboxStart::Starting {} => self.set_status("starting the sandbox"),
            SandboxStart::Connecting {} => self.set_status("connecting to the sandbox"),
            SandboxStart::Retrying { reason, after_secs } => {
                let reason = retry_reason(reason, "the sandbox cannot be started");
                self.show(&format!("[{reason}; next try in {after_secs:.1} s]\n"));
            }
        }
    }

    pub(super) fn set_status(&self, text: &str) {
        if self.status.message() != text {
            self.status.set_message(text.to_owned());
            self.status.reset_elapsed();
        }
    }

    pub(super) fn show(&mut self, text: &str) {
        if self.output != Output::Transcript || text.is_empty() {
            return;
        }
        self.is_answer_open = false;
        let was_open = std::mem::replace(&mut self.is_line_open, !text.ends_with('\n'));
        if !was_open && self.is_line_open {
            self.hide_status();
        }
        print::note(text);
        if was_open && !self.is_line_open {
            self.unhide_status();
        }
    }

    /// Whether text of the model is shown up to the middle of a line, which hides the status.
    pub(super) fn has_open_answer(&self) -> bool {
        self.is_answer_open
    }

    /// Ends the line, and shows the status again.
    pub(super) fn close_line(&mut self) {
        self.show("\n");
    }

    fn hide_status(&self) {
        self.status.disable_steady_tick();
        self.status.finish_and_clear();
    }

    fn unhide_status(&self) {
        self.status.reset();
        self.status.enable_steady_tick(DRAW_INTERVAL);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.status.finish_and_clear();
    }
}

/// Returns why something is tried again. Clients of a server do not receive it.
fn retry_reason<'a>(reason: &'a str, unknown: &'a str) -> Cow<'a, str> {
    match reason {
        "" => unknown.into(),
        reason => print::visible_line(reason).into(),
    }
}
