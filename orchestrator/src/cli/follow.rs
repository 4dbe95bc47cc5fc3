//! Follows a conversation until there is no more to wait for: shows its events, handles ^C, asks the person at the terminal,
//! and lets an agent continue that asks where there is none.

use std::time::Duration;

use engine::conversation::{Conversation, Live, State};
use engine::llm::LlmProgress;
use engine::replay::{self, Trajectory};
use engine::sandbox::StartProgress;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use protocol::action::MessageAction;
use protocol::{Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, ObservationKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::confirm::{Decision, Instruction, Questions};
use super::palette::{self, Palette};
use super::{approval, print, transcript::Transcript};
use crate::exit::{Exit, INTERRUPTED};
use crate::terminal_input::discard_typed_input;

/// How long a stopped conversation may take to end what it was doing.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// How often the line on what is waited for is drawn.
const TICK: Duration = Duration::from_millis(200);

/// How often an agent that only talks is told to go on before it is taken at its word.
const MOST_NUDGES: u32 = 3;

const NUDGE: &str = "Nobody is here to answer. Go on with what you think best. If the task is done, or cannot be, \
                     call finish.";

/// How events are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// For people, on standard error.
    Transcript,
    /// One event a line, on standard output.
    Json,
    /// Not at all.
    Silent,
}

/// What is followed, and how.
pub(super) struct Follow<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) output: Output,
    /// The first event to show.
    pub(super) from: EventId,
    /// Tell an agent that asks to go on by itself.
    pub(super) auto_continue: bool,
    /// What is done again, with what its user said.
    pub(super) replayed: Option<&'a Trajectory>,
    /// The sandbox's network, for people.
    pub(super) network: &'a str,
}

/// Stands before an action whose earlier part was followed by another process.
const ATTACHED: &str = "\n[attaching to an action that was running when the earlier process ended]\n";

/// What programs write where there is no network.
const NETWORK_ERRORS: [&str; 6] = [
    "Could not resolve host",
    "could not resolve host",
    "ame resolution",
    "Name or service not known",
    "Network is unreachable",
    "bad address",
];

const NO_NETWORK: &str = "[the sandbox has no network: --network host gives it one]\n";

/// How following ended.
pub(super) struct Followed {
    pub(super) exit: Exit,
    /// What the agent said last to the user; `None` if it said nothing since the user did.
    pub(super) answer: Option<String>,
}

