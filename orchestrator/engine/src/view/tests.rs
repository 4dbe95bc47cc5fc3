use proptest::prelude::*;
use protocol::action::{MessageAction, RunAction};
use protocol::observation::{
    BrowseObservation, CommandMetadata, LoopDetectionObservation, McpObservation,
    MicroagentKnowledge, RecallObservation, RunIpythonObservation, RunObservation,
    UserRejectedObservation,
};
use serde_json::json;

use super::logs::{LogBuilder, any_condensation, any_log, assert_paired, texts};
use super::*;
use crate::llm::{ChatMessage, MessagePart};
use crate::testing::timestamp;
use crate::tool_servers::{ToolOffer, ToolServerFailure, announce};

fn metadata(call: &str) -> ToolCallMetadata {
    let calls: Vec<_> = ["a", "b"]
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "execute_bash", "arguments": "{}"}}))
        .collect();
    ToolCallMetadata {
        function_name: "execute_bash".into(),
        tool_call_id: call.into(),
        model_response: (&json!({"id": "r1", "choices": [{"message": {"role": "assistant", "content": "both", "tool_calls": calls}}]})).into(),
        total_calls_in_response: 2,
    }
}

fn log(bodies: Vec<(EventSource, EventBody, Option<&str>)>) -> View {
    log_with_seen(bodies, &[])
}

/// Returns a log in which some events start a response of a model that saw the log up to another
/// event.
fn log_with_seen(bodies: Vec<(EventSource, EventBody, Option<&str>)>, seen: &[(u64, u64)]) -> View {
    let events = bodies
        .into_iter()
        .zip(0..)
        .map(|((source, body, call), id)| {
            let mut event = Event::new(EventId(id), timestamp(), source, body);
            event.tool_call_metadata = call.map(metadata);
            event.events_seen = seen
                .iter()
                .find(|(start, _)| *start == id)
                .map(|(_, seen)| EventId(*seen));
            Arc::new(event)
        });
    View::from_events(events.collect())
}

fn user_message(text: &str) -> (EventSource, EventBody, Option<&'static str>) {
    let message = MessageAction {
        content: text.into(),
        ..Default::default()
    };
    (EventSource::User, Action::from(message).into(), None)
}

fn runs(call: &'static str) -> (EventSource, EventBody, Option<&'static str>) {
    (
        EventSource::Agent,
        Action::from(RunAction::default()).into(),
        Some(call),
    )
}

fn ran(call: &'static str) -> (EventSource, EventBody, Option<&'static str>) {
    let observation = Observation::new(format!("output of {call}"), RunObservation::default());
    (EventSource::Agent, observation.into(), Some(call))
}

fn result(message: &ChatMessage) -> (&str, &str) {
    let ChatMessage::ToolResult { call_id, parts, .. } = message else {
        panic!("a result, not {message:?}")
    };
    let [MessagePart::Text(text)] = parts.as_slice() else {
        panic!("one text")
    };
    (call_id, text)
}

#[test]
fn calls_of_one_response_are_one_message_with_results() {
    let messages = log(vec![
        user_message("go"),
        runs("a"),
        ran("a"),
        runs("b"),
        ran("b"),
    ])
    .messages();
    assert_eq!(messages.len(), 4);
    assert!(matches!(&messages[1], ChatMessage::Assistant(message) if message.text == "both"));
    assert_eq!(result(&messages[2]), ("a", "output of a"));
    assert_eq!(result(&messages[3]), ("b", "output of b"));
}

#[test]
fn only_data_urls_of_a_cells_images_are_rendered() {
    let image = "data:image/png;base64,iVBO".to_owned();
    let urls = [
        vec!["http://169.254.169.254/".to_owned()],
        vec![image.clone(); 20],
    ]
    .concat();
    let kind = RunIpythonObservation {
        image_urls: Some(urls),
        ..Default::default()
    };
    let seen = (
        EventSource::Agent,
        Observation::new("a chart", kind).into(),
        Some("a"),
    );
    let messages = log(vec![runs("a"), seen]).messages();
    let ChatMessage::ToolResult { parts, .. } = &messages[1] else {
        panic!("{messages:?}")
    };
    let images = vec![MessagePart::Image(image); 8];
    assert_eq!(
        *parts,
        [vec![MessagePart::Text("a chart".into())], images].concat()
    );
}

