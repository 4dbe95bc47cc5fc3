use super::*;

fn script(text: &str) -> ScriptedLlm {
    ScriptedLlm::from_json(text).unwrap()
}

async fn next(llm: &ScriptedLlm) -> Result<Completion, LlmErrorKind> {
    let request = LlmRequest {
        messages: vec![ChatMessage::System("12345".into())],
        tools: vec![],
    };
    llm.complete(&request, &|_| ())
        .await
        .map_err(|error| error.kind)
}

fn parse_error(text: &str) -> String {
    let error = ScriptedLlm::from_json(text).unwrap_err();
    std::error::Error::source(&error).unwrap().to_string()
}

#[tokio::test]
async fn entries_of_the_example_are_returned_in_order() {
    let llm = script(SCRIPT_EXAMPLE);
    assert_eq!(llm.model(), "scripted-demo");

    let first = next(&llm).await.unwrap();
    assert_eq!(
        (
            first.response.id.as_str(),
            first.response.message.text.as_str()
        ),
        ("scripted-1", "I look around first.")
    );
    let call = &first.response.message.tool_calls[0];
    assert_eq!(
        (call.id.as_str(), call.arguments.as_str()),
        ("call-1-1", r#"{"command":"ls"}"#)
    );
    assert_eq!(
        (first.usage.prompt_tokens, first.usage.completion_tokens),
        (1200, 30)
    );

    assert_eq!(next(&llm).await, Err(LlmErrorKind::RateLimited));
    let third = next(&llm).await.unwrap().response;
    assert_eq!(third.message.tool_calls[0].arguments, r#"{"command": "#);
    assert_eq!(next(&llm).await.unwrap().response.message.text, "Done.");
    assert_eq!(next(&llm).await, Err(LlmErrorKind::ScriptEnded));
    assert_eq!(next(&llm).await, Err(LlmErrorKind::ScriptEnded));
}

#[tokio::test]
async fn response_is_stored_in_v0s_format() {
    let completion = next(&script(r#"{ "responses": [{ "text": "Hello." }] }"#))
        .await
        .unwrap();
    assert_eq!(
        completion.response.to_stored(),
        json!({
            "id": "scripted-1", "created": 0, "model": "scripted", "object": "chat.completion",
            "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": { "content": "Hello.", "role": "assistant", "tool_calls": null, "function_call": null },
            }],
            "usage": { "prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4 },
        })
    );
    assert_eq!(
        (completion.cost, completion.usage.per_turn_token),
        (Some(0.0), 4)
    );
}

#[tokio::test]
async fn resumed_conversation_continues_with_the_next_response() {
    for (responses, expected) in [
        (0, Ok("scripted-1".to_owned())),
        (1, Err(LlmErrorKind::RateLimited)),
        (2, Ok("scripted-4".to_owned())),
        (3, Err(LlmErrorKind::ScriptEnded)),
        (9, Err(LlmErrorKind::ScriptEnded)),
    ] {
        let llm = script(SCRIPT_EXAMPLE).resuming_after(responses);
        let id = next(&llm).await.map(|completion| completion.response.id);
        assert_eq!(id, expected, "after {responses}");
    }
}

#[test]
fn error_of_a_script_has_its_line_and_column() {
    for (text, expected) in [
        (
            "{\"responses\": [\n{ \"txt\": 1 }]}",
            "unknown field `txt`, expected one of `text`, `tool_calls`, `usage`, `error` at line 2 column 7",
        ),
        (
            "{\"responses\": [\n{}]}",
            "a response requires `text`, `tool_calls` or `error` at line 2 column 3",
        ),
        (
            "{\"responses\": [\n{ \"error\": \"timeout\", \"text\": \"\" }]}",
            "a response with `error` cannot have other fields at line 2 column 35",
        ),
        (
            "{\"responses\": [{ \"tool_calls\": [{ \"name\": \"x\", \"arguments\": 7 }] }]}",
            "`arguments` must be an object or a text at line 1 column 63",
        ),
        (
            "{ \"models\": \"x\" }",
            "unknown field `models`, expected `model` or `responses` at line 1 column 10",
        ),
    ] {
        assert_eq!(parse_error(text), expected);
    }
    assert!(
        parse_error(r#"{ "responses": [{ "error": "slow" }] }"#)
            .starts_with("unknown variant `slow`")
    );
}
