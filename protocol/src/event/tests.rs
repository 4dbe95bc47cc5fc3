use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Event, EventBody, EventError, current_format};
use crate::action::Action;
use crate::agent_state::AgentState;
use crate::observation::ObservationKind;
use crate::risk::SecurityRisk;

fn wire_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/wire")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// `message` is derived text, so its wording may differ from V0's.
fn without_message(mut event: Value) -> Value {
    event.as_object_mut().unwrap().remove("message");
    event
}

fn assert_round_trip(value: &Value, name: &str) {
    let event = Event::from_value(value).unwrap_or_else(|error| panic!("{name}: {error}"));
    let again = serde_json::to_value(&event).unwrap();
    assert_eq!(
        without_message(again.clone()),
        without_message(value.clone()),
        "{name}"
    );
    assert!(
        again["message"].is_string(),
        "{name}: clients read `message`"
    );
    let text = serde_json::to_string(&event).unwrap();
    assert_eq!(
        serde_json::from_str::<Event>(&text).unwrap(),
        event,
        "{name}: through text"
    );
}

#[test]
fn every_event_of_the_wire_round_trips() {
    for file in wire_files("events") {
        assert_round_trip(&read(&file), &file.display().to_string());
    }
}

#[test]
fn every_trajectory_of_the_wire_round_trips() {
    for file in wire_files("trajectories") {
        for event in read(&file).as_array().unwrap() {
            assert_round_trip(event, &format!("{} event {}", file.display(), event["id"]));
        }
    }
}

#[test]
fn events_of_the_newest_version_have_no_variance() {
    for file in wire_files("events") {
        let event = Event::from_value(&read(&file)).unwrap();
        assert_eq!(
            event.variance,
            super::Variance::default(),
            "{}",
            file.display()
        );
    }
}

/// Returns every variant of a value that has one field less, one field more, or one other value.
fn changes(value: &Value) -> Vec<Value> {
    let mut changed = vec![json!(null), json!({"of": "another kind"})];
    match value {
        Value::Object(map) => {
            let with = |name: &str, value: Option<Value>| {
                let mut map = map.clone();
                match value {
                    Some(value) => map.insert(name.to_owned(), value),
                    None => map.remove(name),
                };
                Value::Object(map)
            };
            changed.push(with("a field that is not ours", Some(json!(1))));
            for (name, inner) in map {
                changed.push(with(name, None));
                changed.extend(
                    changes(inner)
                        .into_iter()
                        .map(|inner| with(name, Some(inner))),
                );
            }
        }
        Value::Array(elements) => {
            changed.push([elements.as_slice(), &[json!(1)]].concat().into());
            for (index, inner) in elements.iter().enumerate() {
                changed.extend(changes(inner).into_iter().map(|inner| {
                    let mut elements = elements.clone();
                    elements[index] = inner;
                    elements.into()
                }));
            }
        }
        Value::String(text) => changed.push(format!("{text}1").into()),
        Value::Number(number) => changed.push((number.as_f64().unwrap() + 1.0).into()),
        Value::Bool(value) => changed.push((!value).into()),
        Value::Null => changed.push(json!("text")),
    }
    changed
}

/// Parses `text`; `None` if it is not in the current format.
fn parse_current(text: &str) -> Option<Event> {
    current_format::parse(None, text.as_bytes())
}

#[test]
fn changed_events_are_read_with_their_changes() {
    let mut changed_count = 0;
    for file in wire_files("events") {
        let event = read(&file);
        let expected = Event::from_value(&event).unwrap();
        let text = serde_json::to_string(&expected).unwrap();
        assert_eq!(parse_current(&text), Some(expected), "{}", file.display());
        for changed in changes(&event) {
            let Ok(expected) = Event::from_value(&changed) else {
                continue;
            };
            let text = serde_json::to_string(&expected).unwrap();
            assert_eq!(
                Event::read_after(None, text.as_bytes()).unwrap(),
                expected,
                "{text}"
            );
            assert_eq!(
                parse_current(&text).is_some(),
                expected.variance.is_none(),
                "{text}"
            );
            assert_round_trip(&changed, &text);
            changed_count += 1;
        }
    }
    assert!(changed_count > 1000, "{changed_count}");
}

#[test]
fn text_in_another_format_is_read_the_same() {
    let event = Event::from_value(&read(&wire_files("events")[0])).unwrap();
    let text = serde_json::to_string(&event).unwrap();
    let sorted = serde_json::to_string(&serde_json::to_value(&event).unwrap()).unwrap();
    let (spaced, longer) = (text.replacen(':', ": ", 1), format!("{text} "));
    let twice = text.replacen('{', r#"{"message":"","#, 1);
    for other in [sorted, spaced, longer, twice] {
        assert_eq!(parse_current(&other), None, "{other}");
        assert_eq!(
            Event::read_after(None, other.as_bytes()).unwrap(),
            event,
            "{other}"
        );
    }
}

#[test]
fn last_value_wins_when_a_field_occurs_twice() {
    let text = r#"{"id":1,"timestamp":"2025-10-03T12:00:00","source":"user","action":"null","args":{},"args":{"a":1}}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert_eq!(
        serde_json::to_value(&event).unwrap()["args"],
        json!({"a": 1})
    );
}