#[test]
fn images_of_an_mcp_tool_are_rendered() {
    let image = "data:image/png;base64,iVBO".to_owned();
    let kind = McpObservation {
        image_urls: vec![image.clone()],
        ..Default::default()
    };
    let seen = (
        EventSource::Agent,
        Observation::new("a chart", kind).into(),
        Some("a"),
    );
    let messages = log(vec![runs("a"), seen]).messages();
    let ChatMessage::ToolResult { parts, .. } = &messages[1] else {
        panic!("{messages:?}")
    };
    assert_eq!(
        parts.as_slice(),
        [
            MessagePart::Text("a chart".into()),
            MessagePart::Image(image)
        ]
    );
}

#[test]
fn screenshot_of_a_page_is_rendered() {
    let [plain, marked] = ["data:image/jpeg;base64,/9j/", "data:image/jpeg;base64,/9k/"];
    for (screenshot, set_of_marks, images) in [
        (plain, "", vec![MessagePart::Image(plain.into())]),
        (plain, marked, vec![MessagePart::Image(marked.into())]),
        ("", "", vec![]),
    ] {
        let (screenshot, set_of_marks) = (screenshot.into(), set_of_marks.into());
        let kind = BrowseObservation {
            screenshot,
            set_of_marks,
            ..Default::default()
        };
        let seen = (
            EventSource::Agent,
            Observation::new("a page", kind).into(),
            Some("a"),
        );
        let messages = log(vec![runs("a"), seen]).messages();
        let ChatMessage::ToolResult { parts, .. } = &messages[1] else {
            panic!("{messages:?}")
        };
        assert_eq!(
            (&parts[0], &parts[1..]),
            (&MessagePart::Text("a page".into()), images.as_slice())
        );
    }
}

#[test]
fn redacted_image_is_rendered_as_a_note() {
    let image = |url: &str| {
        vec![
            format!("data:image/png;base64,iVBO{url}"),
            "data:image/png;base64,iVBO".into(),
        ]
    };
    let kind = McpObservation {
        image_urls: image("<secret_hidden>RK"),
        ..Default::default()
    };
    let seen = (
        EventSource::Agent,
        Observation::new("a chart", kind).into(),
        Some("a"),
    );
    let message = MessageAction {
        image_urls: Some(image("<secret_hidden>")),
        ..Default::default()
    };
    let asked = (EventSource::User, Action::Message(message).into(), None);
    let messages = log(vec![asked, runs("a"), seen]).messages();
    let [
        ChatMessage::User(asked),
        _,
        ChatMessage::ToolResult { parts, .. },
        ..,
    ] = messages.as_slice()
    else {
        panic!("{messages:?}")
    };
    for parts in [asked, parts] {
        assert!(
            matches!(&parts[1], MessagePart::Text(note) if note.starts_with("[An image is left out")),
            "{parts:?}"
        );
        assert_eq!(
            parts[2..],
            [MessagePart::Image("data:image/png;base64,iVBO".into())]
        );
    }
}

#[test]
fn result_of_a_repeated_id_is_that_of_the_first_call() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "execute_bash", "arguments": "{}"}});
    let twice = json!({"id": "r1", "choices": [{"message": {"role": "assistant", "tool_calls": [call, call]}}]});
    let events = [runs("a"), ran("a")]
        .into_iter()
        .enumerate()
        .map(|(id, (source, body, call))| {
            let mut event = Event::new(EventId(id as u64), timestamp(), source, body);
            let with_response = |metadata: ToolCallMetadata| ToolCallMetadata {
                model_response: (&twice).into(),
                ..metadata
            };
            event.tool_call_metadata = call.map(metadata).map(with_response);
            Arc::new(event)
        });
    let messages = View::from_events(events.collect()).messages();
    assert_eq!(result(&messages[1]), ("a", "output of a"));
    assert_eq!(result(&messages[2]), ("a", "The call was not made."));
}

