use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use protocol::action::{EditCommand, FileImplementation};
use protocol::metrics::TokenUsage;
use protocol::observation::{EditObservation, ReadObservation};
use protocol::record::ConversationStarted;
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, Observation, Record, UserCommand,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::agent::tools::ToolName;
use crate::agent::{AgentDefinition, Agents, CodeActAgent, Prompt, TeamMember};
use crate::condenser::Noop;
use crate::conversation::{Conversation, EngineParts, NOT_PERFORMED};
use crate::llm::{Completion, LlmError, LlmProgress, ModelResponse};
use crate::sandbox::SandboxSpec;
use crate::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use crate::tool_servers::NoToolServers;

fn draft(content: &str, start: i64, end: i64) -> EditAction {
    let impl_source = FileImplementation::LlmBasedEdit;
    EditAction {
        content: content.into(),
        start,
        end,
        impl_source,
        ..EditAction::new("/f", EditCommand::Unspecified)
    }
}

/// Applies a draft to a text as the editor does. An error is the reason for the agent.
fn edited(text: &str, draft: &EditAction, response: &str) -> Result<String, String> {
    let edit = match plan(draft, text.into())? {
        DraftPlan::Edit(edit) => edit,
        DraftPlan::Rewrite(lines) => lines.parse_response(draft, response)?,
    };
    assert!(!edit.is_draft() && edit.content == draft.content);
    let new = edit.new_str.unwrap();
    if edit.command == EditCommand::Insert {
        return Ok(format!("{text}{new}"));
    }
    let old = edit.old_str.unwrap();
    assert_eq!(
        (edit.command, text.matches(&old).count()),
        (EditCommand::StrReplace, 1),
        "{old:?}"
    );
    Ok(text.replacen(&old, &new, 1))
}

