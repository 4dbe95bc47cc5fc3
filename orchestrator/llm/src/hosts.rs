//! The hosts that serve OpenAI's models themselves, unlike compatible servers.

/// Azure's domains, the sovereign clouds included. A resource has a sub-domain of its own.
const AZURE_DOMAINS: [&str; 5] = [
    "openai.azure.com",
    "services.ai.azure.com",
    "cognitiveservices.azure.com",
    "openai.azure.us",
    "openai.azure.cn",
];

/// Whether the host is OpenAI's. Its regions have sub-domains, such as `eu.api.openai.com`.
pub(crate) fn is_openai(host: &str) -> bool {
    is_within(host, "api.openai.com")
}

/// Whether the host is Azure's.
pub(crate) fn is_azure(host: &str) -> bool {
    AZURE_DOMAINS.iter().any(|domain| is_within(host, domain))
}

fn is_within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_domains_belong_to_their_domain() {
        assert!(is_openai("api.openai.com") && is_openai("eu.api.openai.com"));
        assert!(is_azure("my.openai.azure.com") && is_azure("my.services.ai.azure.com"));
        assert!(
            !is_openai("notapi.openai.com")
                && !is_openai("api.openai.com.evil.net")
                && !is_azure("azure.com")
        );
    }
}