#[test]
fn rejected_call_skips_the_rest_of_its_response() {
    let rejected = Observation::new("no", UserRejectedObservation {});
    let view = log(vec![
        user_message("go"),
        runs("a"),
        (EventSource::Agent, rejected.into(), Some("a")),
    ]);
    assert!(view.pending_call().is_none());
    assert_eq!(result(&view.messages()[3]), ("b", "The call was not made."));
}

#[test]
fn offer_may_occur_between_two_calls() {
    let failure = ToolServerFailure {
        server: "git".into(),
        reason: "it died".into(),
    };
    let echo = Tool {
        name: "echo".into(),
        description: "".into(),
        parameters: json!({"type": "object"}),
    };
    let news = announce(
        &View::default(),
        &ToolOffer {
            tools: vec![echo.clone()],
            failures: vec![failure],
            ..ToolOffer::default()
        },
    );
    let mut events = vec![user_message("go"), runs("a"), ran("a")];
    events.extend(
        news.into_iter()
            .map(|body| (EventSource::Environment, body, None)),
    );
    assert_eq!(
        log(events.clone()).pending_call().map(|(call, _)| call.id),
        Some("b".into())
    );
    events.extend([runs("b"), ran("b")]);
    let view = log(events);
    let messages = view.messages();
    assert_eq!((result(&messages[2]).0, result(&messages[3]).0), ("a", "b"));
    let rendered = ChatMessage::User(vec![MessagePart::Text(
        "ERROR: the MCP server git: it died".into(),
    )]);
    assert_eq!(messages[4..], [rendered], "the tools are no message");
    assert_eq!(view.offered_tools(), [echo]);
}

#[test]
fn call_without_an_event_still_has_a_result() {
    let messages = log(vec![
        user_message("go"),
        runs("a"),
        ran("a"),
        user_message("stop that"),
    ])
    .messages();
    assert_eq!(result(&messages[3]), ("b", "The call was not made."));
    assert!(matches!(&messages[4], ChatMessage::User(_)));
}

#[test]
fn next_call_of_a_response_is_found_in_the_log() {
    let next = |view: &View| {
        view.pending_call()
            .map(|(call, metadata)| (call.id, metadata.tool_call_id))
    };
    assert_eq!(next(&log(vec![user_message("go")])), None);
    assert_eq!(
        next(&log(vec![user_message("go"), runs("a"), ran("a")])),
        Some(("b".into(), "b".into()))
    );
    assert_eq!(
        next(&log(vec![
            user_message("go"),
            runs("a"),
            ran("a"),
            runs("b"),
            ran("b")
        ])),
        None
    );
    assert_eq!(
        next(&log(vec![
            user_message("go"),
            runs("a"),
            ran("a"),
            user_message("no, something else")
        ])),
        None
    );
}

#[test]
fn agents_see_only_their_own_events() {
    let messages = [
        ("go", None),
        ("find it", Some(0)),
        ("and that", Some(0)),
        ("thanks", None),
    ];
    let events: Vec<_> = (0..)
        .zip(messages)
        .map(|(id, (text, delegation))| {
            let (source, body, _) = user_message(text);
            let mut event = Event::new(EventId(id), timestamp(), source, body);
            event.delegation = delegation.map(EventId);
            Arc::new(event)
        })
        .collect();
    for (agent, expected) in [
        (None, ["go", "thanks"]),
        (Some(EventId(0)), ["find it", "and that"]),
    ] {
        let mut view = View::for_agent(agent);
        // A part at a time is the same.
        view.update(&events[..2]);
        view.update(&events);
        let rendered = expected.map(|text| ChatMessage::User(vec![MessagePart::Text(text.into())]));
        assert_eq!(
            (view.messages(), view.end()),
            (rendered.to_vec(), EventId(4))
        );
    }
}

