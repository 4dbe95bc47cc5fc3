//! A simulation run: random occurrences, and the invariants that hold after each.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, Agents, CodeActAgent, DelegateAgent, Prompt, TeamMember};
use engine::condenser::{Condenser, CondenserConfig};
use engine::conversation::{Conversation, EngineParts, State, is_replacement_notice};
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use protocol::action::FileImplementation;
use protocol::observation::{CommandMetadata, EditObservation, ReadObservation, RunObservation};
use protocol::record::ConversationStarted;
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::sandbox_api::SandboxAction;
use protocol::{
    Action, ActionId, AgentState, CommandRequest, ConversationId, Event, EventBody, EventId,
    EventSource, Observation, Record, UserCommand,
};

use super::model::{Histories, Model, ModelProvider, PRICE, SandboxMonitor};
use super::provider::Provider;
use super::servers::Servers;
use super::store::DeadlyStore;

/// The number of random occurrences before the run is brought to its end.
const MAX_OCCURRENCES: u32 = 40;

/// The timeout of a conversation's end without random occurrences.
const END_TIMEOUT: Duration = Duration::from_secs(3600);

/// The agent that tasks are delegated to.
pub(crate) const HELPER: &str = "helper";

/// The existing file.
pub(crate) const FILE: &str = "/a";

/// The result of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct RunResult {
    /// The events without their timestamps.
    log: Vec<String>,
    /// How often the reasoning of each model was sent back.
    pub(crate) returned_reasoning: BTreeMap<&'static str, usize>,
}

pub(crate) struct Simulation {
    seed: u64,
    is_verbose: bool,
    chance: fastrand::Rng,
    logs: Arc<MemoryStore>,
    provider: ScriptedProvider,
    models: Vec<Arc<ModelProvider>>,
    histories: Arc<Histories>,
    condenser: CondenserConfig,
    /// Whether creating a sandbox fails.
    refuses: Arc<AtomicBool>,
    /// The sandbox of the latest process.
    sandbox: Arc<SandboxMonitor>,
    /// Whether a process without a sandbox called a model.
    was_missing: Arc<AtomicBool>,
    confirmation: ConfirmationPolicy,
    process_count: u64,
    /// The log at the latest check.
    seen: Vec<Event>,
    /// The user's commands, each with the reply. `None` if it was lost.
    commands: Vec<(CommandRequest, Option<Option<EventId>>)>,
}