#[test]
fn only_the_lines_of_the_range_are_replaced() {
    let fenced = |lines: &str| format!("Here they are:\n```python\n{lines}```\nDone.");
    for (text, range, response, expected) in [
        ("a\nb\nc\n", (2, 2), "B\nB\n", "a\nB\nB\nc\n"),
        ("a\nb\nc\n", (2, -1), "B\n", "a\nB\n"),
        ("a\nb\nc\n", (2, 99), "", "a\n"),
        ("a\nb", (2, 2), "B\n", "a\nB"),
        ("a\r\nb\r\nc\r\n", (2, 2), "x\ny\n", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\nc\n", (2, 3), "x\n", "a\r\nx\n"),
        ("\u{feff}a\nb\n", (1, 1), "x\n", "\u{feff}x\nb\n"),
        // Lines that occur more than once.
        ("}\n\n}\n\n}\n", (3, 3), "]\n", "}\n\n]\n\n}\n"),
        ("x\nx\nx\nx\n", (2, 3), "y\n", "x\ny\nx\n"),
        ("x\r\nx\r\nx", (3, 3), "y\n", "x\r\nx\r\ny"),
        // Empty lines are lines.
        ("a\n\n\nb\n", (1, 3), "A\n\n\n", "A\n\n\nb\n"),
    ] {
        let edited = edited(text, &draft("draft", range.0, range.1), &fenced(response));
        assert_eq!(
            edited.as_deref(),
            Ok(expected),
            "{text:?} {range:?} {response:?}"
        );
    }
}

#[test]
fn request_holds_all_lines_of_the_range() {
    let draft = draft("A\n\n", 1, 3);
    let Ok(DraftPlan::Rewrite(lines)) = plan(&draft, "a\r\n\r\n\r\nb\r\n".into()) else {
        panic!("a rewrite")
    };
    let prompt = lines.prompt(&draft);
    assert!(
        prompt.contains("<lines>\na\r\n\r\n\n</lines>")
            && prompt.contains("<draft>\nA\n\n</draft>"),
        "{prompt:?}"
    );
}

#[test]
fn draft_is_replayed_without_a_model() {
    let observation = |old: Option<&str>, new: &str| EditObservation {
        prev_exist: old.is_some(),
        old_content: old.map(str::to_owned),
        new_content: Some(new.into()),
        ..EditObservation::default()
    };
    let replay =
        |draft: &EditAction, old: Option<&str>, new| reconstruct(draft, &observation(old, new));
    let edit = replay(&draft("roughly", 2, 2), Some("x\nx\nx\n"), "x\ny\nz\nx\n").unwrap();
    assert_eq!(
        (edit.old_str.as_deref(), edit.new_str.as_deref()),
        (Some("x\nx\nx\n"), Some("x\ny\nz\nx\n"))
    );
    assert_eq!(
        replay(&draft("roughly", 2, 2), Some("a\nb\nc\n"), "a\nB\nC\n"),
        None,
        "another line changed too"
    );
    assert_eq!(
        replay(&draft("new", 1, -1), None, "new").unwrap().command,
        EditCommand::Create
    );
    assert!(
        replay(&draft("b", -1, -1), Some("a\n"), "a\nb\n")
            .unwrap()
            .new_str
            .unwrap()
            .ends_with("b\n")
    );
    assert_eq!(
        reconstruct(&draft("b", 1, 1), &EditObservation::default()),
        None
    );
}

#[test]
fn append_needs_no_model() {
    for (text, content, expected) in [
        ("a\n", "b", "a\nb\n"),
        ("a", "b\n", "a\nb"),
        ("a\r\na\r\n", "b\nc", "a\r\na\r\nb\r\nc\r\n"),
        ("", "b\n", "b\n"),
        ("\u{feff}", "b\n", "\u{feff}b\n"),
    ] {
        assert_eq!(
            edited(text, &draft(content, -1, -1), "").as_deref(),
            Ok(expected),
            "{text:?}"
        );
    }
    let long = "line\n".repeat(5000);
    assert!(
        edited(&long, &draft("last", -1, -1), "")
            .unwrap()
            .ends_with("line\nlast\n")
    );
}

#[test]
fn response_without_a_single_block_changes_nothing() {
    let reason = |response: &str| {
        edited(
            "a\nb\n",
            &draft("# ... existing code ...\nB", 1, -1),
            response,
        )
        .unwrap_err()
    };
    let no_block = "the model that applies drafts did not respond with one block of lines; the file is unchanged";
    for response in [
        "",
        "a\nB\n",
        "```\na\nB\n",
        "```\na\n```\nand\n```\nB\n```\n",
        "```\n````\n",
        "``\na\n``",
        "a ```\nb\n```",
    ] {
        assert_eq!(reason(response), no_block, "{response:?}");
    }
    assert!(reason("```\n# ... existing code ...\nB\n```").contains("left out lines at"));
    assert_eq!(reason("```\na\nb\n```"), "the draft changes nothing");
    // If the lines have fences, the prompt requires longer ones.
    let markdown = draft("```sh\nmake\n```", 1, -1);
    let Ok(DraftPlan::Rewrite(lines)) = plan(&markdown, "```sh\nmk\n```\n".into()) else {
        panic!("a rewrite")
    };
    assert!(lines.prompt(&markdown).ends_with(&format!(
        "between a line `{}` and another one.",
        "`".repeat(4)
    )));
    let edit = lines
        .parse_response(&markdown, "````\n```sh\nmake\n```\n````")
        .unwrap();
    assert_eq!(edit.new_str.as_deref(), Some("```sh\nmake\n```\n"));
    assert!(
        lines
            .parse_response(&markdown, "```\n```sh\nmake\n```\n```")
            .is_err()
    );
}

#[test]
fn invalid_and_long_ranges_are_rejected() {
    let reason = |text: &str, draft: &EditAction| edited(text, draft, "").unwrap_err();
    assert_eq!(
        reason("a\n", &draft("", 3, -1)),
        "the file has 1 lines, from 1, and `start` is 3"
    );
    assert_eq!(
        reason("a\n", &draft("", 0, -1)),
        "the file has 1 lines, from 1, and `start` is 0"
    );
    assert_eq!(
        reason("a\nb\n", &draft("", 2, 1)),
        "`end` is 1, which is before `start`, 2"
    );
    assert_eq!(
        reason("a\n", &draft("", -2, 1)),
        "-2 to 1 are no lines of the file"
    );
    assert_eq!(
        reason("a\n", &draft("", 1, -7)),
        "1 to -7 are no lines of the file"
    );
    let long: String = (1..=301)
        .map(|number| format!("line number {number}\n"))
        .collect();
    let too_long = reason(&long, &draft("short\n  line number 207  \nnew\n", 1, -1));
    assert!(
        too_long.starts_with("lines 1 to 301 or their draft are too long: the limit is 300 lines"),
        "{too_long}"
    );
    assert!(
        too_long.ends_with("; line 207 of the file is also in your draft"),
        "{too_long}"
    );
    assert!(edited(&long, &draft("x", 2, 301), "```\nx\n```").is_ok());
    assert!(reason(&"x".repeat(70_000), &draft("x", 1, 1)).ends_with("use the shell"));
    assert!(
        reason("a\n<secret_hidden>\n", &draft("x", 2, 2))
            .starts_with("these lines, or lines above them, have a redacted secret")
    );
    assert!(
        reason("<secret_hidden>\na\n", &draft("x", 2, 2))
            .starts_with("these lines, or lines above them, have a redacted secret")
    );
    assert!(edited("a\n<secret_hidden>\n", &draft("x", 1, 1), "```\nb\n```").is_ok());
    assert!(reason("a\n\u{fffd}\n", &draft("x", 2, 2)).starts_with("these lines are not UTF-8"));
    assert!(edited("a\n\u{fffd}\n", &draft("x", 1, 1), "```\nb\n```").is_ok());
}

/// Model that responds from a list, in order. A call without a response hangs.
#[derive(Default)]
struct QueuedLlm {
    responses: Mutex<Vec<Value>>,
    called: Notify,
}

impl QueuedLlm {
    fn new(responses: impl IntoIterator<Item = Value>) -> Arc<Self> {
        let mut responses: Vec<Value> = responses.into_iter().collect();
        responses.reverse();
        Arc::new(Self {
            responses: Mutex::new(responses),
            called: Notify::new(),
        })
    }
}

#[async_trait]
impl Llm for QueuedLlm {
    fn model(&self) -> &str {
        "scripted"
    }

    fn max_cost(&self, _: u64) -> f64 {
        1.0
    }

    async fn complete(
        &self,
        _: &LlmRequest,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let response = self.responses.lock().unwrap().pop();
        self.called.notify_one();
        let Some(message) = response else {
            std::future::pending().await
        };
        Ok(Completion {
            response: ModelResponse::from_stored(
                json!({"id": "r", "choices": [{"message": message}]}),
            ),
            usage: TokenUsage {
                prompt_tokens: 1,
                ..TokenUsage::default()
            },
            cost: Some(1.0),
            latency: Duration::from_secs(1),
        })
    }
}

fn calls(name: &str, arguments: &Value) -> Value {
    let call = json!({"id": "c", "function": {"name": name, "arguments": arguments.to_string()}});
    json!({"role": "assistant", "content": null, "tool_calls": [call]})
}

fn edit_file() -> Value {
    calls(
        "edit_file",
        &json!({"path": "/f", "content": "two", "start": 2, "end": "2"}),
    )
}

fn block(lines: &str) -> Value {
    json!({"role": "assistant", "content": format!("```\n{lines}\n```")})
}

/// A conversation whose sandbox has the file `/f` with three lines.
struct World {
    store: Arc<MemoryStore>,
    provider: ScriptedProvider,
    edits: Arc<Mutex<Vec<EditAction>>>,
}

impl World {
    fn new() -> Self {
        let edits: Arc<Mutex<Vec<EditAction>>> = Arc::default();
        let seen = Arc::clone(&edits);
        let provider = ScriptedProvider::new(move |request| {
            ScriptedResult::Observation(match &request.action {
                SandboxAction::Read(read) if read.path == "/f" => {
                    Observation::new("1\n2\n3\n", ReadObservation::default())
                }
                SandboxAction::Edit(edit) => {
                    seen.lock().unwrap().push(edit.clone());
                    Observation::new("edited", EditObservation::default())
                }
                _ => Observation::error("no", ""),
            })
        });
        Self {
            store: Arc::default(),
            provider,
            edits,
        }
    }

    fn parts(&self, llm: Arc<QueuedLlm>, draft_editor: Arc<QueuedLlm>) -> EngineParts {
        let definition = AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec());
        let agent = CodeActAgent {
            definition,
            command_timeout: 120.0,
            declares_risk: false,
        };
        EngineParts {
            store: self.store.clone(),
            write_lock: Arc::new(()),
            agents: Agents::from(TeamMember {
                llm,
                draft_editor,
                agent: Arc::new(agent),
                condenser: Arc::new(Noop),
                tool_servers: Arc::new(NoToolServers),
            }),
            provider: Arc::new(self.provider.clone()),
            spec: SandboxSpec::new(id()),
            analyzer: None,
            memory: None,
            is_unattended: false,
            replayed_user: None,
        }
    }

    async fn start(
        &self,
        llm: Arc<QueuedLlm>,
        draft_editor: Arc<QueuedLlm>,
        max_budget: Option<f64>,
    ) -> Conversation {
        let started = ConversationStarted {
            max_iterations: 9,
            max_budget,
            runtime: "scripted".into(),
            ..Default::default()
        };
        let conversation = Conversation::start(self.parts(llm, draft_editor), id(), started)
            .await
            .unwrap();
        conversation
            .apply(UserCommand::message("work"))
            .await
            .unwrap();
        conversation
    }

    /// `error_id` and text of the drafts' terminal events.
    fn terminal_events(&self) -> Vec<(String, String)> {
        let log = self.store.log(&id());
        let drafts = log
            .iter()
            .filter(|event| matches!(&event.body, EventBody::Action(Action::Edit(_))));
        let terminal = |draft: &Event| {
            let mut terminal = log.iter().filter(|event| event.cause == Some(draft.id));
            let Some(EventBody::Observation(observation)) =
                terminal.next().map(|event| &event.body)
            else {
                panic!("no terminal event")
            };
            assert!(terminal.next().is_none(), "one terminal event");
            let ObservationKind::Error(error) = &observation.kind else {
                return (String::new(), observation.content.clone());
            };
            (error.error_id.clone(), observation.content.clone())
        };
        drafts.map(terminal).collect()
    }

    fn edits(&self) -> Vec<(String, String)> {
        let edits = self.edits.lock().unwrap();
        let texts =
            |edit: &EditAction| (edit.old_str.clone().unwrap(), edit.new_str.clone().unwrap());
        edits.iter().map(texts).collect()
    }
}

