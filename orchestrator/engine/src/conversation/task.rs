//! The task that owns a conversation: it feeds inputs to [`transition`] and performs the effects.
//!
//! One task a conversation; nobody else writes its log. Everything it starts runs in its own set of tasks and ends
//! with it. It ends when it is closed, when the handle is dropped, or when the log cannot be appended to: what is not
//! in the log has not happened.

use std::sync::Arc;
use std::time::Duration;

use protocol::action::CallToolMcpAction;
use protocol::record::{ModelRetried, SandboxLeased};
use protocol::sandbox_api::ActionRequest;
use protocol::{ActionId, Body, ConversationId, Event, EventId, Observation, Record, SandboxId};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handle::{Afterwards, Command, ConversationError, Live, Parts};
use super::input::{Effect, Input, InputKind};
use super::state::State;
use super::step::{Place, Steps, Taken};
use super::transition::{interrupted, transition};
use crate::clock;
use crate::events::EventLog;
use crate::llm::{LlmError, LlmErrorKind, LlmProgress};
use crate::sandbox::{OutputChunk, Sandbox, SandboxError};
use crate::view::View;

/// How often an action that should end is told so, in case the first word was lost with a connection.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);

/// Tries of one call that the task may be behind with; what is more is not told.
const RETRIES: usize = 32;

/// A call that is made again, and the step that makes it, by what it has seen.
type Retry = (EventId, InputKind);

/// The sandbox as the task holds it.
enum Slot {
    Absent,
    /// It is being placed or reached.
    Awaited,
    Held(Arc<dyn Sandbox>),
}

/// What something that the task started ended with.
enum Done {
    Step { seen: EventId, result: Result<Taken, LlmError> },
    Sandbox(Result<Arc<dyn Sandbox>, SandboxError>),
    Action { action: EventId, result: Result<Observation, SandboxError> },
}

/// An action that is to be performed, and the word that it should end.
struct Performance {
    action: EventId,
    request: ActionRequest,
    cancel: CancellationToken,
    /// When nobody has to say the word any more.
    cancelled_at: Option<Instant>,
}

