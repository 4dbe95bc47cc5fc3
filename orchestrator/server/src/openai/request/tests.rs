use serde_json::json;

use super::*;

fn parse_request(fields: Value) -> ChatRequest {
    let mut request =
        json!({"model": "glovebox", "messages": [{"role": "user", "content": "Hello."}]});
    request
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    serde_json::from_value(request).unwrap()
}

fn rejected_field(error: ApiError) -> String {
    let ApiError::Invalid { field, .. } = error else {
        panic!("{error}")
    };
    field
}

#[test]
fn model_names_an_agent() {
    let known = ["CodeActAgent".to_owned()];
    let agent = |model: &str| {
        let request = parse_request(json!({"model": model}));
        request
            .agent(&known)
            .map(|agent| agent.map(str::to_owned))
            .ok()
    };
    assert_eq!(agent("glovebox"), Some(None));
    assert_eq!(
        agent("glovebox/CodeActAgent"),
        Some(Some("CodeActAgent".to_owned()))
    );
    for model in [
        "gpt-5",
        "",
        "glovebox/",
        "glovebox/codeactagent",
        "gloveboxCodeActAgent",
    ] {
        assert_eq!(agent(model), None, "{model}");
    }
}

#[test]
fn messages_before_the_last_become_instructions() {
    let request = parse_request(json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"},
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"role": "developer", "content": "In English."},
    ]}));
    let Prompt {
        message,
        instructions,
    } = request.to_prompt().unwrap();
    assert_eq!(message.content, "And\nthis?");
    assert_eq!(message.image_urls.unwrap(), ["data:image/png;base64,AA=="]);
    assert_eq!(
        instructions.unwrap(),
        "Be brief.\n\nIn English.\n\nThe conversation before the user's message:\n\n\
         User: Look:\n[image]\n\nAssistant: I see."
    );
    assert_eq!(
        parse_request(json!({})).to_prompt().unwrap().instructions,
        None
    );
}

#[test]
fn messages_without_one_of_the_user_are_rejected() {
    for (messages, field) in [
        (json!([]), "messages"),
        (json!([{"role": "system", "content": "Hello."}]), "messages"),
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
            "messages",
        ),
        (
            json!([{"role": "user", "content": " "}]),
            "messages[0].content",
        ),
        (json!([{"role": "user"}]), "messages[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
            "messages[0].content[0]",
        ),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
            "messages[0].content[0]",
        ),
    ] {
        let error = parse_request(json!({"messages": messages}))
            .to_prompt()
            .unwrap_err();
        assert_eq!(rejected_field(error), field, "{messages}");
    }
}

#[test]
fn unsupported_parameters_are_rejected_and_others_ignored() {
    for (field, value) in [
        ("n", json!(2)),
        ("tools", json!([{}])),
        ("functions", json!([{}])),
        ("audio", json!({"voice": "alloy"})),
        ("modalities", json!(["text", "audio"])),
        ("response_format", json!({"type": "json_object"})),
    ] {
        assert_eq!(
            rejected_field(parse_request(json!({field: value})).check().unwrap_err()),
            field
        );
    }
    let ignored =
        json!({"temperature": 0.5, "n": 1, "tools": [], "modalities": ["text"], "seed": null});
    parse_request(ignored).check().unwrap();
}
