//! Lists, reads, forks, exports and deletes stored conversations.

use std::sync::Arc;
use std::time::Duration;

use engine::clock;
use engine::conversation::{self, read_state};
use engine::events::{ConversationQuery, StoreError};
use engine::replay::{ReplayDifference, Trajectory};
use engine::sandbox::SandboxProvider;
use protocol::record::ConversationStarted;
use protocol::{ConversationId, Event, EventBody, EventId, Record, UserId};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::host::HostError;
use crate::list;
use crate::list::{ConversationEntry, ConversationFilter};
use crate::log_pages::LogPages;
use crate::selector::ConversationSelector;

/// Number of conversations that a check of the store lists.
const CHECKED_PAGE_SIZE: usize = 20;

/// Finds the provider of a runtime's sandboxes, on the host that a conversation with the runtime
/// `ssh` has recorded.
pub type FindProvider<'a> =
    dyn Fn(&str, Option<&str>) -> Result<Arc<dyn SandboxProvider>, HostError> + Send + Sync + 'a;

/// What [`Conversations::delete`] does with a conversation whose sandbox or folder cannot be
/// removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// Keeps it, so that deleting can be repeated.
    KeepOnFailure,
    /// Deletes it anyway.
    Force,
}

impl Conversations {
    /// Checks that events can be stored and that conversations can be listed. May take as long as
    /// the store's retries do.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn check_store(&self) -> Result<(), ConversationsError> {
        self.store.check_writable().await?;
        // Parts of a damaged file can be written although others cannot be read.
        self.store
            .list(&ConversationQuery {
                limit: CHECKED_PAGE_SIZE,
                ..Default::default()
            })
            .await?;
        Ok(())
    }

    /// Compares a replay with its trajectory. Returns the actions whose observations differ.
    ///
    /// # Errors
    /// See [`events`](Self::events).
    pub async fn compare_replay(
        &self,
        id: &ConversationId,
        trajectory: &Trajectory,
    ) -> Result<Vec<ReplayDifference>, ConversationsError> {
        Ok(trajectory.differences(&self.events(id).await?))
    }

    /// Lists the conversations that a filter selects, the latest first.
    ///
    /// # Errors
    /// [`ConversationsError::Store`]. A damaged conversation is part of the list.
    pub async fn list(
        &self,
        filter: &ConversationFilter,
    ) -> Result<Vec<ConversationEntry>, ConversationsError> {
        list::list(self.store.as_ref(), self.locks.as_ref(), filter).await
    }

    /// Lists the conversations whose title, start of the first message, model or folder contain a
    /// text, in any case.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn search(&self, text: &str) -> Result<Vec<ConversationEntry>, ConversationsError> {
        self.list(&ConversationFilter {
            text: Some(text.to_owned()),
            ..Default::default()
        })
        .await
    }

    /// Finds the selected conversation.
    ///
    /// # Errors
    /// See [`ConversationSelector::find_in`]; [`ConversationsError::Store`].
    pub async fn find(
        &self,
        selector: &ConversationSelector,
    ) -> Result<ConversationId, ConversationsError> {
        selector.find_in(&self.store.conversations().await?.conversations)
    }

    /// Finds the selected conversations, with a single read of the list.
    ///
    /// # Errors
    /// [`ConversationsError::Store`]. For each selector, see [`ConversationSelector::find_in`].
    pub async fn find_all(
        &self,
        selectors: &[ConversationSelector],
    ) -> Result<Vec<Result<ConversationId, ConversationsError>>, ConversationsError> {
        let list = self.store.conversations().await?.conversations;
        Ok(selectors
            .iter()
            .map(|selector| selector.find_in(&list))
            .collect())
    }

    /// Finds the conversations that no process runs and whose last event is older than `age`.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn find_older_than(
        &self,
        age: Duration,
    ) -> Result<Vec<ConversationId>, ConversationsError> {
        let cutoff = clock::epoch_seconds(&clock::now()) - age.as_secs_f64();
        let all = self.store.conversations().await?.conversations.into_iter();
        let old = all.filter(|summary| clock::epoch_seconds(&summary.last_updated_at) < cutoff);
        let mut old: Vec<_> = old.map(|summary| summary.id).collect();
        let locked = self.locks.locked(&old).await?;
        old.retain(|id| !locked.contains(id));
        Ok(old)
    }

    /// Reads at most `limit` events of a conversation from `from` on. Empty if the log ends before.
    /// Events may be large: see [`read_page`](Self::read_page).
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn read(
        &self,
        id: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, ConversationsError> {
        Ok(self.store.read(id, from, limit).await?)
    }

    /// Returns the address of the other host that runs a conversation. `None` if no other host
    /// does, or it has no address.
    ///
    /// # Errors
    /// [`ConversationsError::Host`].
    pub async fn other_host(
        &self,
        id: &ConversationId,
    ) -> Result<Option<String>, ConversationsError> {
        if self.is_running(id) && !self.claim_lost(id).is_cancelled() {
            return Ok(None);
        }
        Ok(self.locks.other_holder(id).await?)
    }

    /// Returns the end of a log that other hosts may append to: see
    /// [`EventStore::subscribe`](engine::events::EventStore::subscribe).
    pub(crate) fn subscribe(&self, id: &ConversationId) -> Option<watch::Receiver<EventId>> {
        self.store.subscribe(id)
    }

    /// Returns the number of events of a conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn event_count(&self, id: &ConversationId) -> Result<u64, ConversationsError> {
        let listed = self.store.find(id).await?;
        listed
            .map(|listed| listed.summary.events)
            .ok_or_else(|| ConversationsError::Unknown(id.clone()))
    }

    /// Returns the user who owns a conversation. `None` for the operator.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn owner(&self, id: &ConversationId) -> Result<Option<UserId>, ConversationsError> {
        let listed = self.store.find(id).await?;
        let listed = listed.ok_or_else(|| ConversationsError::Unknown(id.clone()))?;
        Ok(listed.overview.owner)
    }

    /// Whether a user owns a conversation. `false` if there is no such conversation, or its entry
    /// is damaged.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn is_owned_by(
        &self,
        id: &ConversationId,
        user: &UserId,
    ) -> Result<bool, ConversationsError> {
        match self.store.find(id).await {
            Ok(listed) => {
                Ok(listed.is_some_and(|listed| listed.overview.owner.as_ref() == Some(user)))
            }
            Err(StoreError::DamagedEntry { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the entry of one conversation in the list. `None` if there is no such conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn entry(
        &self,
        id: &ConversationId,
    ) -> Result<Option<ConversationEntry>, ConversationsError> {
        let Some(listed) = self.store.find(id).await? else {
            return Ok(None);
        };
        let locked = self.locks.locked(std::slice::from_ref(id)).await?;
        Ok(Some(
            list::entry(self.store.as_ref(), listed, &locked).await,
        ))
    }

    /// Returns the settings that a conversation was started with. `None` if there is no such
    /// conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn started(
        &self,
        id: &ConversationId,
    ) -> Result<Option<ConversationStarted>, ConversationsError> {
        let first = self.store.read(id, EventId::FIRST, 1).await?.pop();
        Ok(first.and_then(|event| match event.body {
            EventBody::Record(Record::ConversationStarted(started)) => Some(started),
            _ => None,
        }))
    }

    /// Reads the whole log of a conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn events(&self, id: &ConversationId) -> Result<Vec<Event>, ConversationsError> {
        let (mut events, mut pages) = (
            Vec::new(),
            LogPages::new(Arc::clone(&self.store), id.clone()),
        );
        loop {
            let page = pages.next_page().await?;
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        if events.is_empty() {
            Err(ConversationsError::Unknown(id.clone()))
        } else {
            Ok(events)
        }
    }

    /// Returns a conversation as a V0 trajectory, in memory: see [`trajectory`](Self::trajectory).
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn export(
        &self,
        id: &ConversationId,
        with_screenshots: bool,
    ) -> Result<Vec<Event>, ConversationsError> {
        let (mut events, mut pages) = (Vec::new(), self.trajectory(id, with_screenshots).await?);
        while let Some(page) = pages.next().await? {
            events.extend(page);
        }
        Ok(events)
    }

    /// Returns a conversation as V0 stores it: its trajectory, with ids from 0 without gaps.
    /// [`import`](Self::import) reads it.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn export_v0(&self, id: &ConversationId) -> Result<Vec<Event>, ConversationsError> {
        Ok(conversation::renumber(self.export(id, true).await?))
    }

    /// Creates the paused conversation `id`, which shares the events of another one up to `last`,
    /// or all of them. It has no sandbox yet, and a copy of the other one's own workspace.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`], [`ConversationsError::UnknownEvent`], or an error of the
    /// store or the workspaces.
    pub async fn fork(
        &self,
        from: &ConversationId,
        last: Option<EventId>,
        id: &ConversationId,
    ) -> Result<(), ConversationsError> {
        let log = self.events(from).await?;
        let end = log.last().map_or(EventId::FIRST, |event| event.id);
        let last = last.unwrap_or(end);
        let forked = from.clone();
        // The content of a log decides what this costs.
        let forking =
            spawn_blocking(move || conversation::fork(&log, &forked, last, &clock::now()));
        let forked = forking
            .await
            .map_err(|panic| HostError::Failed(panic.into()))?;
        let Some(mut events) = forked else {
            return Err(ConversationsError::UnknownEvent {
                conversation: from.clone(),
                event: last,
                last: end,
            });
        };
        if let Some(EventBody::Record(Record::ConversationStarted(started))) =
            events.first_mut().map(|event| &mut event.body)
            && let Some(copy) = self
                .workspaces
                .fork(from, started.workspace.as_deref(), id)
                .await?
        {
            started.workspace = Some(copy);
        }
        self.store.append(id, &events).await?;
        Ok(())
    }

    /// Stores a conversation of V0 under its id. It has no sandbox yet, and a working agent is
    /// paused.
    ///
    /// # Errors
    /// [`ConversationsError::Exists`], [`ConversationsError::Locked`], or an error of the store.
    pub async fn import(
        &self,
        id: &ConversationId,
        started: ConversationStarted,
        title: Option<String>,
        events: Vec<Event>,
    ) -> Result<(), ConversationsError> {
        let mut claim = self.create(id.clone()).await?;
        let log = conversation::import(started, title, events, &clock::now());
        self.store.append(id, &log).await?;
        claim.mark_started();
        self.remove_empty_workspace(id).await;
        Ok(())
    }

    /// Deletes a conversation with its sandbox and its own workspace. The log is removed last, so
    /// that a failed deletion can be repeated. Reports each failure that [`DeleteMode::Force`]
    /// ignores.
    ///
    /// # Errors
    /// [`ConversationsError::Locked`] while a process runs it, or an error of the provider, the
    /// workspaces or the store.
    pub async fn delete(
        &self,
        id: &ConversationId,
        mode: DeleteMode,
        find_provider: &FindProvider<'_>,
        report_ignored: &mut (dyn FnMut(ConversationsError) + Send),
    ) -> Result<(), ConversationsError> {
        let _claim = self.claim(id).await?;
        let sandbox = self.delete_sandbox(id, find_provider).await;
        let workspace = self.workspaces.remove(id).await;
        let workspace = workspace.map_err(ConversationsError::from);
        for deleted in [sandbox, workspace] {
            match deleted {
                Err(error) if mode == DeleteMode::Force => report_ignored(error),
                deleted => deleted?,
            }
        }
        self.store.remove(id).await?;
        self.running.notify();
        Ok(())
    }

    async fn delete_sandbox(
        &self,
        id: &ConversationId,
        find_provider: &FindProvider<'_>,
    ) -> Result<(), ConversationsError> {
        let state = match read_state(self.store.as_ref(), id).await {
            Ok(state) => state,
            Err(error @ StoreError::Damaged { .. }) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(conversation = %id, error, "a damaged conversation is deleted: a sweep finds its sandbox");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(lease) = &state.lease else {
            return Ok(());
        };
        let host = state
            .started
            .as_ref()
            .and_then(|started| started.host.as_deref());
        let provider = find_provider(&lease.runtime, host)?;
        provider
            .destroy(&lease.sandbox_id)
            .await
            .map_err(ConversationsError::RemoveSandbox)
    }

    /// Removes a conversation's own workspace if it is empty and no sandbox can have it mounted.
    /// Requires its lock.
    pub(crate) async fn remove_empty_workspace(&self, id: &ConversationId) {
        if self.workspaces.is_empty(id)
            && read_state(self.store.as_ref(), id)
                .await
                .is_ok_and(|state| state.lease.is_none())
        {
            self.workspaces.remove_if_empty(id);
        }
    }
}
