use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use protocol::action::{EditCommand, FileImplementation, MessageAction};
use protocol::metrics::TokenUsage;
use protocol::observation::{EditObservation, ReadObservation};
use protocol::record::ConversationStarted;
use protocol::{Action, AgentState, ConversationId, Event, EventBody, Observation, Record};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::agent::tools::ToolName;
use crate::agent::{AgentDefinition, CodeActAgent, Prompt, TeamMember};
use crate::condenser::Noop;
use crate::conversation::{Conversation, NOT_PERFORMED, Parts, Terms};
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

/// The text after a draft, as the editor makes it of the edit: or what the agent is told.
fn edited(text: &str, draft: &EditAction, answer: &str) -> Result<String, String> {
    let edit = match plan(draft, text.into())? {
        DraftPlan::Edit(edit) => edit,
        DraftPlan::Rewrite(lines) => lines.parse_response(draft, answer)?,
    };
    assert!(!edit.is_draft() && edit.content == draft.content);
    let new = edit.new_str.unwrap();
    if edit.command == EditCommand::Insert {
        return Ok(format!("{text}{new}"));
    }
    let old = edit.old_str.unwrap();
    assert_eq!((edit.command, text.matches(&old).count()), (EditCommand::StrReplace, 1), "{old:?}");
    Ok(text.replacen(&old, &new, 1))
}

#[test]
fn only_the_lines_of_the_range_are_replaced() {
    let fenced = |lines: &str| format!("Here they are:\n```python\n{lines}```\nDone.");
    for (text, range, answer, expected) in [
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
        let edited = edited(text, &draft("draft", range.0, range.1), &fenced(answer));
        assert_eq!(edited.as_deref(), Ok(expected), "{text:?} {range:?} {answer:?}");
    }
}

#[test]
fn request_holds_all_lines_of_the_range() {
    let draft = draft("A\n\n", 1, 3);
    let Ok(DraftPlan::Rewrite(lines)) = plan(&draft, "a\r\n\r\n\r\nb\r\n".into()) else {
        panic!("a rewrite")
    };
    let told = lines.prompt(&draft);
    assert!(
        told.contains("<lines>\na\r\n\r\n\n</lines>") && told.contains("<draft>\nA\n\n</draft>"),
        "{told:?}"
    );
}

#[test]
fn draft_is_replayed_without_a_model() {
    let told = |old: Option<&str>, new: &str| EditObservation {
        prev_exist: old.is_some(),
        old_content: old.map(str::to_owned),
        new_content: Some(new.into()),
        ..EditObservation::default()
    };
    let again = |draft: &EditAction, old: Option<&str>, new| reconstruct(draft, &told(old, new));
    let edit = again(&draft("roughly", 2, 2), Some("x\nx\nx\n"), "x\ny\nz\nx\n").unwrap();
    assert_eq!((edit.old_str.as_deref(), edit.new_str.as_deref()), (Some("x\nx\nx\n"), Some("x\ny\nz\nx\n")));
    assert_eq!(
        again(&draft("roughly", 2, 2), Some("a\nb\nc\n"), "a\nB\nC\n"),
        None,
        "another line changed too"
    );
    assert_eq!(again(&draft("new", 1, -1), None, "new").unwrap().command, EditCommand::Create);
    assert!(again(&draft("b", -1, -1), Some("a\n"), "a\nb\n").unwrap().new_str.unwrap().ends_with("b\n"));
    assert_eq!(reconstruct(&draft("b", 1, 1), &EditObservation::default()), None);
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
        assert_eq!(edited(text, &draft(content, -1, -1), "").as_deref(), Ok(expected), "{text:?}");
    }
    let long = "line\n".repeat(5000);
    assert!(edited(&long, &draft("last", -1, -1), "").unwrap().ends_with("line\nlast\n"));
}

#[test]
fn response_without_a_single_block_changes_nothing() {
    let said =
        |answer: &str| edited("a\nb\n", &draft("# ... existing code ...\nB", 1, -1), answer).unwrap_err();
    let no_block =
        "the model that writes drafts out did not answer with one block of lines; the file is as it was";
    for answer in [
        "",
        "a\nB\n",
        "```\na\nB\n",
        "```\na\n```\nand\n```\nB\n```\n",
        "```\n````\n",
        "``\na\n``",
        "a ```\nb\n```",
    ] {
        assert_eq!(said(answer), no_block, "{answer:?}");
    }
    assert!(said("```\n# ... existing code ...\nB\n```").contains("left lines out"));
    assert_eq!(said("```\na\nb\n```"), "the draft changes nothing");
    // Where the lines have fences, longer ones are asked for, and are told from them.
    let markdown = draft("```sh\nmake\n```", 1, -1);
    let Ok(DraftPlan::Rewrite(lines)) = plan(&markdown, "```sh\nmk\n```\n".into()) else {
        panic!("a rewrite")
    };
    assert!(
        lines.prompt(&markdown).ends_with(&format!("between a line `{}` and another one.", "`".repeat(4)))
    );
    let edit = lines.parse_response(&markdown, "````\n```sh\nmake\n```\n````").unwrap();
    assert_eq!(edit.new_str.as_deref(), Some("```sh\nmake\n```\n"));
    assert!(lines.parse_response(&markdown, "```\n```sh\nmake\n```\n```").is_err());
}

