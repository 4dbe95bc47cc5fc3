//! Starts, resumes, steers and closes the conversations that run in this process.

use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use engine::conversation::{
    Conversation, Effect, EngineParts, Input, InputKind, ResumeOptions, SandboxConnection, State,
    transition,
};
use engine::replay::Trajectory;
use engine::title::first_line;
use protocol::action::MessageAction;
use protocol::record::{ConversationTitled, FeedbackGiven};
use protocol::risk::ConfirmationPolicy;
use protocol::{AgentState, ConversationId, Event, EventId, EventSource, Record, UserId};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::follow::is_at_rest;
use crate::library::FindProvider;
use crate::resume::find_decided;
use crate::running::RunningConversation;
use crate::{
    Claim, CloseReason, ClosedConversation, ConversationParts, Conversations, ConversationsError,
    FollowOptions, Follower, InitialTask, NewConversation, ResumeRequest, StoredConversation,
    UserDecision, follow, title,
};

/// Maximum time until a conversation that is opened starts its sandbox.
const MAX_START_WAIT: Duration = Duration::from_secs(1);

impl Conversations {
    /// Claims the id of a new conversation. Nothing is stored before it is started.
    ///
    /// # Errors
    /// [`ConversationsError::Exists`], [`ConversationsError::Locked`], [`ConversationsError::Host`]
    /// or [`ConversationsError::Store`].
    pub async fn create(&self, id: ConversationId) -> Result<Claim, ConversationsError> {
        let claim = self.claim(&id).await?;
        if !self.store.read(&id, EventId::FIRST, 1).await?.is_empty() {
            return Err(ConversationsError::Exists(id));
        }
        Ok(claim.into_unstarted())
    }

    /// Starts a new conversation in this process. Its sandbox is created in the background.
    ///
    /// # Errors
    /// [`ConversationsError::Conversation`] if its log cannot be opened or is not empty.
    pub async fn start(
        &self,
        mut claim: Claim,
        new: NewConversation,
    ) -> Result<(), ConversationsError> {
        let NewConversation {
            started,
            parts,
            title,
            task,
        } = new;
        let guarded = parts.to_guarded(Arc::clone(&self.store), &claim);
        let message = match &task {
            InitialTask::Message(message) => Some(redact(message, &parts)),
            InitialTask::None | InitialTask::Replay { .. } => None,
        };
        let conversation = Conversation::start_with(
            guarded.clone(),
            claim.id().clone(),
            started,
            title
                .as_deref()
                .map(|title| parts.redactor.text(title))
                .as_deref(),
            message,
        )
        .await?;
        claim.mark_started();
        let needs_title = title.is_none();
        self.register(
            claim,
            conversation,
            guarded,
            parts,
            task.into_trajectory(),
            needs_title,
        );
        Ok(())
    }

    /// Claims a stored conversation and reads its log, to resume it.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`],
    /// [`ConversationsError::Host`] or [`ConversationsError::Store`].
    pub async fn open(
        &self,
        id: &ConversationId,
    ) -> Result<StoredConversation, ConversationsError> {
        // Checked first, so that an unknown id leaves no lock file.
        if self.store.read(id, EventId::FIRST, 1).await?.is_empty() {
            return Err(ConversationsError::Unknown(id.clone()));
        }
        // Claimed before the log is read, because another process may still append to it.
        let claim = self.claim(id).await?;
        StoredConversation::read(Arc::clone(&self.store), claim).await
    }

