//! Shows a running conversation until it is at rest. Handles ^C, and asks the user at the terminal.

use std::time::Duration;

use conversations::{Conversations, Follower, run_outcome};
use engine::conversation::{ConversationError, PendingCommand, State};
use protocol::update::{RunOutcome, WaitState};
use protocol::{
    AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId, ObservationKind,
    UserCommand,
};
use tokio::time::{Instant, sleep};

use super::confirm::{Answer, Instruction, TerminalPrompt};
use super::interrupts::{Interrupts, STOP_GRACE_PERIOD};
use super::screen::{Output, Screen};
use super::{approval, print};
use crate::exit::Exit;

/// Shows one conversation in this terminal.
pub(super) struct TerminalFollower<'a> {
    pub(super) conversations: &'a Conversations,
    pub(super) id: &'a ConversationId,
    pub(super) output: Output,
    /// The first event to show.
    pub(super) from: EventId,
    /// Description of the sandbox's network.
    pub(super) network: &'a str,
}

/// Printed before an action of an earlier process.
const ATTACHED: &str =
    "\n[continuing with an action that had not ended when the earlier process did]\n";

/// Error messages of programs without a network.
const NETWORK_ERRORS: [&str; 6] = [
    "Could not resolve host",
    "could not resolve host",
    "ame resolution",
    "Name or service not known",
    "Network is unreachable",
    "bad address",
];

const NO_NETWORK: &str = "[the sandbox has no network: --network host gives it one]\n";

/// Result of a run.
pub(super) struct FollowResult {
    pub(super) exit: Exit,
    /// Last message of the agent. `None` if the user's message is later.
    pub(super) answer: Option<String>,
}

/// The user's terminal.
struct Terminal<'a> {
    screen: Screen,
    /// `None` if no user is at the terminal.
    prompt: Option<TerminalPrompt>,
    interrupts: &'a mut Interrupts,
    conversations: &'a Conversations,
    id: &'a ConversationId,
    /// The user's command that the conversation has not applied yet.
    applying: Option<PendingCommand>,
    /// End of the grace period of a conversation that is being stopped.
    deadline: Option<Instant>,
}

/// Time without a piece of the model's text after which the status is shown again.
const STALL_DELAY: Duration = Duration::from_secs(3);

impl TerminalFollower<'_> {
    /// Shows the conversation until it is at rest. It stays open.
    pub(super) async fn follow(self, interrupts: &mut Interrupts) -> anyhow::Result<FollowResult> {
        let mut terminal = Terminal {
            interrupts,
            conversations: self.conversations,
            id: self.id,
            applying: None,
            screen: Screen::new(self.output),
            prompt: TerminalPrompt::at_terminal(self.output),
            deadline: None,
        };
        let mut follower = self.conversations.follow(self.id, self.from).await?;
        let exit = self.follow_to_exit(&mut follower, &mut terminal).await?;
        Ok(FollowResult {
            exit,
            answer: follower.answer().map(str::to_owned),
        })
    }

    async fn follow_to_exit(
        &self,
        follower: &mut Follower,
        terminal: &mut Terminal<'_>,
    ) -> anyhow::Result<Exit> {
        terminal.screen.register_agents(&follower.state());
        terminal.screen.set_status("creating the sandbox");
        let mut is_hinted = false;
        loop {
            // Events that were appended together are shown together: a stop between them would
            // reach a conversation that has already finished or asks.
            let may_stop = !follower.has_queued();
            if may_stop
                && terminal.deadline.is_none()
                && print::has_lost_reader()
                && !follower.is_at_rest()
            {
                terminal.stop()?;
            }
            let progress = tokio::select! {
                biased;
                () = terminal.interrupts.next(), if may_stop => {
                    if terminal.deadline.is_some() {
                        return Ok(Exit::Interrupted);
                    }
                    print::note("\nglovebox: stopping; interrupt again to exit immediately\n");
                    terminal.stop()?;
                    continue;
                }
                () = wait_until(terminal.deadline), if may_stop => {
                    print::warning("the running action was not terminated in time");
                    return Ok(Exit::Interrupted);
                }
                applied = wait_for(&mut terminal.applying), if terminal.applying.is_some() => {
                    terminal.applying = None;
                    applied?;
                    continue;
                }
                progress = follower.next(), if terminal.applying.is_none() => progress?,
                () = sleep(STALL_DELAY), if terminal.screen.has_open_answer() => {
                    terminal.screen.close_line();
                    continue;
                }
            };
            let screen = &mut terminal.screen;
            match progress {
                ConversationUpdate::Event(event) => {
                    screen.show_event(self.id, &event)?;
                    if self.network == "none" && !is_hinted && is_network_error(&event) {
                        is_hinted = true;
                        screen.show(NO_NETWORK);
                    }
                    screen.show_status_of(&*follower.state_with(event.id).await);
                }
                // The JSON output already contains the event.
                ConversationUpdate::Attached(action) if self.output == Output::Transcript => {
                    screen.show(ATTACHED);
                    screen.show_event(self.id, &action)?;
                }
                ConversationUpdate::Attached(_) => {}
                ConversationUpdate::Waiting(waiting) => {
                    let state = follower.waiting_state();
                    let asked = terminal.ask_user(waiting, &state, self.network).await?;
                    if let Some(exit) = asked {
                        return Ok(exit);
                    }
                }
                ConversationUpdate::Closed {} => return Ok(Exit::Failed),
                update => screen.show_update(update),
            }
        }
    }
}

