//! One life: what happens in it by chance, and the laws that hold whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, CodeActAgent, Delegate, Member, Prompt};
use engine::condenser::Noop;
use engine::conversation::{Conversation, Parts, State, Terms};
use engine::sandbox::SandboxSpec;
use engine::testing::{Ending, MemoryStore, ScriptedProvider};
use protocol::action::MessageAction;
use protocol::observation::{CommandMetadata, RunObservation};
use protocol::record::ConversationStarted;
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use protocol::sandbox_api::SandboxAction;
use protocol::{Action, ActionId, AgentState, Body, ConversationId, Event, EventSource, Observation};

use super::model::{Model, PRICE};
use super::servers::Servers;
use super::store::DeadlyStore;

/// How much happens before the world calms down.
const HAPPENINGS: u32 = 40;

/// How long a calm world may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The agent that tasks are handed on to.
pub(crate) const HELPER: &str = "helper";

/// How many agents can be at work at once.
const MOST_AGENTS: u32 = 9;

pub(crate) struct World {
    seed: u64,
    tells: bool,
    chance: fastrand::Rng,
    logs: Arc<MemoryStore>,
    provider: ScriptedProvider,
    confirmation: ConfirmationPolicy,
    lives: u64,
    /// What was in the log when it was last looked at.
    seen: Vec<Event>,
}