    /// Resumes a stored conversation in this process. A running action is attached to, never run
    /// again. Returns once the conversation has received the request.
    ///
    /// # Errors
    /// See [`StoredConversation::check`]; [`ConversationsError::Conversation`] if the log cannot be
    /// read.
    pub async fn resume(
        &self,
        stored: StoredConversation,
        parts: ConversationParts,
        request: ResumeRequest,
        confirmation: ConfirmationPolicy,
    ) -> Result<(), ConversationsError> {
        stored.check(&request)?;
        let guarded = parts.to_guarded(Arc::clone(&self.store), &stored.claim);
        let conversation =
            Conversation::recover(guarded.clone(), stored.claim.id().clone()).await?;
        let from = stored.state.next_id;
        let needs_resume = stored.needs_resume(&request);
        let options = stored.resume_options(&request, confirmation);
        let awaits_start = stored.awaits_start(&request);
        let has_input = needs_resume
            || awaits_start && stored.state.agent_state == AgentState::Stopped
            || request.loop_recovery.is_some()
            || request.decision.is_some()
            || request.message.is_some();
        match request.loop_recovery {
            Some(recovery) => conversation.recover_from_loop(recovery)?,
            None if needs_resume => conversation.resume(options)?,
            None if awaits_start => conversation.await_message()?,
            None => {}
        }
        match request.decision {
            Some(UserDecision::Reject(reason)) => {
                let reason = parts.redactor.text(&reason).into_owned();
                follow::decide(&conversation, None, UserDecision::Reject(reason))?;
            }
            Some(decision) => follow::decide(&conversation, request.decided_action, decision)?,
            None => {}
        }
        if let Some(message) = &request.message {
            conversation.send_message(redact(message, &parts))?;
        }
        if has_input {
            // Without this, a follower could still see the conversation at rest.
            conversation.wait_for(|now| now.next_id > from).await;
        } else if awaits_start {
            // A file that a client uploads at once waits for the sandbox.
            let is_starting = |now: &State| now.schedule.sandbox != SandboxConnection::Absent;
            let _ = timeout(MAX_START_WAIT, conversation.wait_for(is_starting)).await;
        }
        let needs_title = stored.state.title.is_none();
        self.register(
            stored.claim,
            conversation,
            guarded,
            parts,
            None,
            needs_title,
        );
        Ok(())
    }

    /// Registers a running conversation, and starts the search for its title.
    fn register(
        &self,
        claim: Claim,
        conversation: Conversation,
        guarded: EngineParts,
        parts: ConversationParts,
        replayed: Option<Trajectory>,
        needs_title: bool,
    ) {
        let conversation = Arc::new(conversation);
        let title_model = parts.title_model.filter(|_| needs_title);
        let title_task = title_model.map(|llm| {
            AbortOnDropHandle::new(tokio::spawn(title::find_title(
                Arc::clone(&conversation),
                llm,
            )))
        });
        self.running.insert(RunningConversation {
            conversation,
            parts: guarded,
            redactor: parts.redactor,
            disposition: parts.disposition,
            replayed,
            claim,
            title_task,
            last_input: Instant::now(),
        });
    }

    /// Returns the ids of the conversations that run in this process.
    pub fn running(&self) -> Vec<ConversationId> {
        self.running.ids()
    }

    /// Whether a conversation runs in this process.
    pub fn is_running(&self, id: &ConversationId) -> bool {
        self.running.with(id, |_| ()).is_ok()
    }

    /// Returns the state of a running conversation. `None` if it does not run in this process.
    pub fn state(&self, id: &ConversationId) -> Option<Arc<State>> {
        self.running
            .with(id, |running| running.conversation.state())
            .ok()
    }

    /// Returns a receiver that changes whenever a conversation starts or stops running in this
    /// process, or is deleted or changed while it does not run.
    pub(crate) fn watch_running(&self) -> watch::Receiver<()> {
        self.running.watch()
    }

    /// Waits until the state of a running conversation matches, or the conversation is closed.
    /// Returns its last state. `None` if it does not run.
    pub(crate) async fn wait_for(
        &self,
        id: &ConversationId,
        matches: impl FnMut(&State) -> bool,
    ) -> Option<Arc<State>> {
        let conversation = self
            .running
            .with(id, |running| Arc::clone(&running.conversation))
            .ok()?;
        Some(conversation.wait_for(matches).await)
    }

