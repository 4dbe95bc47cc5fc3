//! A conversation's task with real parts, except for a scripted sandbox.

use std::sync::Arc;
use std::time::Duration;

use engine::agent::tools::ToolName;
use engine::agent::{AgentDefinition, Agents, CodeActAgent, Prompt, TeamMember};
use engine::condenser::{CondenserConfig, Noop};
use engine::conversation::{
    Conversation, EngineParts, INTERRUPTED, SandboxDisposition, State, is_replacement_notice,
};
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use engine::tool_servers::NoToolServers;
use llm::ScriptedLlm;
use protocol::action::MessageAction;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::risk::ConfirmationPolicy;
use protocol::sandbox_api::SandboxAction;
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, Observation, ObservationKind,
    UserCommand,
};
use serde_json::{Value, json};
use tests::glovebox::{bash, finish};

struct ConversationFixture {
    store: Arc<MemoryStore>,
    provider: ScriptedProvider,
    parts: EngineParts,
}

impl ConversationFixture {
    /// Commands return their own text; `hang` returns when it is cancelled.
    fn new(responses: &Value) -> Self {
        let provider = ScriptedProvider::new(|request| {
            let SandboxAction::Run(run) = &request.action else {
                panic!("only commands are scripted")
            };
            let observation = Observation::new(run.command.clone(), RunObservation::default());
            if run.command == "hang" {
                ScriptedResult::WhenCancelled(observation)
            } else {
                ScriptedResult::Observation(observation)
            }
        });
        let store = Arc::new(MemoryStore::default());
        let parts = EngineParts {
            store: store.clone(),
            agents: Agents::from(TeamMember {
                llm: scripted(responses, 0),
                draft_editor: scripted(&json!([]), 0),
                agent: Arc::new(CodeActAgent {
                    definition: AgentDefinition::code_act(
                        Prompt::Unattended,
                        ToolName::ALL.to_vec(),
                    ),
                    command_timeout: 120.0,
                    declares_risk: false,
                }),
                condenser: Arc::new(Noop),
                tool_servers: Arc::new(NoToolServers),
            }),
            provider: Arc::new(provider.clone()),
            spec: SandboxSpec::new(id()),
            analyzer: None,
            memory: None,
            is_unattended: false,
            replayed_user: None,
            write_lock: Arc::new(()),
        };
        Self {
            store,
            provider,
            parts,
        }
    }

    /// Returns the parts with another model.
    fn parts_with(&self, llm: Arc<dyn Llm>) -> EngineParts {
        EngineParts {
            agents: Agents::from(TeamMember {
                llm,
                ..self.parts.agents.own.clone()
            }),
            ..self.parts.clone()
        }
    }

    async fn start(&self) -> Conversation {
        self.start_with(ConfirmationPolicy::Never).await
    }

    async fn start_with(&self, confirmation: ConfirmationPolicy) -> Conversation {
        let started = ConversationStarted {
            agent: "CodeActAgent".into(),
            model: "scripted".into(),
            max_iterations: 50,
            runtime: "scripted".into(),
            confirmation,
            ..Default::default()
        };
        let message = MessageAction {
            content: "work".into(),
            ..Default::default()
        };
        let parts = self.parts.clone();
        Conversation::start_with(parts, id(), started, None, Some(message))
            .await
            .unwrap()
    }

    fn log(&self) -> Vec<Event> {
        self.store.log(&id())
    }

    /// Returns every action that the sandbox performed, and the texts of its observations.
    fn action_results(&self) -> Vec<(String, Vec<String>)> {
        let log = self.log();
        let ending_of = |action: &Event| {
            let ended = log.iter().filter(|event| event.cause == Some(action.id));
            ended
                .filter_map(|event| observation(event).map(|o| o.content.clone()))
                .collect()
        };
        log.iter()
            .filter_map(|event| match &event.body {
                EventBody::Action(Action::Run(run)) => {
                    Some((run.command.clone(), ending_of(event)))
                }
                _ => None,
            })
            .collect()
    }
}

fn id() -> ConversationId {
    "conversation".parse().unwrap()
}

fn scripted(responses: &Value, answered: usize) -> Arc<dyn Llm> {
    let script = json!({"responses": responses}).to_string();
    Arc::new(
        ScriptedLlm::from_json(&script)
            .unwrap()
            .resuming_after(answered),
    )
}

