use engine::llm::LlmErrorKind::{self, *};
use reqwest::header::HeaderName;

use super::*;

fn classify_body(status: u16, body: &str) -> ClassifiedError {
    classify(
        status,
        &HeaderMap::new(),
        ErrorBody::parse(body),
        Timestamp::UNIX_EPOCH,
    )
}

/// Error responses of providers, and of LiteLLM 1.106 in front of them.
const RESPONSES: &[(u16, &str, LlmErrorKind)] = &[
    // OpenAI
    (
        401,
        r#"{"error":{"message":"Incorrect API key provided: sk-x","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
        Authentication,
    ),
    (
        403,
        r#"{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","code":"unsupported_country_region_territory"}}"#,
        Permission,
    ),
    (
        404,
        r#"{"error":{"message":"The model `gpt-9` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}"#,
        UnknownModel,
    ),
    (
        404,
        r#"{"error":{"message":"Invalid URL (POST /chat/completions)","type":"invalid_request_error","code":null}}"#,
        WrongAddress,
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000","type":"tokens","code":"rate_limit_exceeded"}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        OutOfCredit,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid schema for function 'x'","type":"invalid_request_error","param":"tools[0]","code":"invalid_function_parameters"}}"#,
        BadRequest,
    ),
    (
        500,
        r#"{"error":{"message":"The server had an error while processing your request.","type":"server_error"}}"#,
        Unavailable,
    ),
    (
        503,
        r#"{"error":{"message":"That model is currently overloaded with other requests.","type":"server_error"}}"#,
        Unavailable,
    ),
    // Azure
    (
        400,
        r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
        ContentPolicy,
    ),
    (
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        UnknownModel,
    ),
    // Anthropic's errors behind compatible endpoints
    (
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Unavailable,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
        OutOfCredit,
    ),
    (
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
        UnknownModel,
    ),
    (
        413,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        ContextWindowExceeded,
    ),
    // Gemini's compatible endpoint: a list, numbers as codes
    (
        400,
        r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
        Authentication,
    ),
    (
        429,
        r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED"}}]"#,
        RateLimited,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.","type":"invalid_request_error","param":"messages[1].content","code":"string_above_max_length"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"error":{"message":"OpenAIException - string too long. Expected a string with maximum length 1048576","code":"400"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 52 instead.","type":"invalid_request_error","code":"string_above_max_length"}}"#,
        BadRequest,
    ),
    (
        400,
        r#"{"object":"error","message":"'max_tokens' is too large: 4096. This model has 8192 tokens and the request 6000. Please reduce the length of either one.","type":"BadRequestError","code":400}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"message":"Prompt contains 40000 tokens: too many tokens: total tokens cannot exceed 32768"}"#,
        ContextWindowExceeded,
    ),
    // Groq, xAI, DeepSeek
    (
        413,
        r#"{"error":{"message":"Request too large for model on tokens per minute (TPM): Limit 6000","type":"tokens","code":"rate_limit_exceeded"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 140000 tokens."}"#,
        ContextWindowExceeded,
    ),
    (
        402,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
        OutOfCredit,
    ),
    // OpenRouter, also with a successful status
    (
        200,
        r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"overloaded_error"}}}"#,
        Unavailable,
    ),
    (
        200,
        r#"{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day"}}"#,
        RateLimited,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"gpt-9 is not a valid model ID"}}"#,
        UnknownModel,
    ),
    (
        200,
        r#"{"error":{"message":"something broke"}}"#,
        Unavailable,
    ),
    // Ollama, vLLM, llama.cpp
    (
        404,
        r#"{"error":{"message":"model 'llama9' not found","type":"api_error","param":null,"code":null}}"#,
        UnknownModel,
    ),
    (
        404,
        r#"{"error":"model 'llama9' not found, try pulling it first"}"#,
        UnknownModel,
    ),
    (
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
        UnknownModel,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error"}}"#,
        ContextWindowExceeded,
    ),
    (
        422,
        r#"{"detail":[{"loc":["body","seed"],"msg":"extra inputs are not permitted"}]}"#,
        BadRequest,
    ),
    (404, r#"{"detail":"Not Found"}"#, WrongAddress),
    // LiteLLM: 529 as 500, quota only as text, unknown models as 400, codes as strings
    (
        500,
        r#"{"error":{"message":"litellm.InternalServerError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}","type":null,"param":null,"code":"500"}}"#,
        Unavailable,
    ),
    (
        429,
        r#"{"error":{"message":"litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota","type":"throttling_error","param":null,"code":"429"}}"#,
        OutOfCredit,
    ),
    (
        429,
        r#"{"error":{"message":"litellm.RateLimitError: geminiException - RESOURCE_EXHAUSTED: You exceeded your current quota","type":"throttling_error","code":"429"}}"#,
        RateLimited,
    ),
    (
        400,
        r#"{"error":{"message":"/chat/completions: Invalid model name passed in model=nope. Call `/v1/models` to view available models","type":"invalid_request_error","param":"model","code":"400"}}"#,
        UnknownModel,
    ),
    (
        400,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: x","type":null,"param":null,"code":"400"}}"#,
        ContextWindowExceeded,
    ),
    (
        500,
        r#"{"error":{"message":"litellm.APIConnectionError: litellm.ContextWindowExceededError: x","code":"500"}}"#,
        ContextWindowExceeded,
    ),
    (
        400,
        r#"{"error":{"message":"Budget has been exceeded! Current cost: 1.2, Max budget: 1.0","type":"budget_exceeded","param":null,"code":"400"}}"#,
        OutOfCredit,
    ),
    (
        400,
        r#"{"error":{"message":"litellm.ContentPolicyViolationError: x","code":"400"}}"#,
        ContentPolicy,
    ),
    (
        408,
        r#"{"error":{"message":"litellm.Timeout: APITimeoutError","code":"408"}}"#,
        Timeout,
    ),
    // Neither JSON nor a phrase
    (
        502,
        "<html><head><title>502 Bad Gateway</title></head></html>",
        Unavailable,
    ),
    (
        403,
        "<html><title>Just a moment...</title> model not found, rate limit</html>",
        Permission,
    ),
    (404, "404 page not found", WrongAddress),
    (301, "", WrongAddress),
    (429, "", RateLimited),
    (418, "[]", BadRequest),
];