    /// Returns the token that is cancelled when another host may run the conversation. Cancelled if
    /// it does not run here.
    pub(crate) fn claim_lost(&self, id: &ConversationId) -> CancellationToken {
        let lost = self
            .running
            .with(id, |running| running.claim.lost().clone());
        lost.unwrap_or_else(|_| {
            let lost = CancellationToken::new();
            lost.cancel();
            lost
        })
    }

    /// Whether the task of a running conversation has ended by itself.
    pub(crate) fn has_failed(&self, id: &ConversationId) -> bool {
        self.running
            .with(id, |running| running.conversation.is_closed())
            .unwrap_or(false)
    }

    /// Whether a running conversation continues only with an input of the user, or has failed.
    pub(crate) fn is_at_rest(&self, id: &ConversationId) -> bool {
        let is_at_rest = |running: &mut RunningConversation| running.is_at_rest();
        self.running.with(id, is_at_rest).unwrap_or(false)
    }

    /// Returns the running conversation that has waited longest for the user, of those of one owner
    /// or of all that are at rest.
    pub(crate) fn longest_at_rest(&self, owner: Option<&UserId>) -> Option<ConversationId> {
        self.running.longest_at_rest(owner)
    }

    /// Follows a running conversation. The first follower also sends the messages of a replayed
    /// user.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`], or [`ConversationsError::Store`] if the log cannot be
    /// read.
    pub async fn follow(
        &self,
        id: &ConversationId,
        options: FollowOptions,
    ) -> Result<Follower, ConversationsError> {
        let (conversation, replayed) = self.running.with(id, |running| {
            (Arc::clone(&running.conversation), running.replayed.take())
        })?;
        Follower::new(conversation, replayed, options).await
    }

    /// Sends a message to a running conversation as the user.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; [`ConversationsError::Conversation`] if it is busy or
    /// closed.
    pub fn send_message(
        &self,
        id: &ConversationId,
        message: MessageAction,
    ) -> Result<(), ConversationsError> {
        self.running.with(id, |running| {
            running.last_input = Instant::now();
            let content = running.redactor.text(&message.content).into_owned();
            Ok(running
                .conversation
                .send_message(MessageAction { content, ..message })?)
        })?
    }

    /// Decides on the action of a running conversation that awaits confirmation.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message); [`ConversationsError::NothingToDecide`] or
    /// [`ConversationsError::OtherActionAwaits`].
    pub(crate) fn decide(
        &self,
        id: &ConversationId,
        action: Option<EventId>,
        decision: UserDecision,
    ) -> Result<(), ConversationsError> {
        self.running.with(id, |running| {
            let action = find_decided(id, &running.conversation.state(), action)?;
            follow::decide(&running.conversation, Some(action), decision)
        })?
    }

