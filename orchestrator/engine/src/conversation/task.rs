//! The task that owns a conversation: it feeds inputs to [`transition`] and performs the effects.
//!
//! One task a conversation; nobody else writes its log. Everything it starts runs in its own set of tasks and ends
//! with it. It ends when it is closed, when the handle is dropped, or when the log cannot be appended to: what is not
//! in the log has not happened.

mod model_calls;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::time::Duration;

use protocol::action::{CallToolMcpAction, EditAction};
use protocol::record::{ModelRetried, SandboxLeased};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, ConversationId, Event, EventBody, EventId, Observation, Record, SandboxId};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handle::{Afterwards, Command, ConversationError, Live, Parts};
use tracing::Instrument as _;

use super::input::{Effect, Input, InputKind};
use super::state::{AgentId, State};
use super::step::{Place, Steps, Taken};
use super::terminal::interrupted;
use super::transition::transition;
use crate::agent::ModelCall;
use crate::agent::tools::add_code_graph;
use crate::clock;
use crate::draft_editor::DraftResult;
use crate::events::EventLog;
use crate::llm::{Llm, LlmError};
use crate::sandbox::{OutputChunk, Sandbox, SandboxError};
use crate::view::View;
use model_calls::TitleSearch;

/// How often an action that should end is told so, in case the first word was lost with a connection.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);

/// Tries of one call that the task may be behind with; what is more is not told.
const RETRIES: usize = 32;

/// A call that is made again, and the step that makes it, by what it has seen.
struct Retry {
    agent: AgentId,
    seen: EventId,
    retry: ModelRetried,
    is_rate_limited: bool,
}

/// What something that the task started ended with.
enum Done {
    Step { agent: AgentId, seen: EventId, result: Result<Taken, LlmError> },
    Sandbox(Result<Arc<dyn Sandbox>, SandboxError>),
    Action { action: EventId, result: Result<Observation, SandboxError> },
    Draft { action: EventId, result: Result<DraftResult, SandboxError> },
    Title { title: String, call: Option<ModelCall> },
}

/// An action that is to be performed, and the word that it should end.
struct Performance {
    action: EventId,
    request: ActionRequest,
    cancel: CancellationToken,
    /// When nobody has to say the word any more.
    cancelled_at: Option<Instant>,
}

/// The draft of an edit, which is to be written out.
struct Draft {
    edit: EditAction,
    sandbox: Arc<dyn Sandbox>,
    performance: Performance,
}

/// A conversation's owner.
pub(super) struct Task {
    parts: Parts,
    id: ConversationId,
    log: Arc<EventLog>,
    live: broadcast::Sender<Live>,
    show_state: watch::Sender<Arc<State>>,
    state: State,
    /// What of the log is not in the views yet: the rest is held nowhere, so that what a conversation takes does not grow
    /// with its log.
    events: Vec<Arc<Event>>,
    /// The latest sandbox, also when it was lost: what is left of it is still there.
    latest_sandbox: Option<SandboxId>,
    work: JoinSet<Done>,
    /// The agents that have not ended.
    workers: BTreeMap<AgentId, Worker>,
    /// Steps of the conversation's own agent.
    steps: Steps,
    /// What the steps that are being taken tell of their calls.
    retries: (mpsc::Sender<Retry>, mpsc::Receiver<Retry>),
    /// The sandbox, while it is connected.
    sandbox: Option<Arc<dyn Sandbox>>,
    /// The title that is being looked for.
    title: Option<TitleSearch>,
    /// The drafts that wait for others' calls.
    drafts: Vec<Draft>,
    /// Actions in flight. The result of an action that is not here is dropped.
    performing: BTreeMap<EventId, Performing>,
}

/// What keeps an agent's steps.
struct Worker {
    /// What of the log the agent may see, up to its latest step.
    view: View,
    steps: Steps,
    /// The step that is being taken, by what it has seen, or waits for the sandbox or for others' calls. Another step's
    /// result is of no use.
    step: Option<(EventId, Option<AbortHandle>)>,
}