#[test]
fn each_error_response_has_its_kind() {
    for (status, body, kind) in RESPONSES {
        assert_eq!(classify_body(*status, body).kind, *kind, "{status} {body}");
    }
}

/// Reported in issues of agents and proxies, as of November 2026.
#[test]
fn texts_of_requests_that_are_too_long_are_known() {
    for text in [
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)", // Moonshot
        "Prompt exceeds max length",                           // Z.ai
        "Prompt too long",                                     // Z.ai
        "invalid params, context window exceeds limit (2013)", // MiniMax
        "InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]", // DashScope
        "Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens", // LM Studio
        "The number of tokens to keep from the initial prompt is greater than the context length.", // LM Studio
        "Context size has been exceeded.", // LM Studio
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", // TGI
        "Requested generation length 1 is not possible! The provided prompt is 4309 tokens long, but the maximum supported sequence length is just 4096!", // SambaNova
        "Unable to submit request because the input token count is 1100000 but the model only supports up to 1048576", // Vertex
        "prompt too long; exceeded max context length by 100 tokens", // Ollama
        "the input length exceeds the context length",                // Ollama
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).", // SGLang
    ] {
        let body = serde_json::json!({ "error": { "message": text } }).to_string();
        assert_eq!(
            classify_body(400, &body).kind,
            ContextWindowExceeded,
            "{text}"
        );
    }
}

#[test]
fn refusals_of_a_history_have_a_reason() {
    let reasoning = Some(HistoryRefusal::Reasoning);
    for (text, refusal) in [
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            reasoning,
        ),
        (
            "messages.3.content.0: The block is bound to a different conversation",
            reasoning,
        ),
        (
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            reasoning,
        ),
        (
            "The reasoning_content in the thinking mode must be passed back to the API.",
            Some(HistoryRefusal::NoReasoning),
        ),
        ("Could not process image", Some(HistoryRefusal::Image)),
        (
            "Failed to download image from https://h/a.png",
            Some(HistoryRefusal::Image),
        ),
        ("Invalid value", None),
    ] {
        let body = serde_json::json!({ "error": { "message": text } }).to_string();
        assert_eq!(classify_body(400, &body).refused_history, refusal, "{text}");
    }
    let by_code =
        r#"{"error":{"message":"could not be verified","code":"invalid_encrypted_content"}}"#;
    assert_eq!(classify_body(400, by_code).refused_history, reasoning);
}

#[test]
fn error_in_an_event_of_a_stream_has_its_kind() {
    for (event, kind) in [
        (
            r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#,
            Some(Unavailable),
        ),
        // OpenAI's Responses API
        (
            r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow"}}}"#,
            Some(RateLimited),
        ),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"}}}"#,
            Some(Unavailable),
        ),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"image_too_large","message":"oops"}}}"#,
            Some(BadRequest),
        ),
        (
            r#"{"type":"error","code":"invalid_prompt","message":"flagged","param":null}"#,
            Some(ContentPolicy),
        ),
        (
            r#"{"type":"error","code":"context_length_exceeded","message":"too long"}"#,
            Some(ContextWindowExceeded),
        ),
        (
            r#"{"type":"error","error":{"code":"insufficient_quota","message":"x"}}"#,
            Some(OutOfCredit),
        ),
        (
            r#"{"type":"response.completed","response":{"error":null}}"#,
            None,
        ),
        (r#"{"error":null}"#, None),
        (r#"["error"]"#, None),
    ] {
        let body = ErrorBody::find(&serde_json::from_str(event).unwrap());
        let found =
            body.map(|body| classify(200, &HeaderMap::new(), body, Timestamp::UNIX_EPOCH).kind);
        assert_eq!(found, kind, "{event}");
    }
}