impl Follow<'_> {
    /// Follows to the end. The conversation stays open.
    pub(super) async fn follow(self) -> anyhow::Result<Followed> {
        let mut answer = None;
        let exit = self.follow_to_exit(&mut answer).await?;
        Ok(Followed { exit, answer })
    }

    /// Shows the actions that an earlier process left running, so that their output is shown as it comes.
    async fn attach(&self, screen: &mut Screen, live: &mut broadcast::Receiver<Live>) -> anyhow::Result<()> {
        let state = self.conversation.state();
        let running = state.pending().filter(|(_, pending)| state.is_performing(pending));
        for (_, pending) in running.filter(|(_, pending)| pending.action < self.from) {
            let events = self.conversation.log().cursor(pending.action).next().await?;
            // A reader of JSON has the event already.
            if let Some(action) = events.first().filter(|_| self.output == Output::Transcript) {
                screen.show(ATTACHED);
                screen.event(self.conversation.id(), action, live)?;
            }
        }
        Ok(())
    }

    async fn follow_to_exit(&self, answer: &mut Option<String>) -> anyhow::Result<Exit> {
        let mut interrupts = Interrupts::listen()?;
        let mut screen = Screen::new(self.output);
        let mut cursor = self.conversation.log().cursor(self.from);
        let mut live = self.conversation.live();
        let mut shown = self.from;
        let mut nudges = 0;
        let mut is_hinted = false;
        let (mut said, mut done) = (0, 0);
        let mut stopping: Option<Instant> = None;
        let mut questions = Questions::at_terminal(self.output);
        screen.know_agents(&self.conversation.state());
        self.attach(&mut screen, &mut live).await?;
        screen.status("creating the sandbox");
        loop {
            let state = self.conversation.state();
            if let Some(message) = self.replayed.and_then(|replayed| replayed.message_after(said, done))
                && !state.is_underway()
                && stopping.is_none()
            {
                said += 1;
                self.conversation.say(message.clone())?;
                self.conversation.wait_for(|now| has_heard(now, &state)).await;
                continue;
            }
            // A person at the terminal is asked while other agents work.
            let asked = state.asked().filter(|_| state.agent_state == AgentState::AwaitingUserConfirmation);
            if shown >= state.next_id && (is_at_rest(&state) || asked.is_some() && questions.is_some()) {
                let asks = state.agent_state == AgentState::AwaitingUserInput;
                let may_continue = self.auto_continue && questions.is_none();
                if asks && may_continue && nudges < MOST_NUDGES && stopping.is_none() {
                    nudges += 1;
                    self.conversation.say(MessageAction { content: NUDGE.into(), ..Default::default() })?;
                    self.conversation.wait_for(|now| has_heard(now, &state)).await;
                    continue;
                }
                if let Some(questions) = questions.as_mut().filter(|_| asks && stopping.is_none()) {
                    let content = match screen.aside(questions.instruction(&mut interrupts)).await {
                        Instruction::Say(content) => content,
                        Instruction::Stop => return Ok(Exit::Interrupted),
                        Instruction::Leave => return Ok(exit_of(&state, false)),
                    };
                    self.conversation.say(MessageAction { content, ..Default::default() })?;
                    self.conversation.wait_for(|now| has_heard(now, &state)).await;
                    continue;
                }
                if let (Some(questions), Some((_, pending)), None) = (questions.as_mut(), asked, stopping) {
                    let action = Some(pending.action);
                    let (description, similar) =
                        (describe_asked(&state, self.network), approval::similar(&pending.asked()));
                    let deciding = questions.decide(&description, similar, &mut interrupts);
                    match screen.aside(deciding).await {
                        Decision::Approve => self.conversation.confirm(action)?,
                        Decision::ApproveSimilar => self.conversation.confirm_similar(pending.action)?,
                        Decision::Reject(reason) => self.conversation.reject(action, reason)?,
                        Decision::Stop => {
                            self.conversation.stop()?;
                            stopping = Some(Instant::now() + STOP_PATIENCE);
                        }
                        Decision::Leave => return Ok(exit_of(&state, false)),
                    }
                    let waits = |now: &State| now.asked().map(|(_, pending)| pending.action) == action;
                    let is_asked = |now: &State| now.agent_state == AgentState::AwaitingUserConfirmation;
                    self.conversation.wait_for(|now| !is_asked(now) || !waits(now)).await;
                    continue;
                }
                if asked.is_some() {
                    screen.show(&describe_asked(&state, self.network));
                }
                return Ok(exit_of(&state, stopping.is_some()));
            }
            if stopping.is_none() && print::has_lost_reader() {
                self.conversation.stop()?;
                stopping = Some(Instant::now() + STOP_PATIENCE);
            }
            tokio::select! {
                biased;
                () = interrupts.next() => {
                    if stopping.is_some() {
                        return Ok(Exit::Interrupted);
                    }
                    print::note("\nglovebox: stopping; interrupt again to leave at once\n");
                    self.conversation.stop()?;
                    stopping = Some(Instant::now() + STOP_PATIENCE);
                }
                () = passing_of(stopping) => {
                    print::warning("what was running could not be ended in time");
                    return Ok(Exit::Interrupted);
                }
                events = cursor.next() => {
                    let events = events?;
                    shown = events.last().map_or(shown, |last| last.id.next());
                    done += replay::count_replayable(&events);
                    for event in &events {
                        screen.event(self.conversation.id(), event, &mut live)?;
                        said_to_user(event, answer);
                        if self.network == "none" && !is_hinted && lacked_network(event) {
                            is_hinted = true;
                            screen.show(NO_NETWORK);
                        }
                        if matches!(&event.body, EventBody::Action(action) if !is_talk(action)) {
                            nudges = 0;
                        }
                    }
                    screen.status_of(&self.conversation.state());
                }
                notice = live.recv(), if screen.shows_notices() => screen.heard(notice),
                // The state follows its events: without this the last ones would be waited on for ever.
                now = self.conversation.wait_for(|now| now.next_id > state.next_id) => {
                    if now.next_id == state.next_id {
                        // The conversation's task has ended by itself; closing it tells why.
                        return Ok(Exit::Failed);
                    }
                }
            }
        }
    }
}