fn id() -> ConversationId {
    "conversation".parse().unwrap()
}

fn finish() -> Value {
    calls("finish", &json!({}))
}

async fn reach(conversation: &Conversation, state: AgentState) {
    conversation
        .wait_for(|now| now.agent_state == state && !now.has_pending_actions())
        .await;
}

#[tokio::test(start_paused = true)]
async fn unusable_response_costs_and_reaches_no_sandbox() {
    let world = World::new();
    let drafts = [
        block("zwei"),
        json!({"role": "assistant", "content": "I would rather not."}),
    ];
    let conversation = world
        .start(
            QueuedLlm::new([edit_file(), edit_file(), finish()]),
            QueuedLlm::new(drafts),
            None,
        )
        .await;
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), [("2\n".to_owned(), "zwei\n".to_owned())]);
    let [done, refused] = &world.terminal_events()[..] else {
        panic!("two")
    };
    assert_eq!(*done, (String::new(), "edited".to_owned()));
    assert!(
        refused.0 == NOT_PERFORMED && refused.1.contains("did not respond with one block"),
        "{refused:?}"
    );
    let state = conversation.state();
    assert_eq!(
        (state.iterations, state.metrics.accumulated_cost),
        (3, 5.0),
        "drafts are no steps"
    );
    assert!(
        world
            .provider
            .start_counts()
            .values()
            .all(|count| *count == 1)
    );
}