/// A conversation's owner.
pub(super) struct Task {
    parts: Parts,
    id: ConversationId,
    log: Arc<EventLog>,
    live: broadcast::Sender<Live>,
    show_state: watch::Sender<Arc<State>>,
    state: State,
    /// What of the log is not in the view yet: the rest is held nowhere, so that what a conversation takes does not grow
    /// with its log.
    events: Vec<Arc<Event>>,
    /// The latest sandbox, also when it was lost: what is left of it is still there.
    latest_sandbox: Option<SandboxId>,
    /// What of the log the agent may see, up to its latest step.
    view: View,
    work: JoinSet<Done>,
    /// The step that is being taken, by what it has seen, or waits for the sandbox. Another step's result is of no use.
    step: Option<(EventId, Option<AbortHandle>)>,
    steps: Steps,
    /// What the step that is being taken tells of its call.
    retries: (mpsc::Sender<Retry>, mpsc::Receiver<Retry>),
    slot: Slot,
    /// The action that waits for the sandbox.
    waiting: Option<Performance>,
    /// The action that is being performed or waits.
    performing: Option<(EventId, CancellationToken)>,
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
            view: View::default(),
            work: JoinSet::new(),
            step: None,
            retries: mpsc::channel(RETRIES),
            slot: Slot::Absent,
            waiting: None,
            performing: None,
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
                Some((step, retry)) = self.retries.1.recv() => {
                    if self.step.as_ref().is_some_and(|(seen, _)| *seen == step) {
                        self.take(retry).await?;
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
                Some(Command::Close { sandbox }) => return self.close(sandbox).await,
                None => return Ok(()),
            }
        }
    }

    async fn close(mut self, afterwards: Afterwards) -> Result<(), ConversationError> {
        // First, so that nothing is performed in what is being removed.
        self.work.shutdown().await;
        self.parts.provider.settle().await;
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
            Done::Step { seen, result } => {
                if self.step.take_if(|(current, _)| *current == seen).is_some() {
                    let input = match result {
                        Ok(Taken::Told(news)) => InputKind::StepTold { news },
                        Ok(Taken::Decided(step)) => InputKind::StepDone { seen, result: Ok(step) },
                        Err(error) => InputKind::StepDone { seen, result: Err(error) },
                    };
                    self.take(input).await?;
                }
                Ok(())
            }
            Done::Sandbox(Ok(sandbox)) => {
                self.slot = Slot::Held(Arc::clone(&sandbox));
                // The lease is in the log before anything is performed under it.
                self.take(InputKind::SandboxReady(sandbox.lease().clone())).await?;
                if let Some(waiting) = self.waiting.take() {
                    self.perform(sandbox, waiting);
                }
                self.begin_waiting_step();
                Ok(())
            }
            Done::Sandbox(Err(error)) => {
                self.lose_sandbox(&error).await?;
                // It is taken without.
                self.begin_waiting_step();
                Ok(())
            }
            Done::Action { action, result } => {
                self.performing = None;
                match result {
                    Ok(observation) => self.end_action(action, observation).await,
                    Err(error @ SandboxError::Lost { .. }) => self.lose_sandbox(&error).await,
                    // It was told to end, but what became of it is unknown.
                    Err(error) => self.end_action(action, interrupted(&error.to_string())).await,
                }
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
        self.slot = Slot::Absent;
        self.waiting = None;
        if self.state.is_for_sandbox() {
            self.performing = None;
        }
        match error {
            SandboxError::Lost { detail } => {
                self.take(InputKind::SandboxLost { detail: detail.clone() }).await
            }
            other => self.take(InputKind::SandboxFailed { reason: describe(other) }).await,
        }
    }

    /// Decides on an input and performs what was decided.
    async fn take(&mut self, input: InputKind) -> Result<(), ConversationError> {
        for effect in self.decide(input).await? {
            self.perform_effect(effect);
        }
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
            let appended = self.log.append(&events).await;
            appended.map_err(|error| ConversationError::Log(self.id.clone(), error))?;
            self.latest_sandbox = latest_sandbox(&events).or(self.latest_sandbox.take());
            self.events.extend(events.into_iter().map(Arc::new));
        }
        self.show_state.send_replace(Arc::new(self.state.clone()));
        Ok(effects)
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            // Done by `decide`: it comes first, and nothing may begin before it is durable.
            Effect::Append(_) => {}
            Effect::Step { seen } => self.take_step(seen),
            Effect::AbandonStep => {
                if let Some((_, Some(step))) = self.step.take() {
                    step.abort();
                }
            }
            Effect::Place => self.place(),
            Effect::Attach(lease) => self.attach(*lease),
            Effect::Execute { action, request, time_left } => self.execute(action, *request, time_left),
            Effect::CallTool { action, call } => self.call_tool(action, *call),
            Effect::Forget { action } => {
                self.waiting.take_if(|waiting| waiting.action == action);
                self.performing.take_if(|(current, _)| *current == action);
            }
            Effect::Cancel { action } => {
                if let Some((_, cancel)) = self.performing.as_ref().filter(|(current, _)| *current == action)
                {
                    cancel.cancel();
                }
            }
        }
    }

    /// Where something of the sandbox is needed for it, the step waits until that is reached.
    fn take_step(&mut self, seen: EventId) {
        self.view.take_in(&self.events);
        self.events.clear();
        if matches!(self.slot, Slot::Held(_)) || !self.steps.want_sandbox(&self.view) {
            return self.begin_step(seen);
        }
        self.step = Some((seen, None));
        match self.state.lease.clone() {
            Some(lease) => self.attach(lease),
            None => self.place(),
        }
    }

    fn held(&self) -> Option<Arc<dyn Sandbox>> {
        match &self.slot {
            Slot::Held(sandbox) => Some(Arc::clone(sandbox)),
            Slot::Absent | Slot::Awaited => None,
        }
    }

    /// The step that waited, if one did.
    fn begin_waiting_step(&mut self) {
        if let Some((seen, None)) = self.step {
            self.begin_step(seen);
        }
    }

    fn begin_step(&mut self, seen: EventId) {
        let view = self.view.clone();
        let steps = self.steps.clone();
        let place = Place { sandbox: self.held(), repository: self.state.repository().unwrap_or_default() };
        let live = self.live.clone();
        let retries = self.retries.0.clone();
        let handle = self.work.spawn(async move {
            let on_progress = move |progress| {
                if let LlmProgress::Retrying { attempt, attempts, after, error } = &progress {
                    let retry = ModelRetried {
                        attempt: *attempt,
                        attempts: *attempts,
                        after: after.as_secs_f64(),
                        reason: error.to_string(),
                    };
                    let is_rate_limited = *error == LlmErrorKind::RateLimited;
                    // That the task is far behind is no failure.
                    drop(retries.try_send((seen, InputKind::CallRetried { retry, is_rate_limited })));
                }
                // Nor that nobody hears it now.
                drop(live.send(Live::Model(progress)));
            };
            Done::Step { seen, result: steps.take(view, &place, &on_progress).await }
        });
        self.step = Some((seen, Some(handle)));
    }

    /// A tool server's answer, or that the user stopped it.
    fn call_tool(&mut self, action: EventId, call: CallToolMcpAction) {
        let cancel = CancellationToken::new();
        self.performing = Some((action, cancel.clone()));
        let tool_servers = Arc::clone(&self.parts.tool_servers);
        let sandbox = self.held();
        self.work.spawn(async move {
            let answer = async {
                // One that was started by an earlier process, or died, is started again.
                drop(tool_servers.offer(sandbox.as_ref()).await);
                tool_servers.call(&call.name, &call.arguments).await
            };
            let observation = tokio::select! {
                biased;
                () = cancel.cancelled() => interrupted("the user stopped the tool server's call"),
                observation = answer => observation,
            };
            Done::Action { action, result: Ok(observation) }
        });
    }

    fn place(&mut self) {
        if matches!(self.slot, Slot::Absent) {
            self.slot = Slot::Awaited;
            let Parts { provider, spec, .. } = self.parts.clone();
            let live = self.live.clone();
            self.work.spawn(async move {
                let on_progress = move |progress| drop(live.send(Live::Start(progress)));
                Done::Sandbox(provider.create(&spec, &on_progress).await.map(Arc::from))
            });
        }
    }

    /// Also of a sandbox that is held: whoever asks waits for the word that it is ready.
    fn attach(&mut self, lease: SandboxLeased) {
        match &self.slot {
            Slot::Absent => {
                self.slot = Slot::Awaited;
                let provider = Arc::clone(&self.parts.provider);
                self.work.spawn(async move {
                    // It may have been left frozen. Where it cannot go on, attaching says so.
                    if let Err(error) = provider.resume(&lease.sandbox_id).await {
                        tracing::debug!(sandbox = %lease.sandbox_id, %error, "resuming the sandbox");
                    }
                    Done::Sandbox(provider.attach(&lease).await.map(Arc::from))
                });
            }
            Slot::Held(sandbox) => {
                let sandbox = Arc::clone(sandbox);
                self.work.spawn(async move { Done::Sandbox(Ok(sandbox)) });
            }
            Slot::Awaited => {}
        }
    }

    fn execute(&mut self, action: EventId, request: ActionRequest, time_left: Option<Duration>) {
        let cancel = CancellationToken::new();
        self.performing = Some((action, cancel.clone()));
        let cancelled_at = time_left.and_then(|left| Instant::now().checked_add(left));
        let performance = Performance { action, request, cancel, cancelled_at };
        match &self.slot {
            Slot::Held(sandbox) => self.perform(Arc::clone(sandbox), performance),
            Slot::Absent | Slot::Awaited => self.waiting = Some(performance),
        }
    }

    fn perform(&mut self, sandbox: Arc<dyn Sandbox>, performance: Performance) {
        let Performance { action, request, cancel, cancelled_at } = performance;
        let id = ActionId::of(&self.id, action);
        let live = self.live.clone();
        self.work.spawn(async move {
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
            Done::Action { action, result }
        });
    }
}