/// Whether a command failed as commands do where there is no network.
fn lacked_network(event: &Event) -> bool {
    let EventBody::Observation(observation) = &event.body else { return false };
    let ObservationKind::Run(run) = &observation.kind else { return false };
    run.metadata.exit_code > 0 && NETWORK_ERRORS.iter().any(|sign| observation.content.contains(sign))
}

/// Follows what the agent says to the user. What another agent says is not for the user.
fn said_to_user(event: &Event, answer: &mut Option<String>) {
    match (event.source, &event.body) {
        _ if event.delegation.is_some() => {}
        (EventSource::User, EventBody::Action(Action::Message(_))) => *answer = None,
        (_, EventBody::Action(Action::Message(message))) => *answer = Some(message.content.clone()),
        (_, EventBody::Action(Action::Finish(finish))) => *answer = Some(finish.final_thought.clone()),
        // It said something, and went on.
        (EventSource::Agent, EventBody::Action(_)) => *answer = None,
        _ => {}
    }
}

/// What waits for the user's approval, the first of several; empty if nothing does.
fn describe_asked(state: &State, network: &str) -> String {
    let Some((task, pending)) = state.asked() else { return String::new() };
    let task = task.map(|task| format!("\non task {task}:")).unwrap_or_default();
    format!("{task}{}", approval::describe(pending, network))
}

/// Waits for a time; for none, for ever.
async fn passing_of(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Whether something came of what was said in the state before. A title comes by itself.
fn has_heard(now: &State, before: &State) -> bool {
    let by_itself = u64::from(now.title != before.title);
    now.next_id.0 > before.next_id.0 + by_itself
}

/// Whether nothing more happens by itself.
fn is_at_rest(state: &State) -> bool {
    let rests = match state.agent_state {
        AgentState::Finished
        | AgentState::Rejected
        | AgentState::Stopped
        | AgentState::AwaitingUserInput
        | AgentState::Paused => !state.is_underway(),
        AgentState::AwaitingUserConfirmation => !state.is_working(),
        // A pending action may wait for a sandbox that cannot be reached.
        AgentState::Error => true,
        AgentState::Loading
        | AgentState::Init
        | AgentState::Running
        | AgentState::UserConfirmed
        | AgentState::UserRejected
        | AgentState::RateLimited
        | AgentState::Unknown => false,
    };
    rests && state.started.is_some()
}

/// How the program ends when its conversation is at rest.
pub(super) fn exit_of(state: &State, was_interrupted: bool) -> Exit {
    match state.agent_state {
        _ if was_interrupted => Exit::Interrupted,
        AgentState::Finished => Exit::Finished,
        AgentState::Error if state.limit_reached.is_some() => Exit::Limit,
        AgentState::AwaitingUserInput | AgentState::AwaitingUserConfirmation => Exit::Waiting,
        _ => Exit::Failed,
    }
}

fn is_talk(action: &Action) -> bool {
    matches!(action, Action::Message(_) | Action::System(_))
}

/// ^C, the request to end, and the terminal that goes away.
pub(super) struct Interrupts {
    signals: Signals,
    last_resort: AbortHandle,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    has_hung_up: bool,
}

impl Interrupts {
    pub(super) fn listen() -> std::io::Result<Self> {
        let last_resort = tokio::spawn(last_resort(Signals::listen()?));
        Ok(Self { signals: Signals::listen()?, last_resort: last_resort.abort_handle() })
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.signals.next().await;
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.last_resort.abort();
    }
}

/// Ends the program that neither of two interrupts has ended, some time after the second or at the third: a reader of ours
/// that reads no more holds up whoever writes to it, who then hears nothing.
async fn last_resort(mut signals: Signals) {
    signals.next().await;
    signals.next().await;
    let _ = tokio::time::timeout(STOP_PATIENCE, signals.next()).await;
    discard_typed_input();
    std::process::exit(INTERRUPTED.into());
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            has_hung_up: false,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            // The kernel and the shell may both tell of it: that is no second word.
            _ = self.hangup.recv(), if !self.has_hung_up => self.has_hung_up = true,
        }
    }
}

