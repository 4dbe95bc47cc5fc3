//! Features that models are known to lack, by the models' names.
//!
//! The table need not be complete: a request that is refused for a parameter is repeated without
//! it. The table saves the refused request, and covers what providers do not report: models that
//! ignore images, or that were not trained to make tool calls. The configuration overrides it:
//! `native_tool_calling`, `disable_vision`, `completion_kwargs`.

/// Date of the table. Sources: the providers' model pages and migration guides (OpenAI, Anthropic,
/// Google, Mistral, DeepSeek, Moonshot, Z.ai, MiniMax, xAI), the model lists of Ollama and LiteLLM,
/// and OpenHands V0's `model_features`.
pub(crate) const AS_OF: &str = "2026-11-26";

/// A feature that a model lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFeature {
    /// Makes no tool calls.
    Calls,
    /// Sees no images.
    Vision,
    /// Refuses `temperature`, `top_p` and `top_k`, or any but their defaults.
    Sampling,
    /// Refuses `temperature` and `top_p` together.
    TwoSamplers,
    /// Refuses stop sequences.
    Stop,
}

use MissingFeature::{Calls, Sampling, Stop, TwoSamplers, Vision};

/// Prefixes of normalized names (see [`normalize`]). The longest matching prefix decides, so that a
/// model can differ from its family.
const TABLE: &[(&str, &[MissingFeature])] = &[
    // OpenAI. GPT-5.1 and later take a temperature when they do not reason, which is not visible
    // here.
    ("o1", &[Sampling, Stop]),
    ("o1-mini", &[Calls, Vision, Sampling, Stop]),
    ("o1-preview", &[Calls, Vision, Sampling, Stop]),
    ("o3", &[Sampling, Stop]),
    ("o3-mini", &[Vision, Sampling, Stop]),
    ("o4", &[Sampling, Stop]),
    ("codex-mini", &[Sampling, Stop]),
    ("computer-use-preview", &[Sampling, Stop]),
    ("gpt-5", &[Sampling, Stop]),
    ("gpt-5-chat", &[Calls]),
    ("gpt-6", &[Sampling, Stop]),
    ("gpt-4-0125", &[Vision]),
    ("gpt-4-0314", &[Vision]),
    ("gpt-4-0613", &[Vision]),
    ("gpt-4-1106", &[Vision]),
    ("gpt-4-32k", &[Vision]),
    ("gpt-4-turbo-preview", &[Vision]),
    ("gpt-3-5", &[Vision]),
    ("gpt-35", &[Vision]),
    ("gpt-oss", &[Vision]),
    // Anthropic
    ("claude-instant", &[Calls, Vision]),
    ("claude-2", &[Calls, Vision]),
    ("claude-opus-4-1", &[TwoSamplers]),
    ("claude-opus-4-5", &[TwoSamplers]),
    ("claude-opus-4-6", &[TwoSamplers]),
    ("claude-sonnet-4-5", &[TwoSamplers]),
    ("claude-sonnet-4-6", &[TwoSamplers]),
    ("claude-haiku-4-5", &[TwoSamplers]),
    ("claude-4-5", &[TwoSamplers]), // OpenRouter and others put the version first
    ("claude-4-6", &[TwoSamplers]),
    ("claude-opus-4-7", &[Sampling]),
    ("claude-opus-4-8", &[Sampling]),
    ("claude-4-7", &[Sampling]),
    ("claude-4-8", &[Sampling]),
    ("claude-opus-5", &[Sampling]),
    ("claude-sonnet-5", &[Sampling]),
    ("claude-haiku-5", &[Sampling]),
    ("claude-fable", &[Sampling]),
    ("claude-mythos", &[Sampling]),
    // Google
    ("gemini-3-6", &[Sampling]),
    ("gemini-3-7", &[Sampling]),
    ("gemini-3-8", &[Sampling]),
    ("codegemma", &[Calls, Vision]),
    ("gemma-2b", &[Calls, Vision]),
    ("gemma-7b", &[Calls, Vision]),
    ("gemma-2", &[Calls, Vision]),
    ("gemma2", &[Calls, Vision]),
    ("gemma-3", &[Calls]),
    ("gemma3", &[Calls]),
    // Meta
    ("codellama", &[Calls, Vision]),
    ("code-llama", &[Calls, Vision]),
    ("llama-2", &[Calls, Vision]),
    ("llama2", &[Calls, Vision]),
    ("llama-3", &[Calls, Vision]),
    ("llama3", &[Calls, Vision]),
    ("llama-3-1", &[Vision]),
    ("llama3-1", &[Vision]),
    ("llama-3-2", &[Vision]),
    ("llama3-2", &[Vision]),
    ("llama-3-2-11b", &[]),
    ("llama3-2-11b", &[]),
    ("llama-3-2-90b", &[]),
    ("llama3-2-90b", &[]),
    ("llama3-2-vision", &[Calls]), // Ollama offers it no tools
    ("llama-3-3", &[Vision]),
    ("llama3-3", &[Vision]),
    // DeepSeek
    ("deepseek-chat", &[Vision]),
    ("deepseek-reasoner", &[Vision]),
    ("deepseek-v2", &[Vision]),
    ("deepseek-v3", &[Vision]),
    ("deepseek-r1", &[Calls, Vision]),
    ("deepseek-r1-0528", &[Calls, Vision, Stop]),
    ("deepseek-v4", &[Vision]),
    ("deepseek-v4-flash", &[]),
    ("deepseek-coder", &[Calls, Vision]),
    // Mistral
    ("codestral", &[Vision]),
    ("devstral-small-2505", &[Vision]),
    ("devstral-small-2507", &[Vision]),
    ("devstral-medium", &[Vision]),
    ("mistral-7b", &[Vision]),
    ("mistral-nemo", &[Vision]),
    ("mixtral", &[Vision]),
    // Alibaba
    ("qwen2-5-coder", &[Vision]),
    ("qwen-2-5-coder", &[Vision]),
    ("qwen3-coder", &[Vision]),
    ("qwen3-next", &[Vision]),
    ("qwq", &[Vision]),
    // Moonshot. Of Kimi K2.5 and later the temperature is fixed.
    ("kimi-k2", &[Vision]),
    ("kimi-k2-5", &[Sampling]),
    ("kimi-k2-6", &[Sampling]),
    ("kimi-k3", &[Sampling]),
    ("moonshot-v1", &[Vision]),
    ("moonshot-v1-8k-vision", &[]),
    ("moonshot-v1-32k-vision", &[]),
    ("moonshot-v1-128k-vision", &[]),
    // Z.ai, MiniMax, xAI, Cohere, Amazon
    ("glm-4-5", &[Vision]),
    ("glm-4-6", &[Vision]),
    ("glm-4-7", &[Vision]),
    ("glm-5", &[Vision]),
    ("glm-5-3-flash", &[]),
    ("minimax-m1", &[Vision]),
    ("minimax-m2", &[Vision]),
    ("grok-3", &[Vision]),
    ("grok-4-0709", &[Stop]),
    ("grok-code-fast-1", &[Vision, Stop]),
    ("command-r", &[Vision]),
    ("nova-micro", &[Vision]),
    ("sonar", &[Calls]),
    // Small ones
    ("phi-3", &[Calls, Vision]),
    ("phi3", &[Calls, Vision]),
    ("phi-3-vision", &[Calls]),
    ("phi-3-5-vision", &[Calls]),
    ("phi4", &[Calls, Vision]),
    ("phi4-mini", &[Vision]),
    ("smollm", &[Calls, Vision]),
    ("smollm2", &[Calls, Vision]),
    ("smollm3", &[Vision]),
    ("starcoder", &[Calls, Vision]),
    ("starcoder2", &[Calls, Vision]),
    ("tinyllama", &[Calls, Vision]),
    ("vicuna", &[Calls]),
    ("wizardcoder", &[Calls, Vision]),
    ("llava", &[Calls]),
];

