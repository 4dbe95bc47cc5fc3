//! Starts, resumes and closes the conversations that run in this process.

use std::sync::Arc;

use engine::conversation::{Conversation, EngineParts, InputKind, State};
use protocol::action::MessageAction;
use protocol::risk::ConfirmationPolicy;
use protocol::{ConversationId, EventId, UserCommand, UserId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::claim::Claim;
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::follow::Follower;
use crate::follow::is_idle;
use crate::library::FindProvider;
use crate::parts::ConversationParts;
use crate::running::RunningConversation;
use crate::running::{CloseReason, ClosedConversation};
use crate::start::NewConversation;
use crate::stored::StoredConversation;
use crate::title;

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
        let mut guarded = parts.to_guarded(Arc::clone(&self.store), &claim);
        guarded.replayed_user = task.replayed_user();
        let message = task.into_message().map(|message| MessageAction {
            content: parts.redactor.text(&message.content).into_owned(),
            ..message
        });
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
        self.register(claim, conversation, guarded, parts, needs_title);
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

    /// Runs a stored conversation in this process. An agent that was working continues, and a
    /// running action is attached to, never run again. A `confirmation` policy replaces the
    /// conversation's.
    ///
    /// # Errors
    /// [`ConversationsError::Conversation`] if the log cannot be read.
    pub async fn resume(
        &self,
        stored: StoredConversation,
        parts: ConversationParts,
        confirmation: Option<ConfirmationPolicy>,
    ) -> Result<(), ConversationsError> {
        let guarded = parts.to_guarded(Arc::clone(&self.store), &stored.claim);
        let conversation =
            Conversation::recover(guarded.clone(), stored.claim.id().clone()).await?;
        if let Some(policy) = confirmation {
            // Before what the user sends next.
            drop(conversation.submit(UserCommand::SetConfirmation { policy })?);
        }
        let needs_title = stored.state.title.is_none();
        self.register(stored.claim, conversation, guarded, parts, needs_title);
        Ok(())
    }

    /// Registers a running conversation, and starts the search for its title.
    fn register(
        &self,
        claim: Claim,
        conversation: Conversation,
        guarded: EngineParts,
        parts: ConversationParts,
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
    pub(crate) fn is_idle(&self, id: &ConversationId) -> bool {
        let is_idle = |running: &mut RunningConversation| running.is_idle();
        self.running.with(id, is_idle).unwrap_or(false)
    }

    /// Returns the running conversation that has waited longest for the user, of those of one owner
    /// or of all that are idle.
    pub(crate) fn longest_idle(&self, owner: Option<&UserId>) -> Option<ConversationId> {
        self.running.longest_idle(owner)
    }

    /// Follows a running conversation from an event on.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`], or [`ConversationsError::Store`] if the log cannot be
    /// read.
    pub async fn follow(
        &self,
        id: &ConversationId,
        from: EventId,
    ) -> Result<Follower, ConversationsError> {
        let conversation = self
            .running
            .with(id, |running| Arc::clone(&running.conversation))?;
        Follower::new(conversation, from).await
    }

    /// Removes the sandbox of a conversation that does not run, and records that it has none. Does
    /// nothing if its agent was working, because it is resumed there.
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
            .filter(|_| is_idle(&stored.state))
        else {
            return Ok(());
        };
        let provider = find_provider(&lease.runtime, stored.started.host.as_deref())?;
        provider
            .destroy(&lease.sandbox_id)
            .await
            .map_err(ConversationsError::RemoveSandbox)?;
        self.append_input(&stored, InputKind::SandboxRemoved).await
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