/// What the user looks at: the transcript, and below it one line on what is waited for.
pub(super) struct Screen {
    output: Output,
    transcript: Transcript,
    status: ProgressBar,
    /// The last line that was shown goes on: the status would overdraw it, and is away.
    is_line_open: bool,
    /// The last event that was shown.
    shown: Option<EventId>,
    /// The first notice that is about an action which is not shown yet; those after it wait.
    early: Option<Live>,
}

impl Screen {
    pub(super) fn new(output: Output) -> Self {
        let status = match output {
            // Draws nothing when standard error is not a terminal.
            Output::Transcript if !palette::is_dumb_terminal() => ProgressBar::new_spinner(),
            Output::Transcript | Output::Json | Output::Silent => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        status.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        status.enable_steady_tick(TICK);
        let transcript = Transcript::coloured(Palette::of_stderr());
        Self { output, transcript, status, is_line_open: false, shown: None, early: None }
    }

    /// Those that were begun before what is shown.
    fn know_agents(&mut self, state: &State) {
        for (id, child) in &state.children {
            self.transcript.know_agent(*id, &child.agent);
        }
    }

    /// Lets somebody ask with nothing drawn over the question.
    async fn aside<T>(&self, asking: impl Future<Output = T>) -> T {
        self.hide_status();
        let answer = asking.await;
        self.show_status();
        answer
    }

    fn event(
        &mut self,
        conversation: &ConversationId,
        event: &Event,
        live: &mut broadcast::Receiver<Live>,
    ) -> anyhow::Result<()> {
        match self.output {
            Output::Silent => {}
            Output::Json => print::event(conversation, event)?,
            Output::Transcript => {
                // Output that came before the observation is shown before it, as what the model wrote before its event.
                let mut is_missed = false;
                while self.early.is_none() {
                    match live.try_recv() {
                        Ok(notice) => self.live(notice),
                        Err(TryRecvError::Lagged(_)) => is_missed = true,
                        Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                    }
                }
                let early = self.early.take();
                // Of what was missed, nobody knows whose it was.
                if is_missed && early.is_none() {
                    self.gap(None);
                }
                let text = self.transcript.event(event);
                self.show(&text);
                self.shown = Some(event.id);
                if let Some(early) = early {
                    if is_missed {
                        self.gap(None);
                    }
                    self.live(early);
                }
            }
        }
        Ok(())
    }

    /// Whether notices can be shown now.
    fn shows_notices(&self) -> bool {
        self.early.is_none()
    }

    /// A notice, or that some were missed: the handle keeps the channel open.
    fn heard(&mut self, notice: Result<Live, RecvError>) {
        match notice {
            Ok(notice) => self.live(notice),
            Err(RecvError::Lagged(_) | RecvError::Closed) => self.gap(None),
        }
    }

    fn gap(&mut self, action: Option<EventId>) {
        let text = self.transcript.gap(action);
        self.show(&text);
    }

    /// Shows a notice, or keeps it until the action that it is about is shown.
    fn live(&mut self, notice: Live) {
        match notice {
            Live::Output { action, .. } | Live::OutputGap { action, .. } if Some(action) > self.shown => {
                self.early = Some(notice);
            }
            Live::Output { action, bytes } => {
                let text = self.transcript.output(action, &bytes);
                self.show(&text);
            }
            Live::OutputGap { action, .. } => self.gap(Some(action)),
            Live::Start(progress) => self.start(&progress),
            Live::Model { agent, progress: LlmProgress::Text(piece) } => {
                // Only where someone watches; of several that write at once, only one.
                if agent.is_none() && !self.status.is_hidden() {
                    let text = self.transcript.written(&piece);
                    self.show(&text);
                }
            }
            Live::Model { progress: LlmProgress::Reasoning(_), .. } => {}
            Live::Model { progress: LlmProgress::Retrying { attempt, attempts, after, error }, .. } => {
                self.transcript.forget_writing();
                let wait = after.as_secs_f64();
                self.show(&format!("[{error}; try {attempt} of {attempts} in {wait:.1} s]\n"));
            }
        }
    }

    pub(super) fn start(&mut self, progress: &StartProgress) {
        match progress {
            StartProgress::Pulling { image, received_bytes, total_bytes } => {
                let of = total_bytes.map(|total| format!(" of {}", HumanBytes(total))).unwrap_or_default();
                self.status(&format!("pulling {image}: {}{of}", HumanBytes(*received_bytes)));
            }
            StartProgress::Starting => self.status("starting the sandbox"),
            StartProgress::Connecting => self.status("connecting to the sandbox"),
        }
    }

    fn status_of(&self, state: &State) {
        self.status(match (state.agent_state, state.is_underway()) {
            (AgentState::Loading, false) => "creating the sandbox",
            (AgentState::Loading, true) => "setting up the workspace",
            (_, true) => "running in the sandbox",
            _ => "waiting for the model",
        });
    }

    fn status(&self, text: &str) {
        if self.status.message() != text {
            self.status.set_message(text.to_owned());
            self.status.reset_elapsed();
        }
    }

    fn show(&mut self, text: &str) {
        if self.output != Output::Transcript || text.is_empty() {
            return;
        }
        let was_open = std::mem::replace(&mut self.is_line_open, !text.ends_with('\n'));
        match (was_open, self.is_line_open) {
            (false, false) => return self.status.suspend(|| print::note(text)),
            (false, true) => self.hide_status(),
            (true, _) => {}
        }
        print::note(text);
        if !self.is_line_open {
            self.show_status();
        }
    }

    fn hide_status(&self) {
        self.status.disable_steady_tick();
        self.status.finish_and_clear();
    }

    fn show_status(&self) {
        self.status.reset();
        self.status.enable_steady_tick(TICK);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.status.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use protocol::action::RunAction;

    use super::*;

    fn event(id: u64) -> Event {
        let timestamp = "2026-01-02T03:04:05".to_owned().try_into().unwrap();
        Event::new(EventId(id), timestamp, EventSource::Agent, Action::from(RunAction::default()))
    }

    #[tokio::test]
    async fn output_waits_for_the_action_that_it_is_of() {
        let mut screen = Screen::new(Output::Transcript);
        let (sender, mut live) = broadcast::channel(4);
        let conversation: ConversationId = "one".parse().unwrap();
        sender.send(Live::Output { action: EventId(3), bytes: b"early".into() }).unwrap();
        for id in 1..3 {
            screen.event(&conversation, &event(id), &mut live).unwrap();
            assert!(!screen.shows_notices(), "{id}");
        }
        screen.event(&conversation, &event(3), &mut live).unwrap();
        assert!(screen.shows_notices() && screen.is_line_open);
    }
}