#[test]
fn older_dialects_round_trip() {
    for (name, event) in [
        (
            "a field that is gone",
            run(json!({"command": "ls", "keep_prompt": true})),
        ),
        (
            "a field that was not there yet",
            run(json!({"command": "ls"})),
        ),
        (
            "null for V0's −1",
            with(
                run(json!({"path": "a", "start": null, "end": null})),
                "action",
                json!("read"),
            ),
        ),
        (
            "tasks as a model writes them",
            with(
                run(
                    json!({"command": "plan", "task_list": [{"id": 1, "title": "t", "notes": ["a"], "extra": true}]}),
                ),
                "action",
                json!("task_tracking"),
            ),
        ),
        (
            "null for a default",
            run(json!({"command": "ls", "security_risk": null, "thought": null})),
        ),
        (
            "a whole number of seconds",
            with(run(json!({"command": "ls"})), "timeout", json!(120)),
        ),
        (
            "an envelope's null",
            with(run(json!({"command": "ls"})), "cause", json!(null)),
        ),
        (
            "an unknown field of the envelope",
            with(run(json!({"command": "ls"})), "trace", json!([1])),
        ),
        (
            "metrics without the newer lists",
            with(
                run(json!({"command": "ls"})),
                "llm_metrics",
                json!({"accumulated_cost": 0, "costs": [{"model": "m", "cost": 1}, {"model": "m", "cost": 0.5, "timestamp": 1.0}]}),
            ),
        ),
    ] {
        assert_round_trip(&event, name);
    }
}

#[test]
fn null_of_an_older_dialect_is_read_as_the_default() {
    let event = Event::from_value(&run(json!({"command": "ls", "security_risk": null}))).unwrap();
    let EventBody::Action(Action::Run(action)) = event.body else {
        panic!("a run")
    };
    assert_eq!(
        action,
        crate::action::RunAction {
            command: "ls".into(),
            ..Default::default()
        }
    );
}

fn action(value: &Value) -> Action {
    match Event::from_value(value).unwrap().body {
        EventBody::Action(action) => action,
        body => panic!("an action: {body:?}"),
    }
}

fn run_metadata(extras: Value) -> (i64, i64) {
    let event = json!({
        "id": 3, "timestamp": "2024-10-03T12:34:56.789012", "source": "agent", "cause": 2, "observation": "run",
        "content": "out", "extras": extras,
    });
    assert_round_trip(&event, &event["extras"].to_string());
    let EventBody::Observation(observation) = Event::from_value(&event).unwrap().body else {
        panic!("an observation")
    };
    let ObservationKind::Run(run) = observation.kind else {
        panic!("a run")
    };
    (run.metadata.exit_code, run.metadata.pid)
}

#[test]
fn exit_codes_of_older_versions_are_read() {
    let extras = |extras| with(extras, "command", json!("ls"));
    for (given, expected) in [
        (
            json!({"command_id": 7, "exit_code": 2, "hidden": false}),
            (2, 7),
        ),
        (
            json!({"exit_code": 2, "metadata": {"exit_code": -1, "pid": 5, "suffix": "x"}}),
            (2, 5),
        ),
        (json!({"exit_code": 2, "metadata": null}), (2, -1)),
        (
            json!({"command_id": 9, "metadata": {"exit_code": 1}}),
            (1, 9),
        ),
        (
            json!({"metadata": {"exit_code": 3_221_225_477_u32}}),
            (3_221_225_477, -1),
        ),
        (
            json!({"metadata": {"exit_code": u64::MAX, "pid": -1e300}}),
            (i64::MAX, i64::MIN),
        ),
        (json!({"metadata": {"exit_code": null}}), (-1, -1)),
    ] {
        assert_eq!(run_metadata(extras(given.clone())), expected, "{given}");
    }
}