#[test]
fn message_is_human_readable() {
    for (body, message) in [
        (r#"{"error":{"message":"no","type":"x"}}"#, "no"),
        (r#"{"error":"no"}"#, "no"),
        (r#"{"detail":[1]}"#, "[1]"),
        ("plain", "plain"),
        (
            "<html><title>502 Bad Gateway</title>",
            "an HTML page: 502 Bad Gateway",
        ),
    ] {
        assert_eq!(classify_body(500, body).message, message);
    }
}

#[test]
fn refused_parameter_is_found_in_each_format() {
    for body in [
        r#"{"error":{"message":"Unsupported value","param":"temperature","code":"unsupported_value"}}"#,
        r#"{"error":{"message":"OpenAIException - Unsupported parameter: 'temperature' is not supported with this model.","code":"400"}}"#,
        r#"{"error":{"message":"litellm.UnsupportedParamsError: openai does not support parameters: ['temperature'], for model=x","code":"400"}}"#,
        r#"{"error":{"message":"litellm.UnsupportedParamsError: gpt-5 models (including gpt-5-codex) don't support temperature=0.0. Only temperature=1 is supported.","code":"400"}}"#,
        r#"{"error":{"message":"invalid temperature: only 1 is allowed for this model","type":"invalid_request_error"}}"#,
    ] {
        assert_eq!(
            classify_body(400, body).refused_parameter.as_deref(),
            Some("temperature")
        );
    }
    for (message, name) in [
        (
            "Encrypted content is not supported with this model.",
            "include",
        ),
        ("`temperature` is deprecated for this model.", "temperature"),
        (
            "`temperature` and `top_p` cannot both be specified for this model.",
            "top_p",
        ),
        ("top_k: Extra inputs are not permitted", "top_k"),
        (
            r#"\"thinking.type.enabled\" is not supported for this model. Use adaptive."#,
            "thinking.type.enabled",
        ),
    ] {
        let body = format!(
            r#"{{"type":"error","error":{{"type":"invalid_request_error","message":"{message}"}}}}"#
        );
        assert_eq!(
            classify_body(400, &body).refused_parameter.as_deref(),
            Some(name)
        );
    }
    assert_eq!(
        classify_body(400, r#"{"error":{"message":"no","param":"messages"}}"#).refused_parameter,
        None
    );
}

#[test]
fn delay_is_parsed_from_each_format_of_the_header() {
    let now: Timestamp = "2025-10-03T12:00:00Z".parse().unwrap();
    for (header, value, milliseconds) in [
        ("retry-after", "7", Some(7_000)),
        ("retry-after", "0.25", Some(250)),
        ("retry-after-ms", "1500", Some(1_500)),
        ("llm_provider-retry-after", "20", Some(20_000)),
        ("llm_provider-retry-after-ms", "20", Some(20)),
        ("retry-after", "Fri, 03 Oct 2025 12:00:30 GMT", Some(30_000)),
        ("retry-after", "Fri, 03 Oct 2025 11:00:00 GMT", Some(0)),
        ("retry-after", "soon", None),
        ("retry-after", "-1", None),
        ("retry-after", "inf", None),
    ] {
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static(header), value.parse().unwrap())]);
        let delay = classify(429, &headers, ErrorBody::parse(""), now).retry_after;
        assert_eq!(
            delay,
            milliseconds.map(Duration::from_millis),
            "{header}: {value}"
        );
    }
}

#[test]
fn delay_is_parsed_from_the_text_when_no_header_has_it() {
    for (text, milliseconds) in [
        (
            "Rate limit reached for gpt-5.5. Please try again in 1.898s. Visit https://x",
            Some(1_898),
        ),
        ("Please try again in 28ms.", Some(28)),
        ("Please try again in 6m0s.", Some(360_000)),
        ("Please try again in a while.", None),
        ("Please try again in ", None),
    ] {
        let delay =
            classify_body(429, &format!(r#"{{"error":{{"message":"{text}"}}}}"#)).retry_after;
        assert_eq!(delay, milliseconds.map(Duration::from_millis), "{text}");
    }
}

#[test]
fn responses_api_is_required_when_the_refusal_names_it() {
    let tools = "Function tools with reasoning_effort are not supported for gpt-5.5 in /v1/chat/completions. To use \
                 function tools, use /v1/responses or set reasoning_effort to 'none'.";
    let codex = "This model is only supported in v1/responses and not in v1/chat/completions.";
    for (status, message, expected) in [
        (400, tools, true),
        (404, codex, true),
        (429, codex, false),
        (400, "Unknown parameter: 'x'.", false),
    ] {
        let body = format!(
            r#"{{"error":{{"message":"{message}","param":"reasoning_effort","code":null}}}}"#
        );
        let classified = classify_body(status, &body);
        assert_eq!(
            classified.requires_responses, expected,
            "{status} {message}"
        );
    }
}
