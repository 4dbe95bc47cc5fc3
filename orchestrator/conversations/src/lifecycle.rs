//! Starts, resumes, steers and closes the conversations that run in this process.

use std::sync::Arc;

use engine::conversation::{Conversation, Parts};
use engine::replay::Trajectory;
use protocol::action::MessageAction;
use protocol::risk::ConfirmationPolicy;
use protocol::{ConversationId, EventId};
use tokio_util::task::AbortOnDropHandle;

use crate::running::RunningConversation;
use crate::{
    Claim, CloseReason, ClosedConversation, ConversationParts, Conversations, ConversationsError, Decision,
    FollowOptions, Follower, NewConversation, ResumeRequest, StoredConversation, Task, follow, title,
};

impl Conversations {
    /// Claims the id of a new conversation. Until it is started, nothing of it is stored.
    ///
    /// # Errors
    /// [`ConversationsError::Exists`], [`ConversationsError::Locked`], [`ConversationsError::Host`] or
    /// [`ConversationsError::Store`].
    pub async fn create(&self, id: ConversationId) -> Result<Claim, ConversationsError> {
        let claim = self.claim(&id)?;
        if !self.store.read(&id, EventId::FIRST, 1).await?.is_empty() {
            return Err(ConversationsError::Exists(id));
        }
        Ok(claim.unstarted())
    }

    /// Starts a new conversation in this process. Its sandbox is created in the background.
    ///
    /// # Errors
    /// [`ConversationsError::Conversation`] if its log cannot be opened or is not empty.
    pub async fn start(&self, mut claim: Claim, new: NewConversation) -> Result<(), ConversationsError> {
        let NewConversation { started, parts, title, task } = new;
        let guarded = parts.guarded(Arc::clone(&self.store), &claim);
        let conversation = Conversation::begin(guarded.clone(), claim.id().clone(), started).await?;
        claim.start();
        if let Some(title) = &title {
            conversation.set_title(&parts.redactor.text(title))?;
        }
        // Before the sandbox is there: if it cannot be created, a later message would have another one created.
        if let Task::Message(message) = &task {
            conversation.say(redacted(message, &parts))?;
        }
        let finds_title = title.is_none();
        self.run(claim, conversation, guarded, parts, task.into_trajectory(), finds_title);
        Ok(())
    }

    /// Claims a stored conversation and reads its log, so that it can be resumed.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::Locked`], [`ConversationsError::Host`] or
    /// [`ConversationsError::Store`].
    pub async fn open(&self, id: &ConversationId) -> Result<StoredConversation, ConversationsError> {
        // A conversation that does not exist leaves no lock behind.
        if self.store.read(id, EventId::FIRST, 1).await?.is_empty() {
            return Err(ConversationsError::Unknown(id.clone()));
        }
        // Nothing is decided by a log that another process may be about to end.
        let claim = self.claim(id)?;
        StoredConversation::read(Arc::clone(&self.store), claim).await
    }

    /// Continues a stored conversation in this process. An action that was running is attached to, never run again. Returns
    /// when the conversation has received what the request says.
    ///
    /// # Errors
    /// See [`StoredConversation::check`]; [`ConversationsError::Conversation`] if the log cannot be read.
    pub async fn resume(
        &self,
        stored: StoredConversation,
        parts: ConversationParts,
        request: ResumeRequest,
        confirmation: ConfirmationPolicy,
    ) -> Result<(), ConversationsError> {
        stored.check(&request)?;
        let guarded = parts.guarded(Arc::clone(&self.store), &stored.claim);
        let conversation = Conversation::recover(guarded.clone(), stored.claim.id().clone()).await?;
        let from = stored.state.next_id;
        let needs_resume = stored.needs_resume(&request);
        let terms = stored.terms(&request, confirmation);
        let has_input = needs_resume
            || request.loop_recovery.is_some()
            || request.decision.is_some()
            || request.message.is_some();
        match request.loop_recovery {
            Some(recovery) => conversation.recover_from_loop(recovery)?,
            None if needs_resume => conversation.resume(terms)?,
            None => {}
        }
        match request.decision {
            Some(Decision::Reject(reason)) => {
                let reason = parts.redactor.text(&reason).into_owned();
                follow::decide(&conversation, None, Decision::Reject(reason))?;
            }
            Some(decision) => follow::decide(&conversation, None, decision)?,
            None => {}
        }
        if let Some(content) = request.message {
            conversation.say(redacted(&MessageAction { content, ..Default::default() }, &parts))?;
        }
        if has_input {
            // Until then the conversation looks as much at rest as it was.
            conversation.wait_for(|now| now.next_id > from).await;
        }
        let finds_title = stored.state.title.is_none();
        self.run(stored.claim, conversation, guarded, parts, None, finds_title);
        Ok(())
    }