impl Terminal<'_> {
    fn stop(&mut self) -> anyhow::Result<()> {
        self.send(UserCommand::Stop)?;
        self.deadline = Some(Instant::now() + STOP_GRACE_PERIOD);
        Ok(())
    }

    /// Sends a command. The conversation is not followed further before it is applied: until then,
    /// it waits for the user.
    fn send(&mut self, command: UserCommand) -> anyhow::Result<()> {
        self.applying = Some(self.conversations.submit(self.id, command)?);
        Ok(())
    }

    /// Asks the user to answer a conversation that waits. Returns the exit code if there is no
    /// answer.
    async fn ask_user(
        &mut self,
        waiting: WaitState,
        state: &State,
        network: &str,
    ) -> anyhow::Result<Option<Exit>> {
        let asked = state
            .awaiting_confirmation()
            .filter(|_| state.agent_state == AgentState::AwaitingUserConfirmation);
        let is_stopping = self.deadline.is_some();
        // A user at the terminal is asked while other agents work.
        if !waiting.is_at_rest && (asked.is_none() || self.prompt.is_none()) {
            return Ok(None);
        }
        let Some(prompt) = self.prompt.as_mut().filter(|_| !is_stopping) else {
            if asked.is_some() {
                self.screen.show(&describe_asked(state, network));
            }
            return Ok(Some(exit_of(state, is_stopping)));
        };
        if state.agent_state == AgentState::AwaitingUserInput {
            match self
                .screen
                .without_status(prompt.ask_instruction(self.interrupts))
                .await
            {
                Instruction::Message(content) => self.send(UserCommand::message(content))?,
                Instruction::Stop => return Ok(Some(Exit::Interrupted)),
                Instruction::Leave => return Ok(Some(exit_of(state, false))),
            }
            return Ok(None);
        }
        let Some((_, pending)) = asked else {
            return Ok(Some(exit_of(state, false)));
        };
        let (description, similar) = (
            describe_asked(state, network),
            approval::describe_similar(&pending.to_action()),
        );
        let deciding = prompt.ask_decision(pending.action, &description, similar, self.interrupts);
        match self.screen.without_status(deciding).await {
            Answer::Decision(command) => self.send(command)?,
            Answer::Stop => self.stop()?,
            Answer::Leave => return Ok(Some(exit_of(state, false))),
        }
        Ok(None)
    }
}

/// Whether a command failed because it has no network.
fn is_network_error(event: &Event) -> bool {
    let EventBody::Observation(observation) = &event.body else {
        return false;
    };
    let ObservationKind::Run(run) = &observation.kind else {
        return false;
    };
    run.metadata.exit_code > 0
        && NETWORK_ERRORS
            .iter()
            .any(|message| observation.content.contains(message))
}

/// Describes the first action that awaits confirmation. Empty if there is none.
fn describe_asked(state: &State, network: &str) -> String {
    let Some((task, pending)) = state.awaiting_confirmation() else {
        return String::new();
    };
    let task = task
        .map(|task| format!("\non task {task}:"))
        .unwrap_or_default();
    format!("{task}{}", approval::describe(pending, network))
}

/// Waits until a command is applied. Never returns if there is none.
async fn wait_for(applying: &mut Option<PendingCommand>) -> Result<(), ConversationError> {
    match applying {
        Some(applying) => applying.await.map(drop),
        None => std::future::pending().await,
    }
}

/// Waits until a time. Never returns if there is none.
async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Exit code for a conversation that is at rest.
pub(super) fn exit_of(state: &State, was_interrupted: bool) -> Exit {
    match run_outcome(state) {
        _ if was_interrupted => Exit::Interrupted,
        RunOutcome::Finished => Exit::Finished,
        RunOutcome::LimitReached => Exit::Limit,
        RunOutcome::AwaitingUser => Exit::Waiting,
        RunOutcome::Failed => Exit::Failed,
    }
}