#[test]
fn invalid_and_long_ranges_are_rejected() {
    let said = |text: &str, draft: &EditAction| edited(text, draft, "").unwrap_err();
    assert_eq!(said("a\n", &draft("", 3, -1)), "the file has 1 lines, from 1, and `start` is 3");
    assert_eq!(said("a\n", &draft("", 0, -1)), "the file has 1 lines, from 1, and `start` is 0");
    assert_eq!(said("a\nb\n", &draft("", 2, 1)), "`end` is 1, which is before `start`, 2");
    assert_eq!(said("a\n", &draft("", -2, 1)), "-2 to 1 are no lines of the file");
    assert_eq!(said("a\n", &draft("", 1, -7)), "1 to -7 are no lines of the file");
    let long: String = (1..=301).map(|number| format!("line number {number}\n")).collect();
    let refused = said(&long, &draft("short\n  line number 207  \nnew\n", 1, -1));
    assert!(refused.starts_with("lines 1 to 301 are too much: at most 300 lines"), "{refused}");
    assert!(refused.ends_with("; line 207 of the file is also in your draft"), "{refused}");
    assert!(edited(&long, &draft("x", 2, 301), "```\nx\n```").is_ok());
    assert!(said(&"x".repeat(70_000), &draft("x", 1, 1)).ends_with("use the shell"));
    assert!(said("a\n<secret_hidden>\n", &draft("x", 2, 2)).starts_with("a secret stands in these lines"));
    assert!(said("<secret_hidden>\na\n", &draft("x", 2, 2)).starts_with("a secret stands in these lines"));
    assert!(edited("a\n<secret_hidden>\n", &draft("x", 1, 1), "```\nb\n```").is_ok());
    assert!(said("a\n\u{fffd}\n", &draft("x", 2, 2)).starts_with("these lines are not UTF-8"));
    assert!(edited("a\n\u{fffd}\n", &draft("x", 1, 1), "```\nb\n```").is_ok());
}

/// Answers in order; a call that has no answer waits for ever.
#[derive(Default)]
struct Says {
    answers: Mutex<Vec<Value>>,
    asked: Notify,
}

impl Says {
    fn new(answers: impl IntoIterator<Item = Value>) -> Arc<Self> {
        let mut answers: Vec<Value> = answers.into_iter().collect();
        answers.reverse();
        Arc::new(Self { answers: Mutex::new(answers), asked: Notify::new() })
    }
}

#[async_trait]
impl Llm for Says {
    fn model(&self) -> &str {
        "says"
    }

    fn max_cost(&self, _: u64) -> f64 {
        1.0
    }

