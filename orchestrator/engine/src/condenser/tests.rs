use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use protocol::action::{CondensationAction, RecallAction, RecallType};
use protocol::metrics::TokenUsage;
use protocol::{Action, EventBody, EventSource};
use serde_json::{Value, json};

use super::*;
use crate::llm::{
    ChatMessage, Completion, Llm, LlmErrorKind, LlmRequest, MessagePart, ModelResponse,
};
use crate::view::logs::{LogBuilder, any_log, assert_paired, texts};

/// Returns the response to a prompt.
type Respond = dyn Fn(&str) -> Result<Value, LlmErrorKind> + Send + Sync;

/// A model that responds with a function, and records its prompts.
struct FunctionLlm {
    respond: Box<Respond>,
    prompts: Mutex<Vec<String>>,
}

impl FunctionLlm {
    fn new(
        respond: impl Fn(&str) -> Result<Value, LlmErrorKind> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            respond: Box::new(respond),
            prompts: Mutex::default(),
        })
    }

    /// Responds with a text.
    fn replying(text: &'static str) -> Arc<Self> {
        Self::new(move |_| Ok(json!({"role": "assistant", "content": text})))
    }

    /// Calls a tool.
    fn calls(name: &'static str, arguments: &Value) -> Arc<Self> {
        let arguments = arguments.to_string();
        Self::new(move |_| {
            let call = json!({"id": "c", "function": {"name": name, "arguments": arguments}});
            Ok(json!({"role": "assistant", "content": null, "tool_calls": [call]}))
        })
    }

    fn prompts(&self) -> Vec<String> {
        self.prompts.lock().unwrap().clone()
    }
}

#[async_trait]
impl Llm for FunctionLlm {
    fn model(&self) -> &str {
        "function"
    }

    fn max_cost(&self, _: u64) -> f64 {
        0.0
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        on_progress(LlmProgress::Text("streamed".to_owned()));
        let Some(ChatMessage::User(parts)) = request.messages.last() else {
            panic!("{request:?}")
        };
        let [MessagePart::Text(prompt)] = parts.as_slice() else {
            panic!("{parts:?}")
        };
        self.prompts.lock().unwrap().push(prompt.clone());
        let message = (self.respond)(prompt).map_err(|kind| LlmError {
            kind,
            detail: "as scripted".into(),
            retry_after: None,
        })?;
        Ok(Completion {
            response: ModelResponse::from_stored(
                json!({"id": "s", "choices": [{"message": message}]}),
            ),
            usage: TokenUsage {
                model: "function".into(),
                prompt_tokens: 7,
                ..TokenUsage::default()
            },
            cost: Some(0.25),
            latency: Duration::from_secs(1),
        })
    }
}

fn build(config: Value, llm: &Arc<FunctionLlm>) -> Arc<dyn Condenser> {
    let config: CondenserConfig = serde_json::from_value(config).unwrap();
    config.check().unwrap();
    let build = |_: Option<&str>| Ok::<Arc<dyn Llm>, ()>(llm.clone());
    config.build(&build).unwrap()
}

async fn condense(
    config: Value,
    llm: &Arc<FunctionLlm>,
    log: &LogBuilder,
) -> Result<CondenserOutput, LlmError> {
    build(config, llm).condense(log.view(), &|_| ()).await
}

/// What the agent is shown by a condenser that does not condense.
async fn shown(config: Value, log: &LogBuilder) -> Vec<String> {
    match condense(config, &FunctionLlm::replying("no"), log)
        .await
        .unwrap()
    {
        CondenserOutput::View(view) => {
            assert_paired(&view.messages());
            texts(&view.messages())
        }
        other => panic!("{other:?}"),
    }
}