#[test]
fn renamed_arguments_of_older_versions_are_read() {
    let rejected = run(json!({"command": "ls", "is_confirmed": "rejected"}));
    assert_round_trip(&rejected, "is_confirmed");
    let Action::Run(read) = action(&rejected) else {
        panic!("a run")
    };
    assert_eq!(
        read.confirmation_state,
        crate::action::ConfirmationState::Rejected
    );
    let Action::Run(read) = action(&run(json!({"command": "ls", "is_confirmed": null}))) else {
        panic!("a run")
    };
    assert_eq!(
        read.confirmation_state,
        crate::action::ConfirmationState::Confirmed
    );

    let message = with(
        run(json!({"content": "look", "images_urls": ["data:,"]})),
        "action",
        json!("message"),
    );
    assert_round_trip(&message, "images_urls");
    let Action::Message(read) = action(&message) else {
        panic!("a message")
    };
    assert_eq!(read.image_urls, Some(vec!["data:,".to_owned()]));
}

#[test]
fn edits_within_python_code_are_read() {
    let edit = |code: &str| {
        let args = json!({"path": "/w/a.py", "content": "", "start": 1, "end": -1, "impl_source": "oh_aci",
            "translated_ipython_code": code});
        let edit = with(run(args), "action", json!("edit"));
        assert_round_trip(&edit, code);
        let Action::Edit(read) = action(&edit) else {
            panic!("an edit")
        };
        read
    };
    let created = edit(
        r#"print(file_editor(**{'command': 'create', 'path': '/w/b.py', 'file_text': 'print(\'a\n\')\n', 'view_range': None}))"#,
    );
    assert_eq!(
        (created.command.as_str(), created.path.as_str()),
        ("create", "/w/b.py")
    );
    assert_eq!(created.file_text.as_deref(), Some("print('a\n')\n"));
    let inserted =
        edit(r#"print(file_editor(**{'command': 'insert', 'insert_line': 3, 'new_str': "it's"}))"#);
    assert_eq!(
        (
            inserted.path.as_str(),
            inserted.insert_line,
            inserted.new_str.as_deref()
        ),
        ("/w/a.py", Some(3), Some("it's"))
    );
    // Anything else is ignored, as in V0.
    for code in ["", "print(1)", "print(file_editor(**{'command': f()}))"] {
        assert_eq!(
            edit(code).command,
            crate::action::EditCommand::Unspecified,
            "{code}"
        );
    }
    let viewed = with(
        run(
            json!({"path": "/w", "translated_ipython_code": "print(file_editor(**{'command': 'view', 'path': '/w', 'view_range': [2, -1]}))"}),
        ),
        "action",
        json!("read"),
    );
    assert_round_trip(&viewed, "a view");
    let Action::Read(viewed) = action(&viewed) else {
        panic!("a read")
    };
    assert_eq!(viewed.view_range, Some(vec![2, -1]));
}

#[test]
fn unknown_risks_and_agent_states_are_read() {
    for (risk, expected) in [
        (json!(9), SecurityRisk::Unknown),
        (json!("HIGH"), SecurityRisk::Unknown),
        (json!(0.5), SecurityRisk::Unknown),
        (json!([]), SecurityRisk::Unknown),
        (json!(2.0), SecurityRisk::High),
        (json!(0), SecurityRisk::Low),
    ] {
        let event = run(json!({"command": "ls", "security_risk": risk}));
        assert_round_trip(&event, "a risk");
        assert_eq!(action(&event).security_risk(), expected, "{risk}");
    }
    for (name, expected) in [
        ("meditating", AgentState::Unknown),
        ("unknown", AgentState::Unknown),
        ("paused", AgentState::Paused),
    ] {
        let change = with(
            run(json!({"agent_state": name})),
            "action",
            json!("change_agent_state"),
        );
        assert_round_trip(&change, name);
        let Action::ChangeAgentState(change) = action(&change) else {
            panic!("a change")
        };
        assert_eq!(change.agent_state, expected);
        let mut changed = run(json!({}));
        changed["action"] = json!(null);
        changed["observation"] = json!("agent_state_changed");
        changed["content"] = json!("");
        changed["extras"] = json!({"agent_state": name, "reason": ""});
        assert_round_trip(&changed, name);
    }
    // Requests and our own records accept only known states.
    serde_json::from_value::<AgentState>(json!("unknown")).unwrap_err();
}

#[test]
fn references_to_events_round_trip() {
    let event = with(
        with(run(json!({"command": "ls"})), "delegation", json!(3)),
        "events_seen",
        json!(7),
    );
    assert_round_trip(&event, "references");
    let event = Event::from_value(&event).unwrap();
    assert_eq!(
        (event.delegation, event.events_seen),
        (Some(crate::EventId(3)), Some(crate::EventId(7)))
    );
}

#[test]
fn events_of_one_response_share_its_text() {
    let call = |id: u64, response: Value| {
        let mut event = Event::from_value(&run(json!({"command": "ls"}))).unwrap();
        event = Event::new(
            crate::EventId(id),
            event.timestamp,
            event.source,
            event.body,
        );
        event.tool_call_metadata = Some(crate::tool_call::ToolCallMetadata {
            function_name: "execute_bash".into(),
            tool_call_id: "c".into(),
            model_response: (&response).into(),
            total_calls_in_response: 1,
        });
        serde_json::to_string(&event).unwrap()
    };
    let response = |event: &Event| event.tool_call_metadata.clone().unwrap().model_response;
    let one = json!({"id": "r", "choices": [{"message": {"content": "a"}}], "created": 7});
    let first = Event::read_after(None, call(1, one.clone()).as_bytes()).unwrap();
    for (other, is_shared) in [
        (one.clone(), true),
        (json!({"id": "r"}), false),
        (with(one, "created", json!(8)), false),
    ] {
        let text = call(2, other);
        let read = Event::read_after(Some(&first), text.as_bytes()).unwrap();
        assert_eq!(read, serde_json::from_str(&text).unwrap());
        let (first, read_again) = (response(&first), response(&read));
        assert_eq!(
            std::ptr::eq(first.as_str(), read_again.as_str()),
            is_shared,
            "{text}"
        );
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            serde_json::from_str::<Value>(&text).unwrap()
        );
    }
    Event::read_after(Some(&first), b"{").unwrap_err();
}