impl Simulation {
    pub(crate) fn new(seed: u64, is_verbose: bool) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let risky = ConfirmationPolicy::Risky {
            from: SecurityRisk::High,
        };
        let policies = [
            ConfirmationPolicy::Never,
            ConfirmationPolicy::Never,
            risky,
            ConfirmationPolicy::Always,
        ];
        let max_messages = [30, 60, usize::MAX][chance.usize(..3)];
        Self {
            seed,
            is_verbose,
            logs: Arc::default(),
            provider: ScriptedProvider::new(move |request| scripted_result(seed, &request.action)),
            refuses: Arc::default(),
            models: ModelProvider::all(seed, max_messages),
            histories: Arc::default(),
            condenser: random_condenser(&mut chance),
            sandbox: Arc::default(),
            was_missing: Arc::default(),
            confirmation: policies[chance.usize(..policies.len())],
            chance,
            process_count: 0,
            seen: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Runs to the end.
    pub(crate) async fn run(mut self) -> RunResult {
        let mut conversation = self.start().await;
        for number in 0..MAX_OCCURRENCES {
            tokio::time::sleep(Duration::from_millis(self.chance.u64(..4000))).await;
            if number % 8 == 7 {
                self.check();
            }
            conversation = self.apply_random(conversation).await;
        }
        self.run_to_end(conversation).await;
        self.check();
        let describe =
            |event: &Event| format!("{:?} {:?} {:?}", event.delegation, event.source, event.body);
        RunResult {
            log: self.seen.iter().map(describe).collect(),
            returned_reasoning: self
                .models
                .iter()
                .map(|provider| provider.returned_reasoning())
                .collect(),
        }
    }

    async fn start(&mut self) -> Conversation {
        let started = ConversationStarted {
            agent: "CodeActAgent".into(),
            model: "any".into(),
            max_iterations: 12,
            max_budget: Some(self.random_budget()),
            confirmation: self.confirmation,
            runtime: "scripted".into(),
            ..Default::default()
        };
        let parts = self.parts(false);
        let conversation = Conversation::start(parts, id(), started).await.unwrap();
        self.send(&conversation, UserCommand::message("work")).await;
        self.request_title(&conversation);
        conversation
    }

    /// Generates a title, which needs no sandbox.
    fn request_title(&mut self, conversation: &Conversation) {
        let sandbox = SandboxMonitor {
            is_connected: AtomicBool::new(true),
            ..SandboxMonitor::default()
        };
        let model = self.model(16, false, &Arc::new(sandbox));
        // A killed process generates none.
        drop(conversation.request_title(model, "work".into()));
    }

    /// Returns a model of a random provider, for a purpose of the process.
    fn model(
        &mut self,
        purpose: u32,
        only_finishes: bool,
        sandbox: &Arc<SandboxMonitor>,
    ) -> Arc<Model> {
        let seed = self.seed ^ (self.process_count << purpose);
        let provider = &self.models[self.chance.usize(..self.models.len())];
        Arc::new(Model::new(
            seed,
            only_finishes,
            Arc::clone(sandbox),
            provider,
            &self.histories,
        ))
    }

    /// Returns the parts of a new process, which is killed at a random append unless it is
    /// immortal.
    fn parts(&mut self, is_immortal: bool) -> EngineParts {
        self.process_count += 1;
        let appends = if is_immortal {
            u32::MAX
        } else {
            self.chance.u32(4..40)
        };
        let store = DeadlyStore {
            logs: Arc::clone(&self.logs),
            appends_left: AtomicU32::new(appends),
            keeps_last: self.chance.bool(),
        };
        let sandbox = Arc::new(SandboxMonitor {
            is_connected: AtomicBool::new(false),
            was_missing: Arc::clone(&self.was_missing),
        });
        self.sandbox = Arc::clone(&sandbox);
        EngineParts {
            store: Arc::new(store),
            write_lock: Arc::new(()),
            agents: self.agents(is_immortal),
            analyzer: None,
            memory: None,
            is_unattended: false,
            replayed_user: None,
            provider: Arc::new(Provider {
                scripted: self.provider.clone(),
                refuses: Arc::clone(&self.refuses),
                sandbox,
            }),
            spec: SandboxSpec::new(id()),
        }
    }

    /// Returns agents with random models.
    fn agents(&mut self, is_immortal: bool) -> Agents {
        let sandbox = Arc::clone(&self.sandbox);
        let mut definition = AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec());
        definition.delegates = vec![DelegateAgent {
            name: HELPER.into(),
            description: "Helps.".into(),
        }];
        let agent = Arc::new(CodeActAgent {
            definition,
            command_timeout: 120.0,
            declares_risk: false,
        });
        let tool_servers = Arc::new(Servers::default());
        let own = TeamMember {
            agent,
            llm: self.model(32, is_immortal, &sandbox),
            draft_editor: self.model(40, false, &sandbox),
            condenser: self.condenser(is_immortal, &sandbox),
            tool_servers,
        };
        let helper = TeamMember {
            llm: self.model(48, is_immortal, &sandbox),
            ..own.clone()
        };
        Agents {
            own,
            team: Arc::new([(HELPER.to_owned(), helper)].into()),
        }
    }

    fn condenser(
        &mut self,
        is_immortal: bool,
        sandbox: &Arc<SandboxMonitor>,
    ) -> Arc<dyn Condenser> {
        let llm: Arc<dyn Llm> = self.model(24, is_immortal, sandbox);
        let Ok(condenser) = self
            .condenser
            .build(&|_| Ok::<_, Infallible>(Arc::clone(&llm)));
        condenser
    }

    async fn apply_random(&mut self, conversation: Conversation) -> Conversation {
        let occurrence = self.chance.u32(..18);
        self.log_occurrence(occurrence, &conversation);
        let command = match occurrence {
            0 | 1 => {
                let text = format!("and this, {}", self.commands.len());
                Some(UserCommand::message(text))
            }
            2 => Some(UserCommand::Stop),
            3 => Some(UserCommand::Pause),
            4 | 5 => Some(self.random_resumption(&conversation.state())),
            6 | 7 => Some(UserCommand::confirm(None)),
            8 => Some(reject("not that")),
            9 => Some(reject("")),
            10 => {
                self.provider.lose_all();
                None
            }
            11 => return self.restart(conversation, false).await,
            12 => {
                self.refuses.store(self.chance.bool(), Ordering::Relaxed);
                None
            }
            13 => {
                self.request_title(&conversation);
                None
            }
            14 => {
                self.send_again(&conversation).await;
                None
            }
            15 => {
                self.change_models(&conversation);
                None
            }
            _ => None,
        };
        if let Some(command) = command {
            self.send(&conversation, command).await;
        }
        if conversation.is_closed() {
            self.restart(conversation, false).await
        } else {
            conversation
        }
    }