fn latest_sandbox<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<SandboxId> {
    let leased = |event: &'a Event| match &event.body {
        Body::Record(Record::SandboxLeased(lease)) => Some(&lease.sandbox_id),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use protocol::action::SystemAction;
    use protocol::observation::{CommandMetadata, RunObservation};
    use protocol::record::{ConversationStarted, WorkspaceSetup};
    use protocol::sandbox_api::SandboxAction;
    use protocol::{AgentState, Observation};
    use tokio::time::Instant;

    use crate::agent::{Agent, Step};
    use crate::condenser::Noop;
    use crate::conversation::{Conversation, Parts};
    use crate::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};
    use crate::sandbox::SandboxSpec;
    use crate::testing::{Ending, MemoryStore, ScriptedProvider};
    use crate::view::View;

    /// Nobody says anything in these conversations, so neither is asked.
    struct Unasked;

    #[async_trait]
    impl Llm for Unasked {
        fn model(&self) -> &str {
            "unasked"
        }

        async fn complete(
            &self,
            _: &LlmRequest,
            _: &(dyn Fn(LlmProgress) + Send + Sync),
        ) -> Result<Completion, LlmError> {
            panic!("the model is asked");
        }
    }

    #[async_trait]
    impl Agent for Unasked {
        fn name(&self) -> &str {
            "unasked"
        }

        fn system(&self) -> SystemAction {
            SystemAction { content: String::new(), tools: None, openhands_version: None, agent_class: None }
        }

        async fn step(
            &self,
            _: &View,
            _: &dyn Llm,
            _: &(dyn Fn(LlmProgress) + Send + Sync),
        ) -> Result<Step, LlmError> {
            panic!("the agent is asked");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_a_setup_that_takes_too_long_is_cancelled_and_the_next_follows() {
        let provider = ScriptedProvider::new(|request| {
            let SandboxAction::Run(run) = &request.action else { panic!("{request:?}") };
            let ran = |exit_code| {
                let metadata = CommandMetadata { exit_code, ..Default::default() };
                Observation::new("", RunObservation { metadata, ..Default::default() })
            };
            match run.thought.as_str() {
                "Running the set-up script" => Ending::WhenCancelled(ran(137)),
                _ => Ending::Observation(ran(0)),
            }
        });
        let id: protocol::ConversationId = "conversation".parse().unwrap();
        let parts = Parts {
            store: Arc::new(MemoryStore::default()),
            llm: Arc::new(Unasked),
            agent: Arc::new(Unasked),
            condenser: Arc::new(Noop),
            provider: Arc::new(provider.clone()),
            spec: SandboxSpec::of(id.clone()),
            tool_servers: Arc::new(crate::tool_servers::NoToolServers),
            analyzer: None,
            memory: None,
        };
        let started = ConversationStarted {
            agent: "unasked".into(),
            model: "unasked".into(),
            max_iterations: 1,
            runtime: "scripted".into(),
            setup: Some(WorkspaceSetup::Folder),
            ..Default::default()
        };
        let begun = Instant::now();
        let conversation = Conversation::begin(parts, id, started).await.unwrap();
        let state = conversation.wait_for(|state| state.agent_state == AgentState::AwaitingUserInput).await;
        assert_eq!((state.setup_step(), provider.runs().len()), (None, 2));
        let took = begun.elapsed().as_secs_f64();
        assert!((590.0..=601.0).contains(&took), "{took}");
        conversation.close(super::Afterwards::Remove).await.unwrap();
    }
}
