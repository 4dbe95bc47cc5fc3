//! Shows a conversation until it waits for the user. Handles ^C, and asks the user at the terminal.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversations::{Conversations, Follower};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use protocol::update::{RunOutcome, WaitState};
use protocol::{
    Action, AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId,
    ObservationKind, UserCommand,
};
use tokio::time::{Instant, sleep};

use super::confirm::{Answer, Instruction, TerminalPrompt};
use super::interrupts::{Interrupts, STOP_GRACE_PERIOD};
use super::screen::{Output, Screen};
use super::{approval, print};
use crate::exit::Exit;

/// Shows one conversation in this terminal.
pub(super) struct TerminalFollower<'a> {
    pub(super) id: &'a ConversationId,
    pub(super) output: Output,
    /// Description of the sandbox's network. `None` if only the server knows it.
    pub(super) network: Option<&'a str>,
}

/// A conversation that a terminal shows: one of this process, or of a server.
#[async_trait]
pub(super) trait ShownConversation: Send {
    /// Waits for the next update. Cancel-safe.
    async fn next(&mut self) -> anyhow::Result<ConversationUpdate<Arc<Event>>>;

    /// Whether an update is queued, so that [`next`](Self::next) returns immediately.
    fn has_queued(&self) -> bool;

    /// Whether all events are reported and the conversation is idle.
    fn is_idle(&self) -> bool;

    /// Returns the agent's last message to the user. `None` if it sent none after the user's.
    fn answer(&self) -> Option<&str>;

    /// Returns the agents that were started before the first event to show, by their delegate
    /// actions.
    fn earlier_agents(&self) -> Vec<(EventId, String)>;

    /// Sends a command. The future ends when the command is applied, and returns the event that it
    /// caused.
    fn send(&self, command: UserCommand) -> anyhow::Result<CommandFuture>;

    /// Describes what is done after the last event.
    async fn status(&mut self) -> &'static str;

    /// Returns the action that awaits confirmation. `None` if there is none, or by now another one.
    async fn find_asked_action(
        &mut self,
        waiting: WaitState,
    ) -> anyhow::Result<Option<ActionAwaitingConfirmation>>;
}

/// A command that is being applied.
pub(super) type CommandFuture = BoxFuture<'static, anyhow::Result<Option<EventId>>>;

/// An action that awaits confirmation.
pub(super) struct ActionAwaitingConfirmation {
    pub(super) id: EventId,
    pub(super) action: Action,
    /// Why it has its risk. Empty if unknown.
    pub(super) risk_reason: String,
    /// The task of the agent that takes it. `None` for the conversation's own agent.
    pub(super) task: Option<String>,
}

/// A conversation of this process.
pub(super) struct LocalConversation<'a> {
    conversations: &'a Conversations,
    id: &'a ConversationId,
    follower: Follower,
    last: EventId,
}

impl<'a> LocalConversation<'a> {
    /// Follows the conversation from an event.
    pub(super) async fn follow(
        conversations: &'a Conversations,
        id: &'a ConversationId,
        from: EventId,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            conversations,
            id,
            follower: conversations.follow(id, from).await?,
            last: from,
        })
    }
}

#[async_trait]
impl ShownConversation for LocalConversation<'_> {
    async fn next(&mut self) -> anyhow::Result<ConversationUpdate<Arc<Event>>> {
        let update = self.follower.next().await?;
        if let ConversationUpdate::Event(event) = &update {
            self.last = event.id;
        }
        Ok(update)
    }

    fn has_queued(&self) -> bool {
        self.follower.has_queued()
    }

    fn is_idle(&self) -> bool {
        self.follower.is_idle()
    }

    fn answer(&self) -> Option<&str> {
        self.follower.answer()
    }

    fn earlier_agents(&self) -> Vec<(EventId, String)> {
        let state = self.follower.state();
        let children = state.children.iter();
        children
            .map(|(id, child)| (*id, child.agent.clone()))
            .collect()
    }

    fn send(&self, command: UserCommand) -> anyhow::Result<CommandFuture> {
        let applying = self.conversations.submit(self.id, command)?;
        Ok(async move { Ok(applying.await?) }.boxed())
    }

    async fn status(&mut self) -> &'static str {
        let state = self.follower.state_with(self.last).await;
        match (state.agent_state, state.has_pending_actions()) {
            (AgentState::Loading, false) => CREATING_SANDBOX,
            (AgentState::Loading, true) => "setting up the workspace",
            (_, true) => RUNNING_ACTION,
            _ => CALLING_MODEL,
        }
    }

    async fn find_asked_action(
        &mut self,
        waiting: WaitState,
    ) -> anyhow::Result<Option<ActionAwaitingConfirmation>> {
        let state = self.follower.waiting_state();
        let asked = state
            .awaiting_confirmation()
            .filter(|(_, pending)| Some(pending.action) == waiting.action);
        Ok(asked.map(|(task, pending)| ActionAwaitingConfirmation {
            id: pending.action,
            action: pending.to_action(),
            risk_reason: pending.risk_reason.clone(),
            task: task.map(|task| task.to_string()),
        }))
    }
}