fn decision(condensed: CondenserOutput) -> (CondensationAction, Option<crate::agent::ModelCall>) {
    match condensed {
        CondenserOutput::Condensation(step) => match step.body {
            EventBody::Action(Action::Condensation(condensation)) => (condensation, step.call),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Texts of the view after the condensation that a condenser decides on, and the condensation.
async fn condensed(
    config: Value,
    llm: &Arc<FunctionLlm>,
    log: &LogBuilder,
) -> (Vec<String>, CondensationAction) {
    let (condensation, _) = decision(condense(config, llm, log).await.unwrap());
    let mut log = log.clone();
    log.condense(condensation.clone());
    assert_paired(&log.view().messages());
    (texts(&log.view().messages()), condensation)
}

/// A prompt, a task and 49 steps of two events each: 100.
fn hundred() -> LogBuilder {
    LogBuilder::with_steps(49)
}

fn one_more(log: &LogBuilder) -> LogBuilder {
    let mut log = log.clone();
    log.response(1, 1);
    log
}

#[tokio::test]
async fn noop_keeps_the_whole_history() {
    let mut log = LogBuilder::with_steps(500);
    log.request_condensation();
    assert_eq!(shown(json!({"type": "noop"}), &log).await.len(), 1002);
}

#[tokio::test]
async fn amortized_forgets_half_of_a_long_history() {
    let config = json!({"type": "amortized"});
    assert_eq!(shown(config.clone(), &hundred()).await.len(), 100);
    let (view, condensation) =
        condensed(config, &FunctionLlm::replying("no"), &one_more(&hundred())).await;
    assert_eq!(view[..3], ["the prompt", "the task", "thought 27"]);
    assert_eq!(view.len(), 50);
    assert_eq!(
        condensation,
        CondensationAction {
            forgotten_events_start_id: Some(2),
            forgotten_events_end_id: Some(53),
            ..Default::default()
        }
    );
}

#[tokio::test]
async fn request_is_served_by_the_next_capable_condenser() {
    let config = json!({"type": "pipeline", "condensers": [
        {"type": "observation_masking"}, {"type": "amortized"}, {"type": "conversation_window"},
    ]});
    let mut log = LogBuilder::with_steps(10);
    assert_eq!(shown(config.clone(), &log).await.len(), 22);
    log.request_condensation();
    let (view, _) = condensed(config, &FunctionLlm::replying("no"), &log).await;
    assert_eq!(view.len(), 12);
}

#[tokio::test]
async fn conversation_window_keeps_prompt_and_task_on_request() {
    let config = || json!({"type": "conversation_window"});
    let llm = FunctionLlm::replying("no");
    assert_eq!(
        shown(config(), &LogBuilder::with_steps(500)).await.len(),
        1002
    );

    let mut log = LogBuilder::with_task();
    let recall = RecallAction {
        recall_type: RecallType::WorkspaceContext,
        query: "the task".into(),
        thought: String::new(),
    };
    log.push(EventSource::User, Action::from(recall));
    (0..10).for_each(|_| log.response(1, 1));
    log.request_condensation();
    let (_, condensation) = condensed(config(), &llm, &log).await;
    assert_eq!(condensation.forgotten_events_start_id, Some(3));
    assert_eq!(condensation.forgotten_events_end_id, Some(12));

    // Until there is nothing left that may be forgotten.
    let mut log = LogBuilder::with_steps(10);
    for length in [22, 12, 6, 4] {
        assert_eq!(log.view().len(), length);
        log.request_condensation();
        let (condensation, call) = match condense(config(), &llm, &log).await.unwrap() {
            CondenserOutput::View(_) => break,
            condensed => decision(condensed),
        };
        assert_eq!(call, None);
        log.condense(condensation);
    }
    assert_eq!(log.view().len(), 4);
}

#[tokio::test]
async fn recent_keeps_first_and_latest_events_and_moves_in_strides() {
    let config = || json!({"type": "recent", "keep_first": 1, "max_events": 12});
    assert_eq!(shown(config(), &LogBuilder::with_steps(5)).await.len(), 12);
    let view = shown(config(), &LogBuilder::with_steps(6)).await;
    assert_eq!(view[..3], ["the prompt", "the task", "thought 4"]);
    for steps in 5..60 {
        let view = shown(config(), &LogBuilder::with_steps(steps)).await;
        assert!((6..=12).contains(&view.len()), "{}", view.len());
        assert_eq!(view[view.len() - 2], format!("thought {steps}"));
    }
}

#[tokio::test]
async fn observation_masking_masks_the_results_of_old_calls() {
    let config = || json!({"type": "observation_masking", "attention_window": 4});
    let view = shown(config(), &LogBuilder::with_steps(4)).await;
    let masked: Vec<_> = view
        .iter()
        .map(|text| text.starts_with("[Output omitted"))
        .collect();
    // After the prompt and the task: two steps that are old, two that are not.
    assert_eq!(
        masked,
        [
            false, false, false, true, false, true, false, false, false, false
        ]
    );
    assert_eq!(view[6], "thought 3");
}

#[tokio::test]
async fn browser_output_masking_keeps_the_latest_page() {
    let mut log = LogBuilder::with_task();
    ["http://a/", "http://b/", "http://c/"]
        .into_iter()
        .for_each(|url| log.browse(url));
    log.response(1, 1);
    assert_eq!(
        shown(json!({"type": "browser_output_masking"}), &log).await,
        [
            "the prompt",
            "the task",
            "[Page http://a/ omitted: newer pages follow.]",
            "[Page http://b/ omitted: newer pages follow.]",
            "the page http://c/",
            "thought 1",
            "output of call-1-0",
        ]
    );
}

#[tokio::test]
async fn llm_summary_builds_on_the_previous_one() {
    let config = || json!({"type": "llm", "keep_first": 2, "max_size": 20});
    let llm = FunctionLlm::replying(" what was done \n");
    let mut log = LogBuilder::with_steps(10);
    let (condensation, call) = decision(condense(config(), &llm, &log).await.unwrap());
    assert_eq!(call.unwrap().cost, Some(0.25));
    assert_eq!(condensation.summary.as_deref(), Some("what was done"));
    assert_eq!(condensation.summary_offset, Some(2));
    log.condense(condensation);
    let view = texts(&log.view().messages());
    assert_eq!(
        view[..4],
        ["the prompt", "the task", "what was done", "thought 8"]
    );
    let prompts = llm.prompts();
    assert!(prompts[0].contains("There is none yet"), "{}", prompts[0]);
    assert!(
        prompts[0].contains("thought 1\nIt called execute_bash"),
        "{}",
        prompts[0]
    );
    assert!(
        prompts[0].contains("output of call-7-0") && !prompts[0].contains("output of call-8-0")
    );

    (0..10).for_each(|_| log.response(1, 1));
    let (view, _) = condensed(config(), &llm, &log).await;
    assert_eq!(
        view.iter().filter(|text| *text == "what was done").count(),
        1
    );
    assert!(llm.prompts()[1].contains("<summary_so_far>\nwhat was done\n"));
    assert!(!llm.prompts()[1].contains("output of call-7-0"));
}

#[tokio::test]
async fn long_event_keeps_start_and_end_in_the_request() {
    let llm = FunctionLlm::replying("short");
    let mut log = LogBuilder::with_task();
    log.user_message(&format!("start{}end", "x".repeat(100_000)));
    (0..20).for_each(|_| log.response(1, 1));
    condense(
        json!({"type": "llm", "max_size": 20, "max_event_length": 1000}),
        &llm,
        &log,
    )
    .await
    .unwrap();
    let prompt = llm.prompts().remove(0);
    assert!(prompt.contains("start") && prompt.contains("end\n"));
    assert!(prompt.len() < 10_000, "{}", prompt.len());
}

#[tokio::test]
async fn summary_is_not_streamed_to_the_user() {
    let llm = FunctionLlm::replying("what was done");
    let condenser = build(json!({"type": "llm", "max_size": 20}), &llm);
    let view = LogBuilder::with_steps(10).view();
    let on_progress = |progress| panic!("{progress:?}");
    super::condense(condenser.as_ref(), view, &on_progress)
        .await
        .unwrap();
    assert_eq!(llm.prompts().len(), 1);
}

#[tokio::test]
async fn request_is_halved_when_it_exceeds_the_context_window() {
    let mut log = LogBuilder::with_task();
    (0..30).for_each(|_| log.user_message(&"word ".repeat(1000)));
    let config = || json!({"type": "llm", "max_size": 20});
    let small = FunctionLlm::new(|prompt| match prompt.len() {
        0..30_000 => Ok(json!({"role": "assistant", "content": "short"})),
        _ => Err(LlmErrorKind::ContextWindowExceeded),
    });
    decision(condense(config(), &small, &log).await.unwrap());
    let lengths: Vec<_> = small.prompts().iter().map(String::len).collect();
    assert!(
        lengths.len() > 1 && lengths.is_sorted_by(|a, b| a > b),
        "{lengths:?}"
    );

    let tiny = FunctionLlm::new(|_| Err(LlmErrorKind::ContextWindowExceeded));
    let error = condense(config(), &tiny, &log).await.unwrap_err();
    assert_eq!(
        (error.kind, tiny.prompts().len()),
        (LlmErrorKind::ContextWindowExceeded, 7)
    );

    let away = FunctionLlm::new(|_| Err(LlmErrorKind::Unavailable));
    let error = condense(config(), &away, &log).await.unwrap_err();
    assert_eq!(
        (error.kind, away.prompts().len()),
        (LlmErrorKind::Unavailable, 1)
    );
}

#[tokio::test]
async fn unusable_summary_still_costs_and_condenses() {
    for message in [
        json!({"content": null}),
        json!({"content": " \n"}),
        json!(7),
    ] {
        let llm = FunctionLlm::new(move |_| Ok(message.clone()));
        let (condensation, call) = decision(
            condense(
                json!({"type": "llm", "max_size": 20}),
                &llm,
                &LogBuilder::with_steps(10),
            )
            .await
            .unwrap(),
        );
        assert!(call.is_some());
        assert_eq!(
            condensation.summary.as_deref(),
            Some("The next 12 events were forgotten without a summary.")
        );
    }
    let long = FunctionLlm::new(|_| Ok(json!({"content": "word ".repeat(1_000_000)})));
    let (condensation, _) = decision(
        condense(
            json!({"type": "llm", "max_size": 20}),
            &long,
            &LogBuilder::with_steps(10),
        )
        .await
        .unwrap(),
    );
    assert!(condensation.summary.unwrap().len() < 21_000);
}

#[tokio::test]
async fn structured_formats_the_filled_in_form() {
    let config = || json!({"type": "structured", "max_size": 20});
    let form = json!({"request": "mend it", "done": "", "to_do": ["test", "ship"], "files": "a.rs", "own": "?"});
    let llm = FunctionLlm::calls("note_state", &form);
    let (_, condensation) = condensed(config(), &llm, &LogBuilder::with_steps(10)).await;
    assert_eq!(
        condensation.summary.as_deref(),
        Some(
            "## What the user wants\nmend it\n\n## Still to do\n[\"test\",\"ship\"]\n\n## Files\na.rs"
        )
    );
    // A model that does not call says it in its own way.
    let (_, condensation) = condensed(
        config(),
        &FunctionLlm::replying("notes"),
        &LogBuilder::with_steps(10),
    )
    .await;
    assert_eq!(condensation.summary.as_deref(), Some("notes"));
}

#[tokio::test]
async fn llm_attention_forgets_unranked_events() {
    let config = || json!({"type": "llm_attention", "max_size": 20});
    let expected = |view: Vec<String>| {
        // Ten of 22 stay: prompt, task, the latest step, the two that were named, and the latest of
        // the others.
        let thoughts: Vec<_> = view
            .into_iter()
            .filter(|text| text.starts_with("thought"))
            .collect();
        assert_eq!(
            thoughts,
            ["thought 1", "thought 3", "thought 9", "thought 10"]
        );
    };
    let log = LogBuilder::with_steps(10);
    let ranked = FunctionLlm::calls(
        "rank_events",
        &json!({"ids": [2, "7", 7, 99999, -1, null, 2]}),
    );
    let (view, condensation) = condensed(config(), &ranked, &log).await;
    expected(view);
    assert!(condensation.forgotten_event_ids.is_some());
    let written = FunctionLlm::replying("Most important: [2, 6], the rest is not.");
    expected(condensed(config(), &written, &log).await.0);
    // One that ranks nothing keeps the latest.
    let (view, _) = condensed(config(), &FunctionLlm::replying("I cannot."), &log).await;
    assert_eq!(view[2], "thought 7");
    assert_eq!(view.len(), 10);
}

#[test]
fn names_and_defaults_are_v0s() {
    let parse = |text: &str| serde_json::from_str::<CondenserConfig>(text);
    assert_eq!(
        parse(r#"{"type": "llm", "llm_config": "small"}"#).unwrap(),
        CondenserConfig::Llm {
            llm_config: Some("small".into()),
            keep_first: 1,
            max_size: 100,
            max_event_length: 10_000,
        }
    );
    let recent = CondenserConfig::Recent {
        keep_first: 1,
        max_events: 100,
    };
    assert_eq!(parse(r#"{"type": "recent"}"#).unwrap(), recent);
    let pages = CondenserConfig::BrowserOutputMasking {
        attention_window: 1,
    };
    assert_eq!(
        parse(r#"{"type": "browser_output_masking"}"#).unwrap(),
        pages
    );
    let masking = CondenserConfig::ObservationMasking {
        attention_window: 100,
    };
    assert_eq!(
        parse(r#"{"type": "observation_masking"}"#).unwrap(),
        masking
    );
    for name in [
        "noop",
        "conversation_window",
        "structured",
        "amortized",
        "llm_attention",
    ] {
        parse(&format!(r#"{{"type": "{name}"}}"#))
            .unwrap()
            .check()
            .unwrap();
    }
    CondenserConfig::v0_default().check().unwrap();
    for (text, problem) in [
        (
            r#"{"type": "amortized", "keep_first": 5, "max_size": 10}"#,
            "keep_first (5) must be less than half of max_size (10)",
        ),
        (
            r#"{"type": "recent", "max_events": 0}"#,
            "max_events must be 1 or more",
        ),
        (
            r#"{"type": "pipeline", "condensers": [{"type": "observation_masking", "attention_window": 0}]}"#,
            "attention_window must be 1 or more",
        ),
    ] {
        assert_eq!(
            parse(text).unwrap().check().unwrap_err().to_string(),
            problem
        );
    }
    assert!(parse(r#"{"type": "recent", "max_size": 1}"#).is_err());
    assert!(parse(r#"{"type": "noop", "max_size": 1}"#).is_err());
}

/// Condensers that condense, small enough that random logs make them act.
fn condensing() -> impl Strategy<Value = Value> {
    let bounds = || (0..4_usize, 10..30_usize);
    let of = |name: &'static str| move |(keep_first, max_size)| json!({"type": name, "keep_first": keep_first, "max_size": max_size});
    prop_oneof![
        Just(json!({"type": "conversation_window"})),
        bounds().prop_map(of("amortized")),
        bounds().prop_map(of("llm")),
        bounds().prop_map(of("structured")),
        bounds().prop_map(of("llm_attention")),
    ]
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn condensation_shrinks_the_view_and_keeps_the_progress(
        config in condensing(), log in any_log(2), asks in any::<bool>(),
    ) {
        let mut log = log;
        if asks {
            log.request_condensation();
        }
        let before = log.view();
        match run(condense(config, &FunctionLlm::replying("summary [5, 9, 3]"), &log)).unwrap() {
            CondenserOutput::View(view) => prop_assert_eq!(view.messages(), before.messages()),
            condensed => {
                log.condense(decision(condensed).0);
                let after = log.view();
                prop_assert!(after.len() < before.len(), "{} {}", after.len(), before.len());
                prop_assert_eq!(after.pending_call(), before.pending_call());
                assert_paired(&after.messages());
            }
        }
    }

    #[test]
    fn reduced_view_keeps_the_progress(
        log in any_log(2), keep_first in 0..4_usize, window in 1..20_usize,
    ) {
        let before = log.view();
        for config in [
            json!({"type": "recent", "keep_first": keep_first, "max_events": window}),
            json!({"type": "observation_masking", "attention_window": window}),
            json!({"type": "browser_output_masking", "attention_window": window}),
        ] {
            let CondenserOutput::View(view) = run(condense(config, &FunctionLlm::replying("no"), &log)).unwrap() else {
                panic!("a view")
            };
            assert_paired(&view.messages());
            prop_assert!(view.len() <= before.len());
            prop_assert_eq!(view.pending_call(), before.pending_call());
        }
    }

    #[test]
    fn messages_only_grow_between_condensations(
        config in condensing(), steps in 20..60_usize, calls in 1..4_usize,
    ) {
        let condenser = build(config, &FunctionLlm::replying("summary [5, 9, 3]"));
        let mut log = LogBuilder::with_task();
        let mut before: Vec<ChatMessage> = Vec::new();
        for step in 0..steps {
            log.response(calls, calls);
            if step % 16 == 15 {
                log.request_condensation();
            }
            let view = loop {
                match run(condenser.condense(log.view(), &|_| ())).unwrap() {
                    CondenserOutput::View(view) => break view.messages(),
                    condensed => {
                        log.condense(decision(condensed).0);
                        before.clear();
                    }
                }
            };
            prop_assert!(view.starts_with(&before));
            before = view;
        }
    }
}

/// Otherwise a history that exceeds the context window would fail each later step.
#[tokio::test]
async fn requested_condensation_shortens_what_every_condenser_shows() {
    for config in [
        json!({"type": "noop"}),
        json!({"type": "conversation_window"}),
        json!({"type": "observation_masking", "attention_window": 5}),
        json!({"type": "browser_output_masking"}),
        json!({"type": "recent", "max_events": 10}),
    ] {
        let condenser = build(config.clone(), &FunctionLlm::replying("unused"));
        let mut log = LogBuilder::with_steps(40);
        let shown =
            async |log: &LogBuilder| match super::condense(condenser.as_ref(), log.view(), &|_| ())
                .await
                .unwrap()
            {
                CondenserOutput::View(view) => texts(&view.messages()),
                CondenserOutput::Condensation(step) => panic!("{config}: {step:?}"),
            };
        let before = shown(&log).await;
        log.request_condensation();
        let output = super::condense(condenser.as_ref(), log.view(), &|_| ())
            .await
            .unwrap();
        let CondenserOutput::Condensation(step) = output else {
            panic!("{config}: no condensation")
        };
        let EventBody::Action(Action::Condensation(condensation)) = step.body else {
            panic!("{config}")
        };
        log.condense(condensation);
        let after = shown(&log).await;
        assert!(
            after.len() < before.len(),
            "{config}: {before:?}, then {after:?}"
        );
        assert!(
            after.iter().all(|text| before.contains(text)),
            "{config}: {before:?}, then {after:?}"
        );
        assert_eq!(after.last(), before.last(), "{config}");
    }
}

/// The share decides what a provider's prompt cache saves.
#[tokio::test]
async fn most_of_a_request_repeats_the_one_before() {
    let length = |messages: &[ChatMessage]| {
        messages
            .iter()
            .map(|message| format!("{message:?}").len())
            .sum::<usize>()
    };
    for name in [
        "noop",
        "conversation_window",
        "observation_masking",
        "browser_output_masking",
        "recent",
        "amortized",
        "llm",
        "structured",
        "llm_attention",
    ] {
        let condenser = build(
            json!({"type": name}),
            &FunctionLlm::replying("summary [5, 9, 3]"),
        );
        let (mut log, mut before) = (LogBuilder::with_task(), Vec::new());
        let (mut repeated, mut all, mut moved) = (0, 0, 0);
        for _ in 0..200 {
            log.response(1, 1);
            let messages = loop {
                match condenser.condense(log.view(), &|_| ()).await.unwrap() {
                    CondenserOutput::View(view) => break view.messages(),
                    condensed => {
                        log.condense(decision(condensed).0);
                        before.clear();
                    }
                }
            };
            if !before.is_empty() {
                let same = messages
                    .iter()
                    .zip(&before)
                    .take_while(|(now, before)| now == before)
                    .count();
                repeated += length(&messages[..same]);
                all += length(&messages);
                moved += usize::from(same < before.len());
            }
            before = messages;
        }
        let percent = repeated * 100 / all;
        println!(
            "{name}: {percent} %, and {moved} requests are not longer versions of the ones before"
        );
        // Only a window moves without a condensation: by half its 100 events, each 25 steps.
        assert!(percent >= 94 && moved <= 8, "{name}: {percent} % {moved}");
    }
}