    /// Pauses a running conversation's agent. An action in flight completes.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn pause(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.running
            .with(id, |running| Ok(running.conversation.pause()?))?
    }

    /// Resumes the agent of a running conversation that is paused, stopped or has failed.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn continue_agent(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.running.with(id, |running| {
            Ok(running.conversation.resume(ResumeOptions::default())?)
        })?
    }

    /// Sets the title of a running conversation. Returns it as it is stored: one line without
    /// secrets.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn set_title(
        &self,
        id: &ConversationId,
        title: &str,
    ) -> Result<String, ConversationsError> {
        self.running.with(id, |running| {
            let title = first_line(&running.redactor.text(title));
            running.conversation.set_title(&title)?;
            Ok(title)
        })?
    }

    /// Sets the title of a conversation that does not run. The composition root redacts no secrets
    /// in it.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], or
    /// [`ConversationsError::Store`].
    pub async fn set_stored_title(
        &self,
        id: &ConversationId,
        title: &str,
    ) -> Result<(), ConversationsError> {
        let titled = Record::from(ConversationTitled {
            title: first_line(title),
        });
        self.append_to_stored(id, EventSource::Environment, titled)
            .await
    }

    /// Records the user's feedback on a running conversation.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn record_feedback(
        &self,
        id: &ConversationId,
        feedback: FeedbackGiven,
    ) -> Result<(), ConversationsError> {
        self.running.with(id, |running| {
            Ok(running.conversation.record_feedback(feedback)?)
        })?
    }

    /// Records the user's feedback on a conversation that does not run.
    ///
    /// # Errors
    /// See [`set_stored_title`](Self::set_stored_title).
    pub async fn record_stored_feedback(
        &self,
        id: &ConversationId,
        feedback: FeedbackGiven,
    ) -> Result<(), ConversationsError> {
        self.append_to_stored(id, EventSource::User, Record::from(feedback))
            .await
    }

    /// Appends a record to the log of a conversation that does not run.
    async fn append_to_stored(
        &self,
        id: &ConversationId,
        source: EventSource,
        record: Record,
    ) -> Result<(), ConversationsError> {
        let stored = self.open(id).await?;
        let event = Event::new(stored.state.next_id, clock::now(), source, record);
        self.store.append(id, &[event]).await?;
        self.running.notify();
        Ok(())
    }

    /// Removes the sandbox of a conversation that does not run, and records that it has none. Does
    /// nothing if its agent was at work, because it is resumed there.
    ///
    /// # Errors
    /// [`ConversationsError::Locked`] while a process runs it, or an error of the provider or the
    /// store.
    pub(crate) async fn remove_stored_sandbox(
        &self,
        id: &ConversationId,
        find_provider: &FindProvider<'_>,
    ) -> Result<(), ConversationsError> {
        let stored = self.open(id).await?;
        let Some(lease) = stored
            .state
            .lease
            .clone()
            .filter(|_| is_at_rest(&stored.state))
        else {
            return Ok(());
        };
        let provider = find_provider(&lease.runtime, stored.started.host.as_deref())?;
        provider
            .destroy(&lease.sandbox_id)
            .await
            .map_err(ConversationsError::RemoveSandbox)?;
        let removed = Input {
            at: clock::now(),
            kind: InputKind::SandboxRemoved,
        };
        let (_, effects) = transition(stored.state.clone(), removed);
        for effect in effects {
            if let Effect::Append(events) = effect {
                self.store.append(id, &events).await?;
            }
        }
        self.running.notify();
        Ok(())
    }

    /// Stops a running conversation's agent. An action in flight is cancelled.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn stop(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.running
            .with(id, |running| Ok(running.conversation.stop()?))?
    }

    /// Lets the running conversations start nothing any more, and returns once none of them calls a
    /// model or a tool server. What runs in their sandboxes continues.
    pub async fn drain(&self) {
        self.running.drain().await;
    }

    /// Closes a running conversation, shuts down its tool servers, and removes, pauses or keeps its
    /// sandbox. The sandbox of a conversation with a pending action is kept, unless the user
    /// interrupted it.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; [`ConversationsError::Conversation`] if the
    /// conversation's task failed.
    pub async fn close(
        &self,
        id: &ConversationId,
        reason: CloseReason,
    ) -> Result<ClosedConversation, ConversationsError> {
        let (claim, closed) = self.running.remove(id)?.close(reason).await;
        self.remove_empty_workspace(id).await;
        Ok(ClosedConversation {
            state: closed?,
            claim,
        })
    }

    /// Waits until other hosts can open a conversation whose claim this process has dropped, or its
    /// release has failed.
    pub(crate) async fn wait_until_released(&self, id: &ConversationId) {
        self.locks.wait_until_released(id).await;
    }

    pub(crate) async fn claim(&self, id: &ConversationId) -> Result<Claim, ConversationsError> {
        Claim::new(
            id.clone(),
            Arc::clone(&self.locks),
            Arc::clone(&self.workspaces),
        )
        .await
    }
}

fn redact(message: &MessageAction, parts: &ConversationParts) -> MessageAction {
    let content = parts.redactor.text(&message.content).into_owned();
    MessageAction {
        content,
        ..message.clone()
    }
}