    async fn complete(
        &self,
        _: &LlmRequest,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let answer = self.answers.lock().unwrap().pop();
        self.asked.notify_one();
        let Some(message) = answer else { std::future::pending().await };
        Ok(Completion {
            response: ModelResponse(json!({"id": "r", "choices": [{"message": message}]})),
            usage: TokenUsage { prompt_tokens: 1, ..TokenUsage::default() },
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
    calls("edit_file", &json!({"path": "/f", "content": "two", "start": 2, "end": "2"}))
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
        Self { store: Arc::default(), provider, edits }
    }

    fn parts(&self, llm: Arc<Says>, draft_editor: Arc<Says>) -> Parts {
        let definition = AgentDefinition::code_act(Prompt::Unattended, ToolName::ALL.to_vec());
        let agent = CodeActAgent { definition, command_timeout: 120.0, declares_risk: false };
        Parts {
            store: self.store.clone(),
            write_lock: Arc::new(()),
            own: TeamMember {
                llm,
                draft_editor,
                agent: Arc::new(agent),
                condenser: Arc::new(Noop),
                tool_servers: Arc::new(NoToolServers),
            },
            provider: Arc::new(self.provider.clone()),
            spec: SandboxSpec::new(id()),
            analyzer: None,
            memory: None,
            team: Arc::default(),
        }
    }

    async fn begin(&self, llm: Arc<Says>, draft_editor: Arc<Says>, max_budget: Option<f64>) -> Conversation {
        let started = ConversationStarted {
            max_iterations: 9,
            max_budget,
            runtime: "scripted".into(),
            ..Default::default()
        };
        let conversation = Conversation::begin(self.parts(llm, draft_editor), id(), started).await.unwrap();
        conversation.say(MessageAction { content: "work".into(), ..Default::default() }).unwrap();
        conversation
    }

    /// What came of the drafts, by the observation's `error_id` and text.
    fn endings(&self) -> Vec<(String, String)> {
        let log = self.store.log(&id());
        let drafts = log.iter().filter(|event| matches!(&event.body, EventBody::Action(Action::Edit(_))));
        let ending = |draft: &Event| {
            let mut ended = log.iter().filter(|event| event.cause == Some(draft.id));
            let Some(EventBody::Observation(ending)) = ended.next().map(|event| &event.body) else {
                panic!("no ending")
            };
            assert!(ended.next().is_none(), "one ending");
            let ObservationKind::Error(error) = &ending.kind else {
                return (String::new(), ending.content.clone());
            };
            (error.error_id.clone(), ending.content.clone())
        };
        drafts.map(ending).collect()
    }

    fn edits(&self) -> Vec<(String, String)> {
        let edits = self.edits.lock().unwrap();
        let texts = |edit: &EditAction| (edit.old_str.clone().unwrap(), edit.new_str.clone().unwrap());
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
    conversation.wait_for(|now| now.agent_state == state && !now.is_underway()).await;
}

#[tokio::test(start_paused = true)]
async fn unusable_response_costs_and_reaches_no_sandbox() {
    let world = World::new();
    let drafts = [block("zwei"), json!({"role": "assistant", "content": "I would rather not."})];
    let conversation =
        world.begin(Says::new([edit_file(), edit_file(), finish()]), Says::new(drafts), None).await;
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), [("2\n".to_owned(), "zwei\n".to_owned())]);
    let [done, refused] = &world.endings()[..] else { panic!("two") };
    assert_eq!(*done, (String::new(), "edited".to_owned()));
    assert!(refused.0 == NOT_PERFORMED && refused.1.contains("did not answer with one block"), "{refused:?}");
    let state = conversation.state();
    assert_eq!((state.iterations, state.metrics.accumulated_cost), (3, 5.0), "drafts are no steps");
    assert!(world.provider.runs().values().all(|runs| *runs == 1));
}

#[tokio::test(start_paused = true)]
async fn stop_cancels_the_call_without_an_edit() {
    let world = World::new();
    let drafts = Says::new([]);
    let conversation = world.begin(Says::new([edit_file()]), drafts.clone(), None).await;
    drafts.asked.notified().await;
    conversation.stop().unwrap();
    reach(&conversation, AgentState::Stopped).await;
    let stopped = "The action was not performed: the user stopped it.".to_owned();
    assert_eq!((world.endings(), world.edits()), (vec![(NOT_PERFORMED.to_owned(), stopped)], vec![]));
}

#[tokio::test(start_paused = true)]
async fn crash_repeats_only_an_unfinished_model_call() {
    let world = World::new();
    let drafts = Says::new([]);
    let conversation = world.begin(Says::new([edit_file()]), drafts.clone(), None).await;
    drafts.asked.notified().await;
    drop(conversation);
    let parts = world.parts(Says::new([finish()]), Says::new([block("zwei")]));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), [("2\n".to_owned(), "zwei\n".to_owned())]);
    drop(conversation);

    // The process dies when it has heard of the edit, and before what came of it.
    let mut log = world.store.log(&id());
    let is_drafted = |event: &Event| matches!(&event.body, EventBody::Record(Record::EditDrafted(_)));
    log.truncate(log.iter().position(is_drafted).unwrap() + 1);
    let again = World { store: Arc::default(), ..World::new() };
    let provider = world.provider.clone();
    crate::events::EventStore::append(again.store.as_ref(), &id(), &log).await.unwrap();
    let unasked = Says::new([]);
    let parts = Parts { provider: Arc::new(provider), ..again.parts(Says::new([finish()]), unasked) };
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(again.endings(), [(String::new(), "edited".to_owned())], "it is attached to");
    assert!(world.provider.runs().values().all(|runs| *runs == 1));
    assert_eq!(conversation.state().metrics.accumulated_cost, 3.0, "it was paid for once");
}

#[tokio::test(start_paused = true)]
async fn draft_is_not_performed_when_its_sandbox_is_lost() {
    let world = World::new();
    let drafts = Says::new([]);
    let conversation = world.begin(Says::new([edit_file(), finish()]), drafts.clone(), None).await;
    drafts.asked.notified().await;
    drop(conversation);
    world.provider.lose_all();
    let parts = world.parts(Says::new([finish()]), Says::new([]));
    let conversation = Conversation::recover(parts, id()).await.unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.endings()[0].0, NOT_PERFORMED);
    assert_eq!(world.edits(), []);
}

#[tokio::test(start_paused = true)]
async fn no_draft_is_applied_beyond_the_budget() {
    let world = World::new();
    let conversation = world.begin(Says::new([edit_file(), finish()]), Says::new([]), Some(1.0)).await;
    reach(&conversation, AgentState::Error).await;
    let [(_, why)] = &world.endings()[..] else { panic!("one") };
    assert!(why.contains("have cost all that they may"), "{why}");
    conversation.resume(Terms { max_budget: Some(9.0), ..Terms::default() }).unwrap();
    reach(&conversation, AgentState::Finished).await;
    assert_eq!(world.edits(), []);
}