    async fn restart(&mut self, conversation: Conversation, is_immortal: bool) -> Conversation {
        drop(conversation);
        // The tasks of the killed process end with it.
        tokio::task::yield_now().await;
        self.check();
        let parts = self.parts(is_immortal);
        Conversation::recover(parts, id()).await.unwrap()
    }

    /// Returns a random budget, which may be less than the allowed steps cost.
    fn random_budget(&mut self) -> f64 {
        f64::from(self.chance.u32(1..10)) * PRICE
    }

    fn random_resumption(&mut self, state: &State) -> UserCommand {
        if self.chance.bool() {
            return UserCommand::resume();
        }
        // Not less than before, because running calls were started under the old budget.
        let budget_left = state.max_budget.unwrap_or_default() - state.metrics.accumulated_cost;
        UserCommand::Resume {
            more_iterations: Some(12),
            more_budget: Some(budget_left.max(self.random_budget())),
        }
    }

    /// Sends a command with an id. Its reply is lost if the process is killed meanwhile.
    async fn send(&mut self, conversation: &Conversation, command: UserCommand) {
        let request = CommandRequest {
            id: Some(format!("command-{}", self.commands.len()).parse().unwrap()),
            command,
        };
        let applied = if self.chance.bool() {
            conversation.apply(request.clone()).await.ok()
        } else {
            // More than one can be in the mailbox.
            drop(conversation.submit(request.clone()));
            None
        };
        self.commands.push((request, applied));
    }

    /// Chooses other models, while calls of the models so far may be in flight.
    fn change_models(&mut self, conversation: &Conversation) {
        let number = self.commands.len();
        let request = CommandRequest {
            id: Some(format!("command-{number}").parse().unwrap()),
            command: UserCommand::SetModel {
                model: format!("model-{number}"),
            },
        };
        let agents = self.agents(false);
        drop(conversation.submit_model(request.clone(), agents));
        self.commands.push((request, None));
    }

    /// Sends an earlier command again, whether the reply was lost or not.
    async fn send_again(&mut self, conversation: &Conversation) {
        let number = self.chance.usize(..self.commands.len());
        let (request, before) = self.commands[number].clone();
        if let Ok(applied) = conversation.apply(request).await {
            // One that had nothing to do before may have now.
            if let Some(Some(event)) = before {
                assert_eq!(applied, Some(event), "a command is applied once");
            }
            self.commands[number].1 = Some(applied);
        }
    }