/// How an action that is being performed is told to end.
struct Performing {
    cancel: CancellationToken,
    is_for_sandbox: bool,
    /// The model that writes its draft out, and the task that asks it: of no use where the action has ended.
    draft: Option<(Arc<dyn Llm>, AbortHandle)>,
}

impl Task {
    /// The owner of a log, in the state that the log folds to.
    pub(super) fn new(
        parts: Parts,
        id: ConversationId,
        log: Arc<EventLog>,
        live: broadcast::Sender<Live>,
        show_state: watch::Sender<Arc<State>>,
        state: State,
        events: Vec<Arc<Event>>,
    ) -> Self {
        Self {
            steps: Steps::new(parts.clone()),
            parts,
            id,
            log,
            live,
            show_state,
            state,
            latest_sandbox: latest_sandbox(events.iter().map(Arc::as_ref)),
            events,
            work: JoinSet::new(),
            workers: BTreeMap::new(),
            retries: mpsc::channel(RETRIES),
            sandbox: None,
            title: None,
            drafts: Vec::new(),
            performing: BTreeMap::new(),
        }
    }

    /// Takes the first input and everything after it, until the conversation ends.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        first: InputKind,
    ) -> Result<(), ConversationError> {
        self.take(first).await?;
        loop {
            let command = tokio::select! {
                biased;
                command = commands.recv() => command,
                Some(Retry { agent, seen, retry, is_rate_limited }) = self.retries.1.recv() => {
                    if self.is_step(agent, seen) {
                        self.take(InputKind::CallRetried { agent, retry, is_rate_limited }).await?;
                    }
                    continue;
                }
                Some(done) = self.work.join_next() => {
                    match done {
                        Ok(done) => self.hear(done).await?,
                        Err(error) if error.is_cancelled() => {}
                        Err(_) => return Err(ConversationError::Panicked(self.id)),
                    }
                    continue;
                }
            };
            match command {
                Some(Command::Tell(input)) => self.take(input).await?,
                Some(Command::Entitle { llm, message }) => {
                    if self.title.is_none() && self.state.title.is_none() {
                        self.title = Some(TitleSearch { llm, message, begun: None });
                        self.give_up_unpaid().await?;
                        self.begin_waiting();
                    }
                }
                Some(Command::Close { sandbox }) => return self.close(sandbox).await,
                None => return Ok(()),
            }
        }
    }

    async fn close(mut self, afterwards: Afterwards) -> Result<(), ConversationError> {
        // First, so that nothing is performed in what is being removed.
        self.work.shutdown().await;
        self.parts.provider.wait_for_cleanup().await;
        if afterwards == Afterwards::Keep {
            return Ok(());
        }
        let Some(sandbox) = self.latest_sandbox.take() else { return Ok(()) };
        if afterwards == Afterwards::Pause {
            // It runs on where it cannot be frozen.
            if let Err(error) = self.parts.provider.pause(&sandbox).await {
                tracing::debug!(%sandbox, %error, "pausing the sandbox");
            }
            return Ok(());
        }
        if let Err(error) = self.parts.provider.destroy(&sandbox).await {
            tracing::warn!(%sandbox, %error, "removing the sandbox");
        } else if self.state.lease.is_some() {
            self.record(InputKind::SandboxRemoved).await?;
        }
        Ok(())
    }

    async fn hear(&mut self, done: Done) -> Result<(), ConversationError> {
        match done {
            Done::Step { agent, seen, result } => {
                if self.is_step(agent, seen) {
                    if let Some(worker) = self.workers.get_mut(&agent) {
                        worker.step = None;
                    }
                    let input = match result {
                        Ok(Taken::Told(news)) => InputKind::StepTold { agent, news },
                        Ok(Taken::Refused(reason)) => InputKind::StepRefused { agent, reason },
                        Ok(Taken::Decided(step)) => InputKind::StepDone { agent, seen, result: Ok(step) },
                        Err(error) => InputKind::StepDone { agent, seen, result: Err(error) },
                    };
                    self.take(input).await?;
                }
                Ok(())
            }
            Done::Sandbox(Ok(sandbox)) => {
                let lease = sandbox.lease().clone();
                self.sandbox = Some(sandbox);
                self.take(InputKind::SandboxReady(lease)).await
            }
            Done::Sandbox(Err(error)) => self.lose_sandbox(&error).await,
            Done::Title { title, call } => {
                // It was given up before.
                if self.title.take().is_none() {
                    return Ok(());
                }
                self.take(InputKind::Titled { title, call }).await
            }
            Done::Action { action, result } => {
                // The sandbox that it ran in was lost before.
                if self.performing.remove(&action).is_none() {
                    return Ok(());
                }
                match result {
                    Ok(observation) => self.end_action(action, observation).await,
                    Err(error @ SandboxError::Lost { .. }) => self.lose_sandbox(&error).await,
                    // It was told to end, but what became of it is unknown.
                    Err(error) => self.end_action(action, interrupted(&error.to_string())).await,
                }
            }
            Done::Draft { action, result } => {
                if self.performing.remove(&action).is_none() {
                    return Ok(());
                }
                let drafted = match result {
                    Ok(drafted) => drafted,
                    Err(error @ SandboxError::Lost { .. }) => return self.lose_sandbox(&error).await,
                    Err(error) => DraftResult::refused(error.to_string()),
                };
                self.take(InputKind::EditDrafted { action, drafted }).await
            }
        }
    }

    async fn end_action(
        &mut self,
        action: EventId,
        observation: Observation,
    ) -> Result<(), ConversationError> {
        self.take(InputKind::ActionDone { action, observation: Box::new(observation) }).await
    }

    async fn lose_sandbox(&mut self, error: &SandboxError) -> Result<(), ConversationError> {
        self.sandbox = None;
        self.drafts.clear();
        for (_, performing) in self.performing.extract_if(.., |_, performing| performing.is_for_sandbox) {
            if let Some((_, draft)) = performing.draft {
                draft.abort();
            }
        }
        match error {
            SandboxError::Lost { detail } => {
                self.take(InputKind::SandboxLost { detail: detail.clone() }).await
            }
            other => self.take(InputKind::SandboxFailed { reason: describe(other) }).await,
        }
    }

    /// Decides on an input and performs what was decided, then begins what waits and need not any more.
    async fn take(&mut self, input: InputKind) -> Result<(), ConversationError> {
        self.follow(input).await?;
        for agent in self.take_back() {
            self.follow(InputKind::StepTold { agent, news: Vec::new() }).await?;
        }
        self.give_up_unpaid().await?;
        self.begin_waiting();
        Ok(())
    }

    async fn follow(&mut self, input: InputKind) -> Result<(), ConversationError> {
        for effect in self.decide(input).await? {
            self.perform_effect(effect);
        }
        self.workers.retain(|agent, _| self.state.run(*agent).is_some());
        Ok(())
    }

    /// Decides on an input and keeps only its events: the conversation is being closed.
    async fn record(&mut self, input: InputKind) -> Result<(), ConversationError> {
        self.decide(input).await.map(drop)
    }

    /// The effects of an input, its events already appended and shown.
    async fn decide(&mut self, input: InputKind) -> Result<Vec<Effect>, ConversationError> {
        let state = std::mem::take(&mut self.state);
        let (state, mut effects) = transition(state, Input { at: clock::now(), kind: input });
        self.state = state;
        if let Some(Effect::Append(_)) = effects.first() {
            let Effect::Append(events) = effects.remove(0) else { return Ok(effects) };
            let appended = self.log.append(events).await;
            let events = appended.map_err(|error| ConversationError::Log(self.id.clone(), error))?;
            self.latest_sandbox =
                latest_sandbox(events.iter().map(Arc::as_ref)).or(self.latest_sandbox.take());
            for event in events.iter() {
                tracing::debug!(event = %event.id, kind = event.body.kind(), agent_state = %self.state.agent_state);
            }
            self.events.extend(events.iter().cloned());
        }
        self.show_state.send_replace(Arc::new(self.state.clone()));
        Ok(effects)
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            // Done by `decide`: it comes first, and nothing may begin before it is durable.
            Effect::Append(_) => {}
            Effect::Step { agent, seen } => self.take_step(agent, seen),
            Effect::AbandonStep { agent } => {
                let step = self.workers.get_mut(&agent).and_then(|worker| worker.step.take());
                if let Some((_, Some(step))) = step {
                    step.abort();
                }
            }
            Effect::Create => self.create(),
            Effect::Attach(lease) => self.attach(*lease),
            Effect::Execute { action, request, time_left } => self.execute(action, *request, time_left),
            Effect::CallTool { action, call } => self.call_tool(action, *call),
            Effect::Cancel { action } => {
                if let Some(performing) = self.performing.get(&action) {
                    performing.cancel.cancel();
                }
            }
        }
    }

    fn is_step(&self, agent: AgentId, seen: EventId) -> bool {
        let step = self.workers.get(&agent).and_then(|worker| worker.step.as_ref());
        step.is_some_and(|(current, _)| *current == seen)
    }

    /// Lets the view of every agent go on to the end of the log.
    fn take_in(&mut self) {
        for (agent, _) in self.state.agents() {
            let worker = self.workers.entry(agent).or_insert_with(|| {
                let child = agent.and_then(|id| self.state.children.get(&id));
                let steps = child.and_then(|child| self.steps.of(&child.agent));
                Worker {
                    view: View::for_agent(agent),
                    steps: steps.unwrap_or_else(|| self.steps.clone()),
                    step: None,
                }
            });
            worker.view.update(&self.events);
        }
        self.events.clear();
    }

    fn take_step(&mut self, agent: AgentId, seen: EventId) {
        self.take_in();
        if let Some(worker) = self.workers.get_mut(&agent) {
            worker.step = Some((seen, None));
        }
    }

    fn current_place(&self) -> Place {
        Place { sandbox: self.sandbox.clone(), repository: self.state.repository().unwrap_or_default() }
    }

    /// The steps of the agent whose action it is.
    fn steps_of(&self, action: EventId) -> Steps {
        let pending = self.state.pending().find(|(_, pending)| pending.action == action);
        let child = pending.and_then(|(agent, _)| self.state.children.get(&agent?));
        child.and_then(|child| self.steps.of(&child.agent)).unwrap_or_else(|| self.steps.clone())
    }

    /// A tool server's answer, or that the user stopped it.
    fn call_tool(&mut self, action: EventId, call: CallToolMcpAction) {
        let Some(cancel) = self.begin_performing(action, false) else { return };
        let (steps, place) = (self.steps_of(action), self.current_place());
        self.work.spawn(async move {
            let answer = async {
                // One that was started by an earlier process, or died, is started again.
                drop(steps.offer(&place).await);
                steps.tool_servers().call(&call.name, &call.arguments).await
            };
            let observation = tokio::select! {
                biased;
                () = cancel.cancelled() => interrupted("the user stopped the tool server's call"),
                observation = answer => observation,
            };
            Done::Action { action, result: Ok(observation) }
        });
    }

    fn create(&mut self) {
        let Parts { provider, spec, .. } = self.parts.clone();
        let live = self.live.clone();
        let creating = async move {
            let on_progress = move |progress| drop(live.send(Live::Start(progress)));
            Done::Sandbox(provider.create(&spec, &on_progress).await.map(Arc::from))
        };
        self.work.spawn(creating.instrument(tracing::info_span!("create_sandbox")));
    }

    fn attach(&mut self, lease: SandboxLeased) {
        let provider = Arc::clone(&self.parts.provider);
        self.work.spawn(async move {
            // The sandbox may be paused. If it cannot be resumed, attaching fails.
            if let Err(error) = provider.resume(&lease.sandbox_id).await {
                tracing::debug!(sandbox = %lease.sandbox_id, %error, "resuming the sandbox");
            }
            Done::Sandbox(provider.attach(&lease).await.map(Arc::from))
        });
    }

    fn execute(&mut self, action: EventId, request: ActionRequest, time_left: Option<Duration>) {
        let Some(sandbox) = self.sandbox.clone() else {
            return tracing::error!(%action, "an action was started without a sandbox");
        };
        let Some(cancel) = self.begin_performing(action, true) else { return };
        let cancelled_at = time_left.and_then(|left| Instant::now().checked_add(left));
        self.perform(sandbox, Performance { action, request, cancel, cancelled_at });
    }

    /// The word by which an action is told to end; nothing when it is being performed already.
    fn begin_performing(&mut self, action: EventId, is_for_sandbox: bool) -> Option<CancellationToken> {
        let btree_map::Entry::Vacant(entry) = self.performing.entry(action) else { return None };
        let cancel = CancellationToken::new();
        entry.insert(Performing { cancel: cancel.clone(), is_for_sandbox, draft: None });
        Some(cancel)
    }

    fn perform(&mut self, sandbox: Arc<dyn Sandbox>, performance: Performance) {
        if let SandboxAction::Edit(edit) = &performance.request.action
            && edit.is_draft()
        {
            let edit = edit.clone();
            return self.write_out(Draft { edit, sandbox, performance });
        }
        let Performance { action, mut request, cancel, cancelled_at } = performance;
        add_code_graph(&mut request);
        let id = ActionId::for_event(&self.id, action);
        let live = self.live.clone();
        let performing = async move {
            tracing::debug!("performing an action");
            let on_output = move |chunk: OutputChunk<'_>| {
                drop(live.send(match chunk {
                    OutputChunk::Bytes { bytes, .. } => Live::Output { action, bytes: bytes.to_vec() },
                    OutputChunk::Gap { from, to } => {
                        Live::OutputGap { action, bytes: to.saturating_sub(from) }
                    }
                }));
            };
            let result = tokio::select! {
                biased;
                result = sandbox.execute(&id, &request, &on_output) => result,
                never = cancel_when_told(sandbox.as_ref(), &id, &cancel, cancelled_at) => match never {},
            };
            if let Err(error) = &result
                && !matches!(error, SandboxError::Lost { .. })
                && let Err(error) = sandbox.cancel(&id).await
            {
                tracing::warn!(action = %id, %error, "cancelling an action that cannot be followed");
            }
            tracing::debug!(is_ok = result.is_ok(), "the action has ended");
            Done::Action { action, result }
        };
        self.work.spawn(performing.instrument(tracing::info_span!("action", id = %action)));
    }
}

fn latest_sandbox<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<SandboxId> {
    let leased = |event: &'a Event| match &event.body {
        EventBody::Record(Record::SandboxLeased(lease)) => Some(&lease.sandbox_id),
        _ => None,
    };
    events.into_iter().filter_map(leased).last().cloned()
}

/// Waits for the word or its time, then says it until it is heard: this future is dropped when the action has ended.
async fn cancel_when_told(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    cancel: &CancellationToken,
    cancelled_at: Option<Instant>,
) -> std::convert::Infallible {
    match cancelled_at {
        None => cancel.cancelled().await,
        // Either way it is told; that it was told in time is no error.
        Some(at) => drop(tokio::time::timeout_at(at, cancel.cancelled()).await),
    }
    loop {
        if let Err(error) = sandbox.cancel(id).await {
            tracing::warn!(action = %id, %error, "cancelling an action");
        }
        tokio::time::sleep(CANCEL_AGAIN).await;
    }
}

/// An error with its causes, and the end of the sandbox's logs where there are some.
fn describe(error: &SandboxError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    if let SandboxError::Start { logs, .. } = error
        && !logs.trim().is_empty()
    {
        text.push_str(&format!("\nthe sandbox wrote:\n{}", logs.trim_end()));
    }
    text
}