#[test]
fn changed_event_is_written_with_its_change() {
    let mut event = Event::from_value(&run(json!({"command": "ls", "keep_prompt": true}))).unwrap();
    let EventBody::Action(Action::Run(action)) = &mut event.body else {
        panic!("a run")
    };
    action.command = "pwd".into();
    let written = serde_json::to_value(&event).unwrap();
    assert_eq!(
        written["args"],
        json!({"command": "pwd", "keep_prompt": true})
    );
}

#[test]
fn errors_name_the_field_and_the_problem() {
    let cases = [
        (
            with(run(json!({"command": "ls"})), "action", json!("fly")),
            "unknown action `fly`",
        ),
        (
            json!({"id": 1, "timestamp": "2025-10-03T12:34:56", "source": "agent", "observation": "smell", "content": ""}),
            "unknown observation `smell`",
        ),
        (run(json!({})), "field `args`: missing field `command`"),
        (
            run(json!({"command": 7})),
            "field `args.command`: invalid type: integer `7`, expected a string",
        ),
        (
            with(run(json!({"command": "ls"})), "id", json!("one")),
            "field `id`: invalid type: string \"one\", expected u64",
        ),
        (
            with(
                run(json!({"command": "ls"})),
                "timestamp",
                json!("yesterday"),
            ),
            "field `timestamp`: a timestamp looks like 2025-10-03T12:34:56.789012, not \"yesterday\"",
        ),
        (
            with(run(json!({"command": "ls"})), "source", json!("moon")),
            "field `source`: unknown variant `moon`, expected one of `agent`, `user`, `environment`",
        ),
        (
            json!({"id": 1}),
            "an event has one of the fields `action`, `observation` and `record`",
        ),
        (json!([1]), "an event is an object"),
    ];
    for (value, expected) in cases {
        assert_eq!(Event::from_value(&value).unwrap_err().to_string(), expected);
    }
}

#[test]
fn error_names_a_missing_field_of_the_envelope() {
    let mut value = run(json!({"command": "ls"}));
    value.as_object_mut().unwrap().remove("timestamp");
    let error = Event::from_value(&value).unwrap_err();
    assert!(
        matches!(&error, EventError::Malformed { problem, .. } if problem.contains("timestamp")),
        "{error}"
    );
}

#[test]
fn every_agent_state_has_the_name_that_serde_gives_it() {
    for name in [
        "loading",
        "init",
        "running",
        "awaiting_user_input",
        "paused",
        "stopped",
        "finished",
        "rejected",
        "error",
        "awaiting_user_confirmation",
        "user_confirmed",
        "user_rejected",
        "rate_limited",
    ] {
        let state: AgentState = serde_json::from_value(json!(name)).unwrap();
        assert_eq!(state.as_str(), name);
    }
}

#[test]
fn observation_round_trips_without_an_envelope() {
    let text = r#"{"observation":"run","content":"hi\n","extras":{"command":"echo hi","metadata":{"exit_code":0}}}"#;
    let observation: crate::Observation = serde_json::from_str(text).unwrap();
    let ObservationKind::Run(run) = &observation.kind else {
        panic!("a run")
    };
    assert_eq!(
        (run.metadata.exit_code, observation.success()),
        (0, Some(true))
    );
    let again: crate::Observation =
        serde_json::from_value(serde_json::to_value(&observation).unwrap()).unwrap();
    assert_eq!(again, observation);
}

fn run(args: Value) -> Value {
    json!({"id": 3, "timestamp": "2025-10-03T12:34:56.789012", "source": "agent", "action": "run", "args": args})
}

fn with(mut event: Value, field: &str, value: Value) -> Value {
    event[field] = value;
    event
}