    /// Registers a conversation that runs from now on.
    fn run(
        &self,
        claim: Claim,
        conversation: Conversation,
        guarded: Parts,
        parts: ConversationParts,
        replayed: Option<Trajectory>,
        finds_title: bool,
    ) {
        let conversation = Arc::new(conversation);
        let title_model = parts.title_model.filter(|_| finds_title);
        let title_task = title_model.map(|llm| {
            AbortOnDropHandle::new(tokio::spawn(title::find_title(Arc::clone(&conversation), llm)))
        });
        self.running.insert(RunningConversation {
            conversation,
            parts: guarded,
            redactor: parts.redactor,
            afterwards: parts.afterwards,
            replayed,
            claim,
            title_task,
        });
    }

    /// The conversations that run in this process.
    pub fn running(&self) -> Vec<ConversationId> {
        self.running.ids()
    }

    /// Follows a running conversation. The first follower also says what a replayed user said.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`], or [`ConversationsError::Store`] if the log cannot be read.
    pub async fn follow(
        &self,
        id: &ConversationId,
        options: FollowOptions,
    ) -> Result<Follower, ConversationsError> {
        let (conversation, replayed) =
            self.running.with(id, |running| (Arc::clone(&running.conversation), running.replayed.take()))?;
        Follower::new(conversation, replayed, options).await
    }

    /// Says something to a running conversation's agent as the user.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; [`ConversationsError::Conversation`] if it is busy or closed.
    pub fn send(&self, id: &ConversationId, message: MessageAction) -> Result<(), ConversationsError> {
        self.running.with(id, |running| {
            let content = running.redactor.text(&message.content).into_owned();
            Ok(running.conversation.say(MessageAction { content, ..message })?)
        })?
    }

    /// Decides on the action of a running conversation that waits for the user, or only on the one that is named.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn confirm(
        &self,
        id: &ConversationId,
        action: Option<EventId>,
        decision: Decision,
    ) -> Result<(), ConversationsError> {
        self.running.with(id, |running| follow::decide(&running.conversation, action, decision))?
    }

    /// Holds a running conversation's agent. The action that is being performed continues to its end.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn pause(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.running.with(id, |running| Ok(running.conversation.pause()?))?
    }

    /// Stops a running conversation's agent. The action that is being performed is cancelled.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn stop(&self, id: &ConversationId) -> Result<(), ConversationsError> {
        self.running.with(id, |running| Ok(running.conversation.stop()?))?
    }

    /// Closes a running conversation: ends its tool servers, and does with its sandbox what its parts say. The sandbox of a
    /// conversation with an unfinished action is kept, unless the user interrupted it.
    ///
    /// # Errors
    /// [`ConversationsError::NotRunning`]; why the conversation's task ended before, if it did.
    pub async fn close(
        &self,
        id: &ConversationId,
        reason: CloseReason,
    ) -> Result<ClosedConversation, ConversationsError> {
        let (claim, closed) = self.running.remove(id)?.close(reason).await;
        self.remove_empty_workspace(id).await;
        Ok(ClosedConversation { state: closed?, claim })
    }

    pub(crate) fn claim(&self, id: &ConversationId) -> Result<Claim, ConversationsError> {
        Claim::new(id.clone(), Arc::clone(&self.locks), Arc::clone(&self.workspaces))
    }
}

fn redacted(message: &MessageAction, parts: &ConversationParts) -> MessageAction {
    let content = parts.redactor.text(&message.content).into_owned();
    MessageAction { content, ..message.clone() }
}