impl World {
    pub(crate) fn new(seed: u64, tells: bool) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed);
        let risky = ConfirmationPolicy::Risky { from: SecurityRisk::High };
        let policies =
            [ConfirmationPolicy::Never, ConfirmationPolicy::Never, risky, ConfirmationPolicy::Always];
        Self {
            seed,
            tells,
            logs: Arc::default(),
            provider: ScriptedProvider::new(move |request| ending(seed, &request.action)),
            confirmation: policies[chance.usize(..policies.len())],
            chance,
            lives: 0,
            seen: Vec::new(),
        }
    }

    /// Lives to the end. What the log holds then, without the times at which it was written.
    pub(crate) async fn live(mut self) -> Vec<String> {
        let mut conversation = self.begin().await;
        for number in 0..HAPPENINGS {
            tokio::time::sleep(Duration::from_millis(self.chance.u64(..4000))).await;
            if number % 8 == 7 {
                self.check();
            }
            conversation = self.happen(conversation).await;
        }
        self.calm_down(conversation).await;
        self.check();
        let told = |event: &Event| format!("{:?} {:?} {:?}", event.delegation, event.source, event.body);
        self.seen.iter().map(told).collect()
    }

    async fn begin(&mut self) -> Conversation {
        let started = ConversationStarted {
            agent: "CodeActAgent".into(),
            model: "any".into(),
            max_iterations: 12,
            max_budget: Some(10.0 * PRICE),
            confirmation: self.confirmation,
            runtime: "scripted".into(),
            ..Default::default()
        };
        let mortal = self.parts(false);
        let begun = Conversation::begin(mortal.clone(), id(), started.clone()).await;
        let conversation = begun.unwrap();
        conversation.say(message("work")).unwrap();
        conversation
    }

    /// A new process: it dies at some append, or lives for ever.
    fn parts(&mut self, is_immortal: bool) -> Parts {
        self.lives += 1;
        let appends = if is_immortal { u32::MAX } else { self.chance.u32(4..40) };
        let store = DeadlyStore {
            logs: Arc::clone(&self.logs),
            appends_left: AtomicU32::new(appends),
            keeps_last: self.chance.bool(),
        };
        let mut definition = AgentDefinition::code_act(Prompt::Usual, ToolName::ALL.to_vec());
        definition.delegates = vec![Delegate { name: HELPER.into(), description: "Helps.".into() }];
        let agent = Arc::new(CodeActAgent { definition, command_timeout: 120.0, declares_risk: false });
        let member = Member {
            agent: agent.clone(),
            llm: Arc::new(Model::new(self.seed ^ (self.lives << 32), is_immortal)),
            condenser: Arc::new(Noop),
            tool_servers: Arc::new(Servers),
        };
        Parts {
            store: Arc::new(store),
            llm: Arc::clone(&member.llm),
            agent,
            condenser: Arc::new(Noop),
            tool_servers: Arc::new(Servers),
            team: Arc::new([(HELPER.to_owned(), member)].into()),
            analyzer: None,
            memory: None,
            provider: Arc::new(self.provider.clone()),
            spec: SandboxSpec::of(id()),
        }
    }

    async fn happen(&mut self, conversation: Conversation) -> Conversation {
        let what = self.chance.u32(..14);
        self.tell(what, &conversation);
        // A command to a process that has died is lost, as in life.
        let _lost = match what {
            0 | 1 => conversation.say(message("and this")),
            2 => conversation.stop(),
            3 => conversation.pause(),
            4 | 5 => conversation.resume(self.more(&conversation.state())),
            6 | 7 => conversation.confirm(None),
            8 => conversation.reject(None, "not that"),
            9 => conversation.reject(None, ""),
            10 => {
                self.provider.lose_all();
                Ok(())
            }
            11 => return self.restart(conversation, false).await,
            _ => Ok(()),
        };
        if conversation.is_closed() { self.restart(conversation, false).await } else { conversation }
    }

    async fn restart(&mut self, conversation: Conversation, is_immortal: bool) -> Conversation {
        drop(conversation);
        // What the dead process had begun ends with it.
        tokio::task::yield_now().await;
        self.check();
        let parts = self.parts(is_immortal);
        Conversation::recover(parts, id()).await.unwrap()
    }

    fn more(&mut self, state: &State) -> Terms {
        if self.chance.bool() {
            return Terms::default();
        }
        Terms {
            max_iterations: Some(state.iterations + 12),
            max_budget: Some(state.metrics.accumulated_cost + 10.0 * PRICE),
            confirmation: None,
        }
    }

    /// A user who lets everything pass, a model that finishes: from any state there is a way to the end.
    async fn calm_down(&mut self, conversation: Conversation) {
        let conversation = self.restart(conversation, true).await;
        conversation.say(message("finish")).unwrap();
        let terms = Terms {
            max_iterations: Some(1000),
            max_budget: Some(1000.0),
            confirmation: Some(ConfirmationPolicy::Never),
        };
        conversation.resume(terms).unwrap();
        let at_rest = tokio::time::timeout(PATIENCE, async {
            for second in 0_u64.. {
                let state = conversation.state();
                match state.agent_state {
                    // Some commands end only so.
                    _ if state.is_underway() && second % 30 == 29 => conversation.stop().unwrap(),
                    AgentState::Finished if !state.is_underway() => return,
                    AgentState::AwaitingUserConfirmation => conversation.confirm(None).unwrap(),
                    AgentState::Error | AgentState::Paused | AgentState::Stopped => {
                        conversation.resume(terms).unwrap();
                    }
                    AgentState::AwaitingUserInput => conversation.say(message("finish")).unwrap(),
                    _ => {}
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let state = || conversation.state();
        assert!(at_rest.await.is_ok(), "no way out of {:?}", state());
    }

    /// The laws.
    fn check(&mut self) {
        let log = self.logs.log(&id());
        assert!(log.starts_with(&self.seen), "no event is lost or changed");
        let mut endings: BTreeMap<_, u32> = BTreeMap::new();
        let (mut state, mut cost, mut late_calls) = (State::default(), 0.0, 0);
        let runs = self.provider.runs();
        let mut unconfirmed = BTreeSet::new();
        for (number, event) in log.iter().enumerate() {
            assert_eq!(event.id.0, number as u64, "ids have no gaps");
            if let (Some(cause), Body::Observation(_)) = (event.cause, &event.body) {
                *endings.entry(cause).or_default() += 1;
            }
            if let Body::Action(action) = &event.body {
                let ran = runs.contains_key(&ActionId::of(&id(), event.id));
                if ran && state.confirmation.asks(action.security_risk()) {
                    unconfirmed.insert(event.id);
                }
                if matches!(action, Action::ChangeAgentState(to) if to.agent_state == AgentState::UserConfirmed)
                {
                    unconfirmed.clear();
                }
            }
            let limits = (state.max_iterations, state.max_budget.unwrap_or(f64::MAX));
            state.apply(event);
            if event.llm_metrics.is_some() {
                assert!(state.iterations <= limits.0, "the limit of steps holds");
                late_calls = if cost < limits.1 { 0 } else { late_calls + 1 };
                // One that was on its way for each agent at work.
                assert!(late_calls <= MOST_AGENTS, "the budget is passed by at most one call of each agent");
            }
            assert!(state.metrics.accumulated_cost >= cost, "costs never fall");
            cost = state.metrics.accumulated_cost;
        }
        let open: BTreeSet<_> = state.pending().map(|(_, pending)| pending.action).collect();
        for event in &log {
            let (Body::Action(action), false) = (&event.body, event.source == EventSource::User) else {
                continue;
            };
            let is_open = match action {
                Action::Delegate(_) => state.children.contains_key(&event.id),
                Action::CallToolMcp(_) => open.contains(&event.id),
                action if SandboxAction::try_from(action.clone()).is_ok() => open.contains(&event.id),
                _ => continue,
            };
            let expected = u32::from(!is_open);
            assert_eq!(endings.remove(&event.id).unwrap_or(0), expected, "{} ends once", event.id);
        }
        assert!(endings.values().all(|count| *count == 1), "no ending is doubled");
        assert!(unconfirmed.is_empty(), "{unconfirmed:?} ran without the user's word");
        for (action, runs) in runs {
            assert_eq!(runs, 1, "{action} runs once");
        }
        self.seen = log;
    }

    fn tell(&self, what: u32, conversation: &Conversation) {
        if self.tells {
            let state = conversation.state();
            eprintln!("{:>4} events, {}: happening {what}", state.next_id, state.agent_state);
        }
    }
}

/// What an action comes to is decided by what it asks for, so that every process is told the same.
fn ending(seed: u64, action: &SandboxAction) -> Ending {
    let SandboxAction::Run(run) = action else {
        return Ending::Observation(Observation::error("no such file", ""));
    };
    let number =
        run.command.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut chance = fastrand::Rng::with_seed(number);
    let exit_code = [0, 0, 1, -1][chance.usize(..4)];
    let metadata = CommandMetadata { exit_code, ..Default::default() };
    let observation = Observation::new("out", RunObservation { metadata, ..Default::default() });
    match chance.u32(..4) {
        0 => Ending::Observation(observation),
        1 => Ending::WhenCancelled(observation),
        _ => Ending::After(Duration::from_millis(chance.u64(..8000)), observation),
    }
}

fn message(text: &str) -> MessageAction {
    MessageAction { content: text.into(), ..Default::default() }
}

fn id() -> ConversationId {
    "simulated".parse().unwrap()
}