    /// The user confirms everything and the model finishes, so that every state reaches the end.
    async fn run_to_end(&mut self, conversation: Conversation) {
        self.refuses.store(false, Ordering::Relaxed);
        let conversation = self.restart(conversation, true).await;
        let apply = async |command: UserCommand| conversation.apply(command).await.unwrap();
        apply(UserCommand::message("finish")).await;
        let resume = || UserCommand::Resume {
            more_iterations: Some(1000),
            more_budget: Some(1000.0),
        };
        apply(UserCommand::SetConfirmation {
            policy: ConfirmationPolicy::Never,
        })
        .await;
        apply(resume()).await;
        let idle = tokio::time::timeout(END_TIMEOUT, async {
            for second in 0_u64.. {
                let state = conversation.state();
                match state.agent_state {
                    // Some commands end only by a stop.
                    _ if state.has_pending_actions() && second % 30 == 29 => {
                        apply(UserCommand::Stop).await;
                    }
                    AgentState::Finished if !state.has_pending_actions() => return,
                    AgentState::AwaitingUserConfirmation => {
                        apply(UserCommand::confirm(None)).await;
                    }
                    AgentState::Error | AgentState::Paused | AgentState::Stopped => {
                        apply(resume()).await;
                    }
                    AgentState::AwaitingUserInput => {
                        apply(UserCommand::message("finish")).await;
                    }
                    _ => {}
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let is_idle = idle.await.is_ok();
        assert!(
            is_idle,
            "no way out with {:?} of {:?}: {:#?}",
            self.condenser,
            conversation.state(),
            self.latest_events()
        );
    }

    /// Whether the condenser changes histories without events.
    fn hides_events(&self) -> bool {
        matches!(
            self.condenser,
            CondenserConfig::ObservationMasking { .. } | CondenserConfig::Recent { .. }
        )
    }

    /// Returns the latest events of the log.
    fn latest_events(&self) -> Vec<EventBody> {
        let log = self.logs.log(&id());
        log[log.len().saturating_sub(10)..]
            .iter()
            .map(|event| event.body.clone())
            .collect()
    }

    /// Checks the invariants.
    fn check(&mut self) {
        let log = self.logs.log(&id());
        assert!(log.starts_with(&self.seen), "no event is lost or changed");
        let mut terminal_events: BTreeMap<_, u32> = BTreeMap::new();
        let (mut state, mut cost) = (State::default(), 0.0);
        let (mut unnotified, mut notified_early) = (BTreeSet::new(), BTreeSet::new());
        let start_counts = self.provider.start_counts();
        let mut unconfirmed = BTreeSet::new();
        for (number, event) in log.iter().enumerate() {
            assert_eq!(event.id.0, number as u64, "ids have no gaps");
            if let (Some(cause), EventBody::Observation(_)) = (event.cause, &event.body) {
                *terminal_events.entry(cause).or_default() += 1;
            }
            if let EventBody::Action(action) = &event.body {
                let ran = start_counts.contains_key(&ActionId::for_event(&id(), event.id));
                if ran
                    && state
                        .confirmation
                        .requires_confirmation(action.security_risk())
                {
                    unconfirmed.insert(event.id);
                }
                if matches!(action, Action::ChangeAgentState(to) if to.agent_state == AgentState::UserConfirmed)
                {
                    unconfirmed.clear();
                }
            }
            if let EventBody::Record(Record::SandboxLeased(lease)) = &event.body {
                assert_eq!(
                    unnotified,
                    BTreeSet::new(),
                    "all agents are notified of a new sandbox"
                );
                let is_new = state
                    .latest_lease
                    .as_ref()
                    .is_some_and(|latest| latest.boot_id != lease.boot_id);
                let children = state
                    .children
                    .iter()
                    .filter(|(_, child)| child.iterations > 0);
                let agents = children
                    .map(|(id, _)| Some(*id))
                    .chain((state.iterations > 0).then_some(None));
                unnotified.extend(agents.filter(|agent| is_new && !notified_early.contains(agent)));
                notified_early.clear();
            } else if is_replacement_notice(event) {
                // A message without a sandbox follows the notice of the next one.
                let is_early = state.lease.is_none() && state.latest_lease.is_some();
                assert!(
                    unnotified.remove(&event.delegation)
                        || is_early && notified_early.insert(event.delegation),
                    "each agent is notified once, and only of a new sandbox"
                );
            } else if event.llm_metrics.is_some() {
                assert!(
                    !unnotified.contains(&event.delegation),
                    "an agent is notified before its next step"
                );
            }
            let limits = (state.max_iterations, state.max_budget.unwrap_or(f64::MAX));
            state.apply(event);
            if event.llm_metrics.is_some() {
                assert!(state.iterations <= limits.0, "the limit of steps holds");
                // The call that exceeds it is the last one.
                assert!(cost < limits.1, "at most one call exceeds the budget");
            }
            assert!(state.metrics.accumulated_cost >= cost, "costs never fall");
            cost = state.metrics.accumulated_cost;
        }
        assert_eq!(
            unnotified,
            BTreeSet::new(),
            "all agents are notified of a new sandbox"
        );
        let open: BTreeSet<_> = state.pending().map(|(_, pending)| pending.action).collect();
        for event in &log {
            let (EventBody::Action(action), false) =
                (&event.body, event.source == EventSource::User)
            else {
                continue;
            };
            let is_open = match action {
                Action::Delegate(_) => state.children.contains_key(&event.id),
                Action::CallToolMcp(_) => open.contains(&event.id),
                action if SandboxAction::try_from(action.clone()).is_ok() => {
                    open.contains(&event.id)
                }
                _ => continue,
            };
            let expected = u32::from(!is_open);
            assert_eq!(
                terminal_events.remove(&event.id).unwrap_or(0),
                expected,
                "{} ends once",
                event.id
            );
        }
        assert!(
            terminal_events.values().all(|count| *count == 1),
            "no terminal event is duplicated"
        );
        assert!(
            !self.was_missing.load(Ordering::Relaxed),
            "no agent steps without its sandbox"
        );
        let faults: Vec<_> = self
            .models
            .iter()
            .flat_map(|provider| provider.faults())
            .collect();
        assert!(
            faults.is_empty(),
            "a history was refused or lost: {faults:#?}"
        );
        if !self.hides_events() {
            let is_condensation =
                |event: &&Event| matches!(event.body, EventBody::Action(Action::Condensation(_)));
            let condensations = log.iter().filter(is_condensation).count();
            let changed = self.histories.changed_count();
            assert!(
                changed <= condensations,
                "{changed} histories changed in {condensations} condensations"
            );
            let prefixes: usize = self
                .models
                .iter()
                .map(|provider| provider.changed_prefixes())
                .sum();
            assert!(
                prefixes == 0 || condensations > 0,
                "{prefixes} requests do not extend earlier ones"
            );
        }
        assert!(
            unconfirmed.is_empty(),
            "{unconfirmed:?} ran without confirmation"
        );
        let commands: Vec<_> = log
            .iter()
            .filter_map(|event| event.command.as_ref())
            .collect();
        let applied: BTreeSet<_> = commands.iter().collect();
        assert_eq!(commands.len(), applied.len(), "a command is applied once");
        for (request, reply) in &self.commands {
            if let UserCommand::SendMessage(message) = &request.command {
                let is_message = |event: &&Event| {
                    matches!(&event.body, EventBody::Action(Action::Message(stored))
                        if event.source == EventSource::User && stored.content == message.content)
                };
                let count = log.iter().filter(is_message).count();
                assert!(count <= 1, "a message is stored once");
            }
            if let Some(Some(event)) = reply {
                let event = &log[usize::try_from(event.0).unwrap()];
                assert_eq!(event.command, request.id, "no command is lost");
            }
        }
        for (action, starts) in start_counts {
            assert_eq!(starts, 1, "{action} is started once");
        }
        self.seen = log;
    }

    fn log_occurrence(&self, occurrence: u32, conversation: &Conversation) {
        if self.is_verbose {
            let state = conversation.state();
            eprintln!(
                "{:>4} events, {}: occurrence {occurrence}",
                state.next_id, state.agent_state
            );
        }
    }
}

/// Returns a condenser of small histories.
fn random_condenser(chance: &mut fastrand::Rng) -> CondenserConfig {
    let (llm_config, keep_first, max_size, max_event_length) = (None, chance.usize(1..4), 16, 100);
    match chance.u32(..8) {
        0 => CondenserConfig::Noop {},
        1 => CondenserConfig::ConversationWindow {},
        2 => CondenserConfig::ObservationMasking {
            attention_window: 5,
        },
        3 => CondenserConfig::Recent {
            keep_first,
            max_events: max_size,
        },
        4 => CondenserConfig::Amortized {
            max_size,
            keep_first,
        },
        5 => CondenserConfig::LlmAttention {
            llm_config,
            max_size,
            keep_first,
        },
        6 => CondenserConfig::Structured {
            llm_config,
            keep_first,
            max_size,
            max_event_length,
        },
        _ => CondenserConfig::v0_default_with(max_size),
    }
}

/// Returns the result of an action, which depends only on its content, so that it is the same for
/// every process.
fn scripted_result(seed: u64, action: &SandboxAction) -> ScriptedResult {
    let run = match action {
        SandboxAction::Run(run) => run,
        SandboxAction::Read(read) if read.path == FILE => {
            return ScriptedResult::Observation(Observation::new(
                "a line\n",
                ReadObservation::default(),
            ));
        }
        SandboxAction::Edit(edit) if edit.impl_source == FileImplementation::LlmBasedEdit => {
            assert!(!edit.is_draft(), "no sandbox is sent a draft");
            return ScriptedResult::Observation(Observation::new(
                "edited",
                EditObservation::default(),
            ));
        }
        _ => return ScriptedResult::Observation(Observation::error("no such file", "")),
    };
    let number = run.command.bytes().fold(seed, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut chance = fastrand::Rng::with_seed(number);
    let exit_code = [0, 0, 1, -1][chance.usize(..4)];
    let metadata = CommandMetadata {
        exit_code,
        ..Default::default()
    };
    let observation = Observation::new(
        "out",
        RunObservation {
            metadata,
            ..Default::default()
        },
    );
    match chance.u32(..4) {
        0 => ScriptedResult::Observation(observation),
        1 => ScriptedResult::WhenCancelled(observation),
        _ => ScriptedResult::After(Duration::from_millis(chance.u64(..8000)), observation),
    }
}

fn reject(reason: &str) -> UserCommand {
    UserCommand::Reject {
        action: None,
        reason: reason.into(),
    }
}

fn id() -> ConversationId {
    "simulated".parse().unwrap()
}