/// Parts of the names of models that OpenAI serves with the Responses API only.
const RESPONSES_PARTS: [&str; 3] = ["codex", "pro", "deep-research"];

/// The first version of GPT that calls no tools in chat completions while it reasons.
const RESPONSES_VERSION: (u32, u32) = (5, 4);

/// Whether OpenAI serves a model, or its tool calls, with the Responses API only.
pub(crate) fn requires_responses(model: &str) -> bool {
    let name = normalize(model);
    RESPONSES_PARTS
        .iter()
        .any(|part| has_part_with_prefix(&name, part))
        || gpt_version(model).is_some_and(|version| version >= RESPONSES_VERSION)
}

/// Returns the version of a GPT model: (5, 4) for `gpt-5.4-mini`, (6, 0) for `gpt-6-luna`. `None`
/// for Azure's `gpt-35`, which is GPT-3.5.
fn gpt_version(model: &str) -> Option<(u32, u32)> {
    let name = model.to_lowercase();
    let (_, version) = name.rsplit_once("gpt-")?;
    let end = version.find(|character: char| !character.is_ascii_digit() && character != '.');
    let mut numbers = version[..end.unwrap_or(version.len())].split('.');
    let major = numbers.next()?.parse().ok().filter(|major| *major != 35)?;
    Some((
        major,
        numbers
            .next()
            .and_then(|minor| minor.parse().ok())
            .unwrap_or_default(),
    ))
}