pub(super) const CREATING_SANDBOX: &str = "creating the sandbox";
pub(super) const RUNNING_ACTION: &str = "running in the sandbox";
pub(super) const CALLING_MODEL: &str = "waiting for the model";

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
    /// The user's command that the conversation has not applied yet. The conversation is not
    /// followed further before it is applied: until then, it waits for the user.
    applying: Option<CommandFuture>,
    /// The event of the last command. Until it is shown, the conversation waits for a command that
    /// was given.
    applied: Option<EventId>,
    /// The last event that was shown.
    shown: Option<EventId>,
    /// End of the grace period of a conversation that is being stopped.
    deadline: Option<Instant>,
}

/// Time without a piece of the model's text after which the status is shown again.
const STALL_DELAY: Duration = Duration::from_secs(3);

impl TerminalFollower<'_> {
    /// Shows the conversation until it is idle. It stays open.
    pub(super) async fn follow(
        self,
        conversation: &mut dyn ShownConversation,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<FollowResult> {
        let mut terminal = Terminal {
            interrupts,
            applying: None,
            applied: None,
            shown: None,
            screen: Screen::new(self.output),
            prompt: TerminalPrompt::at_terminal(self.output),
            deadline: None,
        };
        let exit = self.follow_to_exit(conversation, &mut terminal).await?;
        Ok(FollowResult {
            exit,
            answer: conversation.answer().map(str::to_owned),
        })
    }

    async fn follow_to_exit(
        &self,
        conversation: &mut dyn ShownConversation,
        terminal: &mut Terminal<'_>,
    ) -> anyhow::Result<Exit> {
        terminal
            .screen
            .register_agents(conversation.earlier_agents());
        terminal.screen.set_status(CREATING_SANDBOX);
        let mut is_hinted = false;
        loop {
            // Events that were appended together are shown together: a stop between them would
            // reach a conversation that has already finished or asks.
            let may_stop = !conversation.has_queued();
            if may_stop
                && terminal.deadline.is_none()
                && print::has_lost_reader()
                && !conversation.is_idle()
            {
                terminal.stop(conversation)?;
            }
            let progress = tokio::select! {
                biased;
                () = terminal.interrupts.next(), if may_stop => {
                    match terminal.interrupt(conversation)? {
                        Some(exit) => return Ok(exit),
                        None => continue,
                    }
                }
                () = wait_until(terminal.deadline), if may_stop => {
                    print::warning("the running action was not terminated in time");
                    return Ok(Exit::Interrupted);
                }
                applied = wait_for(&mut terminal.applying), if terminal.applying.is_some() => {
                    terminal.applying = None;
                    let applied = applied?;
                    let is_stopping = terminal.deadline.is_some();
                    if is_stopping && applied.is_none() && conversation.is_idle() {
                        return Ok(Exit::Interrupted);
                    }
                    terminal.applied = applied.max(terminal.applied);
                    continue;
                }
                progress = conversation.next(), if terminal.applying.is_none() => progress?,
                () = sleep(STALL_DELAY), if terminal.screen.has_open_answer() => {
                    terminal.screen.close_line();
                    continue;
                }
            };
            let screen = &mut terminal.screen;
            match progress {
                ConversationUpdate::Event(event) => {
                    terminal.shown = Some(event.id);
                    screen.show_event(self.id, &event)?;
                    if self.network == Some("none") && !is_hinted && is_network_error(&event) {
                        is_hinted = true;
                        screen.show(NO_NETWORK);
                    }
                    screen.set_status(conversation.status().await);
                }
                // The JSON output already contains the event.
                ConversationUpdate::Attached(action) if self.output == Output::Transcript => {
                    screen.show(ATTACHED);
                    screen.show_event(self.id, &action)?;
                }
                ConversationUpdate::Waiting(_) if terminal.shown < terminal.applied => {}
                ConversationUpdate::Waiting(waiting) => {
                    let exit = terminal
                        .ask_user(waiting, conversation, self.network)
                        .await?;
                    if let Some(exit) = exit {
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
    /// Stops the agent at the first interrupt. Returns the exit code at the second one.
    fn interrupt(&mut self, conversation: &dyn ShownConversation) -> anyhow::Result<Option<Exit>> {
        if self.deadline.is_some() {
            return Ok(Some(Exit::Interrupted));
        }
        print::note("\nglovebox: stopping; interrupt again to exit immediately\n");
        self.stop(conversation)?;
        Ok(None)
    }

    fn stop(&mut self, conversation: &dyn ShownConversation) -> anyhow::Result<()> {
        self.applying = Some(conversation.send(UserCommand::Stop)?);
        self.deadline = Some(Instant::now() + STOP_GRACE_PERIOD);
        Ok(())
    }

    /// Asks the user to answer a conversation that waits. Returns the exit code if there is no
    /// answer.
    async fn ask_user(
        &mut self,
        waiting: WaitState,
        conversation: &mut dyn ShownConversation,
        network: Option<&str>,
    ) -> anyhow::Result<Option<Exit>> {
        let is_stopping = self.deadline.is_some();
        // A user at the terminal is asked while other agents work.
        if !waiting.is_idle && (waiting.action.is_none() || self.prompt.is_none()) {
            return Ok(None);
        }
        let asked = tokio::select! {
            asked = conversation.find_asked_action(waiting) => asked?,
            () = self.interrupts.next() => return self.interrupt(conversation),
        };
        let Some(prompt) = self.prompt.as_mut().filter(|_| !is_stopping) else {
            if let Some(asked) = &asked {
                self.screen.show(&describe_asked(asked, network));
            }
            return Ok(Some(exit_of(waiting.outcome, is_stopping)));
        };
        if waiting.agent_state == AgentState::AwaitingUserInput {
            match self
                .screen
                .without_status(prompt.ask_instruction(self.interrupts))
                .await
            {
                Instruction::Message(content) => {
                    self.applying = Some(conversation.send(UserCommand::message(content))?);
                }
                Instruction::Stop => return Ok(Some(Exit::Interrupted)),
                Instruction::Leave => return Ok(Some(exit_of(waiting.outcome, false))),
            }
            return Ok(None);
        }
        let Some(asked) = asked else {
            return Ok(waiting.is_idle.then(|| exit_of(waiting.outcome, false)));
        };
        let (description, similar) = (
            describe_asked(&asked, network),
            approval::describe_similar(&asked.action),
        );
        let deciding = prompt.ask_decision(asked.id, &description, similar, self.interrupts);
        match self.screen.without_status(deciding).await {
            Answer::Decision(command) => self.applying = Some(conversation.send(command)?),
            Answer::Stop => self.stop(conversation)?,
            Answer::Leave => return Ok(Some(exit_of(waiting.outcome, false))),
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

/// Describes an action that awaits confirmation.
fn describe_asked(asked: &ActionAwaitingConfirmation, network: Option<&str>) -> String {
    let task = asked.task.as_ref();
    let task = task
        .map(|task| format!("\non task {task}:"))
        .unwrap_or_default();
    let description = approval::describe(&asked.action, &asked.risk_reason, network);
    format!("{task}{description}")
}

/// Waits until a command is applied. Never returns if there is none.
async fn wait_for(applying: &mut Option<CommandFuture>) -> anyhow::Result<Option<EventId>> {
    match applying {
        Some(applying) => applying.await,
        None => std::future::pending().await,
    }
}

/// Waits until a time. Never returns if there is none.
pub(super) async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Exit code for a conversation that is idle.
pub(super) fn exit_of(outcome: RunOutcome, was_interrupted: bool) -> Exit {
    match outcome {
        _ if was_interrupted => Exit::Interrupted,
        RunOutcome::Finished => Exit::Finished,
        RunOutcome::LimitReached => Exit::Limit,
        RunOutcome::AwaitingUser => Exit::Waiting,
        RunOutcome::Failed => Exit::Failed,
    }
}