#[test]
fn failed_setup_steps_are_rendered() {
    let step = |thought: &str| {
        let run = RunAction {
            command: "long text".into(),
            thought: thought.into(),
            ..Default::default()
        };
        (EventSource::Environment, Action::from(run).into(), None)
    };
    let ran = |exit_code, output: String| {
        let metadata = CommandMetadata {
            exit_code,
            working_dir: Some("/w".into()),
            ..Default::default()
        };
        let observation = Observation::new(
            output,
            RunObservation {
                metadata,
                ..Default::default()
            },
        );
        (EventSource::Agent, observation.into(), None)
    };
    let noise = "x".repeat(100_000);
    let view = log(vec![
        step("Cloning a"),
        ran(0, noise.clone()),
        step("Running b"),
        ran(3, noise + "why"),
    ]);
    let mut events: Vec<_> = view
        .entries()
        .iter()
        .map(|shown| Arc::clone(&shown.event))
        .collect();
    for (ended, cause) in [(1, 0), (3, 2)] {
        let mut event = Event::clone(&events[ended]);
        event.cause = Some(EventId(cause));
        events[ended] = Arc::new(event);
    }
    let rendered: Vec<_> = View::from_events(events)
        .messages()
        .into_iter()
        .map(|message| match message {
            ChatMessage::User(parts) => match parts.as_slice() {
                [MessagePart::Text(text)] => text.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        rendered[0],
        "Before you started: Cloning a: done.\n[Working directory: /w]"
    );
    assert!(rendered[1].starts_with(
        "Before you started: Running b: failed with exit code 3. The end of its output:\n"
    ));
    assert!(
        rendered[1].ends_with("xwhy\n[Working directory: /w]") && rendered[1].len() < 2200,
        "{}",
        rendered[1].len()
    );
    assert_eq!(rendered.len(), 2);
}

/// Texts of a view of `steps` steps after a condensation.
fn rendered(steps: usize, condensation: CondensationAction) -> Vec<String> {
    let mut log = LogBuilder::with_steps(steps);
    log.condense(condensation);
    texts(&log.view().messages())
}

fn forgets(first: i64, last: i64) -> CondensationAction {
    CondensationAction {
        forgotten_events_start_id: Some(first),
        forgotten_events_end_id: Some(last),
        ..Default::default()
    }
}

fn sums_up(first: i64, last: i64, summary: &str, offset: i64) -> CondensationAction {
    let summary = Some(summary.to_owned());
    CondensationAction {
        summary,
        summary_offset: Some(offset),
        ..forgets(first, last)
    }
}

#[test]
fn summary_replaces_forgotten_events() {
    assert_eq!(
        rendered(3, sums_up(2, 5, "two steps", 2)),
        [
            "the prompt",
            "the task",
            "two steps",
            "thought 3",
            "output of call-3-0"
        ]
    );
    let ids = CondensationAction {
        forgotten_event_ids: Some(vec![4, 5]),
        ..Default::default()
    };
    assert_eq!(
        rendered(3, ids),
        [
            "the prompt",
            "the task",
            "thought 1",
            "output of call-1-0",
            "thought 3",
            "output of call-3-0"
        ]
    );
}

#[test]
fn summary_stays_until_a_newer_one_replaces_it() {
    let mut log = LogBuilder::with_steps(3);
    log.condense(sums_up(2, 3, "one step", 2));
    log.response(1, 1);
    log.condense(forgets(4, 5));
    let kept = [
        "the prompt",
        "the task",
        "one step",
        "thought 3",
        "output of call-3-0",
        "thought 4",
    ];
    assert_eq!(texts(&log.view().messages())[..6], kept);
    log.condense(sums_up(2, 7, "three steps", 2));
    assert_eq!(
        texts(&log.view().messages())[..4],
        ["the prompt", "the task", "three steps", "thought 4"]
    );
}

/// V0 keeps a call whose result is forgotten, and counts it in the offset.
#[test]
fn summary_precedes_newer_events_when_a_call_is_split() {
    let mut log = LogBuilder::with_steps(4);
    // Keeps the first call in V0: prompt, task, call, summary.
    log.condense(sums_up(3, 7, "three steps", 3));
    let expected = [
        "the prompt",
        "the task",
        "three steps",
        "thought 4",
        "output of call-4-0",
    ];
    assert_eq!(texts(&log.view().messages()), expected);
    log.response(1, 1);
    log.response(1, 1);
    log.condense(sums_up(8, 12, "five steps", 3));
    let expected = [
        "the prompt",
        "the task",
        "five steps",
        "thought 6",
        "output of call-6-0",
    ];
    assert_eq!(texts(&log.view().messages()), expected);
    // A condensation of the remaining call ends its count.
    log.response(1, 1);
    log.condense(sums_up(2, 14, "all steps", 2));
    let expected = [
        "the prompt",
        "the task",
        "all steps",
        "thought 7",
        "output of call-7-0",
    ];
    assert_eq!(texts(&log.view().messages()), expected);
}

#[test]
fn model_is_not_told_what_v0_hides() {
    let knowledge = |name: &str| MicroagentKnowledge {
        name: name.into(),
        trigger: name.into(),
        content: format!("about {name}"),
    };
    let recall = |recall_type, microagent_knowledge| {
        let json = json!({"recall_type": recall_type, "microagent_knowledge": []});
        let recall: RecallObservation = serde_json::from_value(json).unwrap();
        Observation::new(
            "Recalled.",
            RecallObservation {
                microagent_knowledge,
                ..recall
            },
        )
    };
    let hidden = RunObservation {
        hidden: true,
        ..RunObservation::default()
    };
    let mut log = LogBuilder::with_task();
    for observation in [
        recall("knowledge", vec![]),
        recall("knowledge", vec![knowledge("git"), knowledge("npm")]),
        // V0 repeats knowledge in its logs.
        recall("knowledge", vec![knowledge("git"), knowledge("go")]),
        recall("knowledge", vec![knowledge("npm")]),
        Observation::new("export TOKEN", hidden),
        Observation::new("a loop", LoopDetectionObservation {}),
    ] {
        log.push(EventSource::Environment, observation);
    }
    let texts = texts(&log.view().messages());
    let [_, _, first, second] = texts.as_slice() else {
        panic!("{texts:#?}")
    };
    assert!(
        first.contains("about git") && first.contains("about npm"),
        "{first}"
    );
    assert!(
        second.contains("about go") && !second.contains("about git"),
        "{second}"
    );
}

#[test]
fn condensation_forgets_calls_with_their_results() {
    let expected = ["the prompt", "the task", "thought 2", "output of call-2-0"];
    assert_eq!(rendered(2, forgets(3, 3)), expected);
    assert_eq!(rendered(2, forgets(2, 2)), expected);

    // Calls of one response, too.
    let mut log = LogBuilder::with_task();
    log.response(3, 3);
    log.condense(forgets(4, 4));
    assert_eq!(texts(&log.view().messages()), ["the prompt", "the task"]);
}

#[test]
fn condensation_never_forgets_prompt_and_task() {
    for condensation in [forgets(0, i64::MAX), forgets(i64::MIN, i64::MAX)] {
        assert_eq!(rendered(2, condensation), ["the prompt", "the task"]);
    }
    assert_eq!(
        rendered(2, sums_up(0, 99, "all", 0)),
        ["the prompt", "the task", "all"]
    );
}

#[test]
fn invalid_condensation_forgets_nothing() {
    let whole = rendered(2, CondensationAction::default());
    assert_eq!(whole.len(), 6);
    assert_eq!(rendered(2, forgets(5, 2)), whole);
    assert_eq!(rendered(2, forgets(900, 1000)), whole);
    let half = CondensationAction {
        forgotten_events_start_id: Some(2),
        ..Default::default()
    };
    assert_eq!(rendered(2, half), whole);
}

#[test]
fn condensation_forgets_no_later_events() {
    let mut log = LogBuilder::with_task();
    log.condense(forgets(0, i64::MAX));
    log.response(1, 1);
    assert_eq!(log.view().messages().len(), 4);
}

#[test]
fn calls_with_the_same_id_are_made_once() {
    let mut log = LogBuilder::with_task();
    log.response(1, 1);
    let twice = |event: &Arc<Event>| {
        let mut event = Event::clone(event);
        if let Some(metadata) = &mut event.tool_call_metadata {
            let mut response = metadata.model_response.to_value();
            let calls = &mut response["choices"][0]["message"]["tool_calls"];
            *calls = json!([calls[0], calls[0]]);
            metadata.model_response = (&response).into();
        }
        Arc::new(event)
    };
    assert!(
        View::from_events(log.events.iter().map(twice).collect())
            .pending_call()
            .is_none()
    );
}

#[test]
fn message_sent_during_a_call_follows_its_response() {
    let answer = MessageAction {
        content: "I am done.".into(),
        ..Default::default()
    };
    let answer = (EventSource::Agent, Action::from(answer).into(), None);
    let calls = [
        runs("a"),
        ran("a"),
        runs("b"),
        ran("b"),
        user_message("and then?"),
    ];
    for (response, texts) in [
        (
            calls.to_vec(),
            ["both", "output of a", "output of b", "wait", "and then?"].as_slice(),
        ),
        (vec![answer], &["I am done.", "wait"]),
    ] {
        let mut events: Vec<_> = [user_message("go"), user_message("wait")].into();
        let request = log(events[..1].to_vec()).messages();
        events.extend(response);
        let next = log_with_seen(events, &[(2, 1)]).messages();
        assert_eq!(
            next[..1],
            request[..],
            "the next request extends the one before"
        );
        assert_eq!(next.len(), 1 + texts.len(), "{next:#?}");
        for (message, text) in next[1..].iter().zip(texts) {
            assert!(format!("{message:?}").contains(text), "{message:?}");
        }
    }
}

/// A summary has a greater id than the kept responses.
#[test]
fn summary_precedes_the_responses_that_are_kept() {
    let mut log = LogBuilder::with_steps(4);
    let request = log.view().messages();
    log.condense(sums_up(2, 5, "the summary", 2));
    let messages = log.view().messages();
    assert!(
        format!("{:?}", messages[2]).contains("the summary"),
        "{messages:#?}"
    );
    assert_eq!(messages[3..], request[6..]);
}

/// Some servers give all responses and calls the same ids.
#[test]
fn same_response_twice_is_two_messages() {
    let events = vec![user_message("go"), runs("a"), ran("a"), runs("a"), ran("a")];
    let messages = log_with_seen(events, &[(1, 1), (3, 3)]).messages();
    let responses = messages
        .iter()
        .filter(|message| matches!(message, ChatMessage::Assistant(_)));
    assert_eq!(responses.count(), 2, "{messages:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_log_is_rendered_as_valid_messages(log in any_log(2)) {
        let view = log.view();
        assert_paired(&view.messages());
        let _ = view.pending_call();
    }

    #[test]
    fn incremental_view_equals_the_view_of_the_whole_log(log in any_log(2), cut in 0..100_usize) {
        let mut view = View::default();
        view.update(&log.events[..cut.min(log.events.len())]);
        view.update(&log.events);
        prop_assert_eq!(view.messages(), log.view().messages());
        prop_assert_eq!(view.end(), EventId(log.events.len() as u64));
    }

    #[test]
    fn condensation_adds_at_most_its_summary(
        log in any_log(2), condensation in any_condensation(),
    ) {
        let before = log.view();
        let mut after = log;
        after.condense(condensation);
        prop_assert!(after.view().len() <= before.len() + usize::from(before.summary().is_none()));
    }
}