/// Whether a model, named as in the configuration, is known to lack a feature.
pub(crate) fn lacks(model: &str, feature: MissingFeature) -> bool {
    missing_features(model).contains(&feature)
}

/// Returns the features that a model, named as in the configuration, is known to lack.
pub(crate) fn missing_features(model: &str) -> &'static [MissingFeature] {
    let name = normalize(model);
    let matching = TABLE
        .iter()
        .filter(|(prefix, _)| has_part_with_prefix(&name, prefix));
    matching
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or(&[], |(_, lacks)| *lacks)
}

/// Whether a model, named as in the configuration, belongs to the family with this prefix.
pub(crate) fn is_of_family(model: &str, prefix: &str) -> bool {
    has_part_with_prefix(&normalize(model), prefix)
}

/// Returns the last segment of a name in lower case, without a tag such as Ollama's, and with
/// dashes as separators: `openrouter/anthropic/claude-3.5-haiku:beta` is `claude-3-5-haiku`.
fn normalize(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.split(':').next().unwrap_or(name).to_lowercase();
    name.chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect()
}

/// Whether a name, or its part after a dash (`us-anthropic-claude-…`), starts with the words of a
/// prefix.
fn has_part_with_prefix(name: &str, prefix: &str) -> bool {
    name.match_indices(prefix).any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + prefix.len()..]);
        (before.is_empty() || before.ends_with('-')) && (after.is_empty() || after.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_found_by_configured_names() {
        for (model, lacks) in [
            ("gpt-4o", &[][..]),
            ("gpt-4.1", &[]),
            ("gpt-4-0613", &[Vision]),
            ("openai/o3", &[Sampling, Stop]),
            ("o3-mini-high", &[Vision, Sampling, Stop]),
            ("azure/gpt-5.2-codex", &[Sampling, Stop]),
            ("gpt-5-chat-latest", &[Calls]),
            ("anthropic/claude-opus-4-7", &[Sampling]),
            ("claude-opus-4-20250514", &[]),
            (
                "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                &[TwoSamplers],
            ),
            ("openrouter/anthropic/claude-opus-4.1", &[TwoSamplers]),
            ("openrouter/anthropic/claude-4.7-opus", &[Sampling]),
            ("ollama/CodeLlama:7b", &[Calls, Vision]),
            ("ollama/llama3.1:8b", &[Vision]),
            ("meta-llama/Llama-3.2-11B-Vision-Instruct", &[]),
            ("meta-llama/Meta-Llama-3-8B-Instruct", &[Calls, Vision]),
            ("SmolLM2-135M-Instruct", &[Calls, Vision]),
            ("deepseek/deepseek-chat", &[Vision]),
            ("moonshotai/Kimi-K2-Instruct", &[Vision]),
            ("moonshotai/kimi-k2.5", &[Sampling]),
            ("z-ai/glm-4.5v", &[]),
            ("my-own", &[]),
            ("", &[]),
        ] {
            assert_eq!(missing_features(model), lacks, "{model}");
        }
    }

    #[test]
    fn models_that_require_the_responses_api_are_known() {
        for (model, is_required) in [
            ("gpt-5.4", true),
            ("openai/GPT-5.5-2026-04-23", true),
            ("gpt-5.10", true),
            ("gpt-6-astra", true),
            ("gpt-6.1-terra", true),
            ("gpt-5-codex", true),
            ("codex-mini-latest", true),
            ("o3-pro-2025-06-10", true),
            ("o4-mini-deep-research", true),
            ("gpt-5", false),
            ("gpt-5-2025-08-07", false),
            ("gpt-5.2-mini", false),
            ("gpt-4o-prod", false),
            ("gpt-4.1", false),
            ("gpt-35-turbo", false),
            ("gpt-oss-120b", false),
            ("o3", false),
            ("", false),
        ] {
            assert_eq!(requires_responses(model), is_required, "{model}");
        }
    }

    #[test]
    fn table_has_only_normalized_and_unique_prefixes() {
        for (at, (prefix, _)) in TABLE.iter().enumerate() {
            assert_eq!(normalize(prefix), *prefix);
            assert!(
                TABLE[..at].iter().all(|(other, _)| other != prefix),
                "{prefix}"
            );
        }
    }
}