#[tokio::test(start_paused = true)]
async fn stop_cancels_the_call_without_an_edit() {
    let world = World::new();
    let drafts = QueuedLlm::new([]);
    let conversation = world
        .start(QueuedLlm::new([edit_file()]), drafts.clone(), None)
        .await;
    drafts.called.notified().await;
    conversation.apply(UserCommand::Stop).await.unwrap();
    reach(&conversation, AgentState::Stopped).await;
    let stopped = "The action was not performed: the user stopped it.".to_owned();
    assert_eq!(
        (world.terminal_events(), world.edits()),
        (vec![(NOT_PERFORMED.to_owned(), stopped)], vec![])
    );
}

#[tokio::test(start_paused = true)]
async fn crash_repeats_only_an_unfinished_model_call() {
    let world = World::new();
    let drafts = QueuedLlm::new([]);
    let conversation = world
        .start(QueuedLlm::new([edit_file()]), drafts.clone(), None)
        .await;
    drafts.called.notified().await;
    drop(conversation);
    let parts = world.parts(QueuedLlm::new([finish()]), QueuedLlm::new([block("zwei")]));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), [("2\n".to_owned(), "zwei\n".to_owned())]);
    drop(conversation);

    // The process is killed after the edit is logged and before its terminal event.
    let mut log = world.store.log(&id());
    let is_drafted =
        |event: &Event| matches!(&event.body, EventBody::Record(Record::EditDrafted(_)));
    log.truncate(log.iter().position(is_drafted).unwrap() + 1);
    let again = World {
        store: Arc::default(),
        ..World::new()
    };
    let provider = world.provider.clone();
    crate::events::EventStore::append(again.store.as_ref(), &id(), &log)
        .await
        .unwrap();
    let unused = QueuedLlm::new([]);
    let parts = EngineParts {
        provider: Arc::new(provider),
        ..again.parts(QueuedLlm::new([finish()]), unused)
    };
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(
        again.terminal_events(),
        [(String::new(), "edited".to_owned())],
        "it is attached to"
    );
    assert!(
        world
            .provider
            .start_counts()
            .values()
            .all(|count| *count == 1)
    );
    assert_eq!(
        conversation.state().metrics.accumulated_cost,
        3.0,
        "the draft cost once"
    );
}

#[tokio::test(start_paused = true)]
async fn draft_is_not_performed_when_its_sandbox_is_lost() {
    let world = World::new();
    let drafts = QueuedLlm::new([]);
    let conversation = world
        .start(
            QueuedLlm::new([edit_file(), finish()]),
            drafts.clone(),
            None,
        )
        .await;
    drafts.called.notified().await;
    drop(conversation);
    world.provider.lose_all();
    let parts = world.parts(QueuedLlm::new([finish()]), QueuedLlm::new([]));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.terminal_events()[0].0, NOT_PERFORMED);
    assert_eq!(world.edits(), []);
}

#[tokio::test(start_paused = true)]
async fn no_draft_is_applied_beyond_the_budget() {
    let world = World::new();
    let conversation = world
        .start(
            QueuedLlm::new([edit_file(), finish()]),
            QueuedLlm::new([]),
            Some(1.0),
        )
        .await;
    reach(&conversation, AgentState::Error).await;
    let [(_, why)] = &world.terminal_events()[..] else {
        panic!("one")
    };
    assert!(why.contains("budget for model calls is used up"), "{why}");
    conversation
        .apply(UserCommand::Resume {
            more_iterations: None,
            more_budget: Some(9.0),
        })
        .await
        .unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), []);
}