async fn send_message(conversation: &Conversation, text: &str) {
    conversation
        .apply(UserCommand::message(text))
        .await
        .unwrap();
}

fn observation(event: &Event) -> Option<&Observation> {
    match &event.body {
        EventBody::Observation(observation) => Some(observation),
        _ => None,
    }
}

async fn wait_for_state(conversation: &Conversation, agent_state: AgentState) -> Arc<State> {
    let reached = conversation
        .wait_for(|state| state.agent_state == agent_state && !state.has_pending_actions());
    tokio::time::timeout(Duration::from_secs(10), reached)
        .await
        .expect("the state is reached")
}

async fn wait_for_confirmation_request(conversation: &Conversation) {
    let asked =
        conversation.wait_for(|state| state.agent_state == AgentState::AwaitingUserConfirmation);
    tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .expect("the user is asked");
}

async fn wait_for_action(conversation: &Conversation) {
    let performed = conversation.wait_for(|state| state.has_pending_actions());
    tokio::time::timeout(Duration::from_secs(10), performed)
        .await
        .expect("an action is performed");
}

fn result(command: &str, text: &str) -> (String, Vec<String>) {
    (command.into(), vec![text.into()])
}

#[tokio::test]
async fn running_command_is_observed_when_stopped() {
    let fixture = ConversationFixture::new(&json!([bash("hang"), finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    assert_eq!(fixture.action_results(), [result("hang", "hang")]);
    send_message(&conversation, "go on").await;
    wait_for_state(&conversation, AgentState::Finished).await;
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
    assert_eq!(fixture.provider.sandbox_count(), 0);
}

#[tokio::test]
async fn message_sent_during_the_last_step_is_handled() {
    let fixture =
        ConversationFixture::new(&json!([bash("hang"), finish(), bash("more"), finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    send_message(&conversation, "and this too").await;
    conversation.apply(UserCommand::Stop).await.unwrap();
    conversation.apply(UserCommand::resume()).await.unwrap();
    wait_for_state(&conversation, AgentState::Finished).await;
    send_message(&conversation, "and that").await;
    let again = conversation
        .wait_for(|state| state.iterations == 4 && state.agent_state == AgentState::Finished);
    tokio::time::timeout(Duration::from_secs(10), again)
        .await
        .expect("the second message is handled");
    assert_eq!(
        fixture.action_results(),
        [result("hang", "hang"), result("more", "more")]
    );
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn action_is_interrupted_and_sandbox_replaced_when_it_is_lost() {
    let fixture = ConversationFixture::new(&json!([bash("hang"), bash("after"), finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    fixture.provider.lose_all();
    wait_for_state(&conversation, AgentState::Finished).await;
    let log = fixture.log();
    let interrupted: Vec<_> = log
        .iter()
        .filter_map(observation)
        .filter(
            |o| matches!(&o.kind, ObservationKind::Error(error) if error.error_id == INTERRUPTED),
        )
        .collect();
    assert_eq!(interrupted.len(), 1);
    assert_eq!(fixture.action_results()[1], result("after", "after"));
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn sandbox_and_action_outlast_an_outage() {
    let fixture = ConversationFixture::new(&json!([bash("hang"), bash("after"), finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    fixture.provider.set_outage(true);
    let reach = async |agent_state, from| {
        let reached =
            conversation.wait_for(|state| state.agent_state == agent_state && state.next_id > from);
        tokio::time::timeout(tests::glovebox::TEST_TIMEOUT, reached)
            .await
            .expect("the state is reached")
    };
    let mut from = EventId::FIRST;
    for _ in 0..3 {
        // Also after an attempt to continue that comes too early.
        let state = reach(AgentState::Error, from).await;
        assert!(state.lease.is_some() && state.has_pending_actions());
        from = state.next_id;
        conversation.apply(UserCommand::resume()).await.unwrap();
    }
    let state = reach(AgentState::Error, from).await;
    fixture.provider.set_outage(false);
    conversation.apply(UserCommand::resume()).await.unwrap();
    reach(AgentState::Running, state.next_id).await;
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    conversation.apply(UserCommand::resume()).await.unwrap();
    wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(
        fixture.action_results(),
        [result("hang", "hang"), result("after", "after")]
    );
    let starts = fixture.provider.start_counts();
    assert!(starts.values().all(|count| *count == 1), "{starts:?}");
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn sandbox_lost_while_the_agent_waits_fails_no_action() {
    let fixture = ConversationFixture::new(&json!([bash("one"), finish(), bash("two"), finish()]));
    let conversation = fixture.start().await;
    wait_for_state(&conversation, AgentState::Finished).await;
    fixture.provider.lose_all();
    send_message(&conversation, "go on").await;
    let again = conversation
        .wait_for(|state| state.iterations == 4 && state.agent_state == AgentState::Finished);
    tokio::time::timeout(Duration::from_secs(10), again)
        .await
        .expect("the second message is handled");
    assert_eq!(
        fixture.action_results(),
        [result("one", "one"), result("two", "two")]
    );
    let log = fixture.log();
    let notice = log
        .iter()
        .find(|event| is_replacement_notice(event))
        .map(|event| event.id);
    assert!(
        notice.is_some() && notice < conversation.state().last_user_message,
        "{notice:?}"
    );
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn conversation_resumes_without_rerun_when_process_died() {
    let responses = json!([bash("one"), bash("hang"), bash("two"), finish()]);
    let fixture = ConversationFixture::new(&responses);
    let conversation = fixture.start().await;
    let second =
        conversation.wait_for(|state| state.iterations == 2 && state.has_pending_actions());
    second.await;
    // Aborted as by a killed process: no notification, no removal.
    drop(conversation);
    let parts = fixture.parts_with(scripted(&responses, 2));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    conversation.apply(UserCommand::resume()).await.unwrap();
    wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(
        fixture.action_results(),
        [
            result("one", "one"),
            result("hang", "hang"),
            result("two", "two")
        ]
    );
    assert!(
        fixture
            .provider
            .start_counts()
            .values()
            .all(|count| *count == 1)
    );
    assert_eq!(
        State::fold(&fixture.log()),
        conversation.state().without_schedule()
    );
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn tool_calls_of_one_response_run_in_order_when_process_dies() {
    let both = json!({"tool_calls": [
        {"name": "execute_bash", "arguments": {"command": "hang"}},
        {"name": "execute_bash", "arguments": {"command": "second"}},
    ]});
    let fixture = ConversationFixture::new(&json!([both, finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    drop(conversation);
    let parts = fixture.parts_with(scripted(&json!([both, finish()]), 1));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    conversation.apply(UserCommand::resume()).await.unwrap();
    wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(
        fixture.action_results(),
        [result("hang", "hang"), result("second", "second")]
    );
    assert_eq!(conversation.state().iterations, 2, "two model calls");
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn recovery_fails_when_the_conversation_is_unknown() {
    let fixture = ConversationFixture::new(&json!([]));
    assert!(
        Conversation::recover(fixture.parts.clone(), id())
            .await
            .is_err()
    );
    assert_eq!(fixture.log(), []);
}

#[tokio::test]
async fn action_runs_only_when_confirmed_even_after_a_crash() {
    let responses = json!([bash("one"), bash("two"), bash("three"), finish()]);
    let fixture = ConversationFixture::new(&responses);
    let conversation = fixture.start_with(ConfirmationPolicy::Always).await;
    wait_for_confirmation_request(&conversation).await;
    assert!(fixture.provider.start_counts().is_empty());
    conversation
        .apply(UserCommand::confirm(None))
        .await
        .unwrap();
    conversation.wait_for(|state| state.iterations == 2).await;
    wait_for_confirmation_request(&conversation).await;
    drop(conversation);
    let parts = fixture.parts_with(scripted(&responses, 2));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    wait_for_confirmation_request(&conversation).await;
    conversation
        .apply(UserCommand::Reject {
            action: None,
            reason: "never two".into(),
        })
        .await
        .unwrap();
    conversation.wait_for(|state| state.iterations == 3).await;
    wait_for_confirmation_request(&conversation).await;
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    let stopped = "The user stopped before the action was confirmed.";
    let rejected = "The user rejected the action: never two";
    assert_eq!(
        fixture.action_results(),
        [
            result("one", "one"),
            result("two", rejected),
            result("three", stopped)
        ]
    );
    assert_eq!(fixture.provider.start_counts().len(), 1);
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn paused_agent_completes_its_command_and_takes_no_step() {
    let fixture = ConversationFixture::new(&json!([bash("hang"), bash("more"), finish()]));
    let conversation = fixture.start().await;
    wait_for_action(&conversation).await;
    conversation.apply(UserCommand::Pause).await.unwrap();
    let paused = conversation
        .wait_for(|state| state.agent_state == AgentState::Paused)
        .await;
    assert!(paused.has_pending_actions(), "the command continues");
    drop(conversation);
    let parts = fixture.parts_with(scripted(&json!([bash("hang"), bash("more"), finish()]), 1));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    conversation.apply(UserCommand::Stop).await.unwrap();
    wait_for_state(&conversation, AgentState::Stopped).await;
    assert_eq!(
        conversation.state().iterations,
        1,
        "the paused agent took a step"
    );
    conversation.apply(UserCommand::resume()).await.unwrap();
    wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(
        fixture.action_results(),
        [result("hang", "hang"), result("more", "more")]
    );
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

/// Starts a conversation with this condenser. The same model writes the summaries.
async fn start_with_condenser(
    condenser: &Value,
    responses: &Value,
) -> (ConversationFixture, Conversation) {
    let mut fixture = ConversationFixture::new(responses);
    let config: CondenserConfig = serde_json::from_value(condenser.clone()).unwrap();
    let llm = Arc::clone(&fixture.parts.agents.own.llm);
    fixture.parts.agents.own.condenser = config.build(&|_| Ok::<_, ()>(Arc::clone(&llm))).unwrap();
    let conversation = fixture.start().await;
    (fixture, conversation)
}

/// Returns the summary of each condensation, and the tokens that all calls had used by then.
fn condensations(log: &[Event]) -> Vec<(Option<String>, Option<u64>)> {
    log.iter()
        .filter_map(|event| match &event.body {
            EventBody::Action(Action::Condensation(condensation)) => {
                let metrics = event.llm_metrics.as_ref();
                let tokens = metrics.map(|metrics| metrics.accumulated_token_usage.prompt_tokens);
                Some((condensation.summary.clone(), tokens))
            }
            _ => None,
        })
        .collect()
}

fn with_tokens(mut response: Value, tokens: u64) -> Value {
    response["usage"] = json!({"prompt_tokens": tokens, "completion_tokens": 1});
    response
}

#[tokio::test]
async fn summary_is_logged_and_charged_when_history_is_too_long() {
    let mut responses: Vec<Value> = (0..5).map(|_| with_tokens(bash("true"), 100)).collect();
    // After five steps the history has a prompt, a task and ten events.
    responses.push(with_tokens(json!({"text": "what was done"}), 1000));
    responses.push(with_tokens(finish(), 100));
    let llm = json!({"type": "llm", "max_size": 11});
    let (fixture, conversation) = start_with_condenser(&llm, &json!(responses)).await;
    let state = wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(
        condensations(&fixture.log()),
        [(Some("what was done".to_owned()), Some(1500))]
    );
    assert_eq!(state.metrics.accumulated_token_usage.prompt_tokens, 1600);
    assert_eq!(
        state.iterations, 6,
        "a condensation is not a step of the agent"
    );
    assert_eq!(State::fold(&fixture.log()), state.without_schedule());
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}

#[tokio::test]
async fn history_is_condensed_until_it_fits_when_window_overflows() {
    let overflow = json!({"error": "context_window_exceeded"});
    let steps = || (0..8).map(|_| bash("true"));
    let window = json!({"type": "conversation_window"});

    let fits: Vec<Value> = steps()
        .chain([overflow.clone(), overflow.clone(), bash("true"), finish()])
        .collect();
    let (fixture, conversation) = start_with_condenser(&window, &json!(fits)).await;
    wait_for_state(&conversation, AgentState::Finished).await;
    assert_eq!(condensations(&fixture.log()), [(None, None), (None, None)]);
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();

    let never: Vec<Value> = steps().chain(std::iter::repeat_n(overflow, 50)).collect();
    let (fixture, conversation) = start_with_condenser(&window, &json!(never)).await;
    let state = wait_for_state(&conversation, AgentState::Error).await;
    // Eight of sixteen events are kept, then four, then two.
    assert_eq!(
        (condensations(&fixture.log()).len(), state.iterations),
        (3, 8)
    );
    let error = fixture
        .log()
        .iter()
        .rev()
        .find_map(|event| match &observation(event)?.kind {
            ObservationKind::AgentStateChanged(changed) => Some(changed.reason.clone()),
            _ => None,
        });
    assert!(
        error
            .unwrap()
            .starts_with("the request is longer than the model's context window")
    );
    conversation
        .close(SandboxDisposition::Remove)
        .await
        .unwrap();
}
