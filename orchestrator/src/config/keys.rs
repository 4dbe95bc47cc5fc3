//! Every key of V0 and of Glovebox, with the kind of its value. Keys of V0 without effect are
//! listed too, so that a V0 user's file gives one warning about them instead of an error.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Not negative.
    Integer,
    /// Not negative.
    Number,
    Flag,
    /// A text such as `512m`.
    Size,
    /// A text such as `/a:/b,/c:/d:ro`.
    Volumes,
    /// `http://` or `https://`.
    Url,
    /// Name of a [`super::Runtime`].
    Runtime,
    /// Name of a [`super::UnknownHostPolicy`].
    UnknownHosts,
    /// MCP servers.
    Servers,
    /// Name of a confirmation policy.
    Confirmation,
    /// Name of a model router.
    Router,
    /// A list of strings.
    List,
    Table,
    /// A list of tables.
    Tables,
    /// Any value, for a key without effect.
    Any,
}

impl Kind {
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Integer => "a whole number, 0 or more",
            Self::Number => "a number, 0 or more",
            Self::Flag => "true or false",
            Self::Size => "a size such as 512m or 4g",
            Self::Volumes => "HOST:CONTAINER[:ro], with commas between them",
            Self::Url => "an address such as https://host:3000",
            Self::Confirmation => "never, low, medium, high or always",
            Self::Router => "noop_router or multimodal_router",
            Self::Runtime => "auto, docker, local, ssh or remote",
            Self::UnknownHosts => "refuse, accept-new or ask",
            Self::Servers => "a list of servers",
            Self::List => "a list of strings",
            Self::Table => "a table",
            Self::Tables => "a list of tables",
            Self::Any => "a value",
        }
    }
}

/// One key of one section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub section: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// Whether this version reads it.
    pub has_effect: bool,
}

/// Values that a file without the user's trust may set. A key without a rule needs that trust.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UntrustedRule {
    /// Any value: none of them grants anything.
    Any,
    /// The switch of a harmless tool. The file cannot turn it on where the user turned it off.
    StaysOff,
    /// Only this value, which is the more restrictive one.
    Only(bool),
    /// Only this text, which is the most restrictive one.
    OnlyText(&'static str),
    /// A number that does not exceed the user's own. Holds the default of the user's own.
    Lowers(f64),
    /// A built-in agent without tools that the user turned off, if the user's own configuration
    /// names no agent.
    BuiltInAgent,
    /// A file in the same folder, or a V0 prompt name, if the user's own configuration names no
    /// prompt.
    FileInFolder,
}

/// The rule of a key for files that are not trusted. `None` if its value needs trust.
pub(super) fn untrusted_rule(section: &str, name: &str) -> Option<UntrustedRule> {
    let found = UNTRUSTED.iter().find(|(rule_section, names, _)| {
        *rule_section == section && names.split(' ').any(|one| one == name)
    });
    found.map(|(_, _, rule)| *rule)
}

/// Whether a value may be secret, or have a secret in it.
pub(super) fn is_secret(section: &str, name: &str) -> bool {
    SECRET.iter().any(|(secret_section, names)| {
        *secret_section == section && names.split(' ').any(|secret_name| secret_name == name)
    })
}

/// Sections with named groups such as `[llm.fast]`, which inherit from the section.
pub(super) const GROUPED: [&str; 2] = ["llm", "agent"];

/// The key of this name. `None` if it is unknown.
pub(super) fn find(section: &str, name: &str) -> Option<Key> {
    static BY_NAME: LazyLock<BTreeMap<(&str, &str), Key>> =
        LazyLock::new(|| all().map(|key| ((key.section, key.name), key)).collect());
    BY_NAME.get(&(section, name)).copied()
}

/// Replacement for a key that will never have an effect. `None` if there is none.
pub(super) fn replacement_hint(section: &str, name: &str) -> Option<&'static str> {
    match (section, name) {
        ("llm", "aws_access_key_id" | "aws_secret_access_key" | "aws_region_name") => {
            Some("for Bedrock give the base_url of a LiteLLM proxy")
        }
        ("llm", "modify_params") => Some("requests always follow the provider's rules"),
        ("llm", "custom_tokenizer") => Some("tokens are estimated from the provider's counts"),
        ("core", "run_as_openhands") | ("sandbox", "user_id") => {
            Some("commands run as the image's user, or as the owner of the workspace")
        }
        ("core", "workspace_mount_path_in_sandbox") => {
            Some("a container has the workspace at /workspace")
        }
        ("core", "workspace_mount_rewrite") => {
            Some("give workspace_mount_path as the engine sees it")
        }
        (
            "sandbox",
            "runtime_extra_deps" | "runtime_extra_build_args" | "force_rebuild_runtime",
        ) => {
            Some("no image is built: name one that has them, or install them in .glovebox/setup.sh")
        }
        ("sandbox", "docker_runtime_kwargs") => Some(
            "there are memory_limit, cpus, pids_limit, disk_limit, network, platform and enable_gpu",
        ),
        ("sandbox", "initialize_plugins") => Some("a plugin starts at its first use"),
        _ => None,
    }
}

/// Keys that V0 renamed: section, old name, current name. An old name only sets a key that its
/// current name does not set.
const ALIASES: [(&str, &str, &str); 3] = [
    ("agent", "codeact_enable_jupyter", "enable_jupyter"),
    ("agent", "codeact_enable_browsing", "enable_browsing"),
    ("agent", "codeact_enable_llm_editor", "enable_llm_editor"),
];

/// The current name of a renamed key. `None` if the name is the current one.
pub(super) fn current_name(section: &str, name: &str) -> Option<&'static str> {
    ALIASES
        .iter()
        .find(|(of, old, _)| (*of, *old) == (section, name))
        .map(|(.., current)| *current)
}

/// The key of `section` with the most similar name. `None` if no name is similar.
pub(super) fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let names = all()
        .filter(|key| key.section == section)
        .map(|key| key.name);
    most_similar(names, name)
}

/// The section with the most similar name. `None` if no name is similar.
pub(super) fn nearest_section(name: &str) -> Option<&'static str> {
    most_similar(all().map(|key| key.section), name)
}

/// Whether there is a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    all().any(|key| key.section == name)
}

/// The most similar name, within one edit per four characters.
fn most_similar(names: impl Iterator<Item = &'static str>, name: &str) -> Option<&'static str> {
    let max_distance = (name.len() / 4).max(1);
    names
        .filter(|known| known.len().abs_diff(name.len()) <= max_distance)
        .map(|known| (strsim::osa_distance(known, name), known))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// All keys.
pub(super) fn all() -> impl Iterator<Item = Key> {
    let effective = EFFECTIVE.iter().flat_map(|(section, kind, names)| {
        names.split_whitespace().map(|name| Key {
            section,
            name,
            kind: *kind,
            has_effect: true,
        })
    });
    let without_effect = WITHOUT_EFFECT.iter().flat_map(|(section, names)| {
        names.split_whitespace().map(|name| Key {
            section,
            name,
            kind: Kind::Any,
            has_effect: false,
        })
    });
    effective.chain(without_effect)
}

/// Allow list for files without the user's trust: section, names, rule. Models, API keys,
/// addresses, programs, paths, mounts and isolation are not on it. A new key needs trust until it
/// is added here.
pub(super) const UNTRUSTED: &[(&str, &str, UntrustedRule)] = &[
    ("core", "default_agent", UntrustedRule::BuiltInAgent),
    ("core", "max_iterations", UntrustedRule::Lowers(500.0)),
    (
        "core",
        "max_budget_per_task",
        UntrustedRule::Lowers(f64::INFINITY),
    ),
    ("core", "enable_browser", UntrustedRule::Only(false)),
    ("core", "enable_default_condenser", UntrustedRule::Any),
    (
        "condenser",
        "type attention_window keep_first max_events max_size max_event_length",
        UntrustedRule::Any,
    ),
    (
        "agent",
        "enable_think enable_finish enable_plan_mode enable_condensation_request",
        UntrustedRule::StaysOff,
    ),
    (
        "agent",
        "description enable_history_truncation",
        UntrustedRule::Any,
    ),
    (
        "agent",
        "enable_cmd enable_jupyter enable_editor enable_browsing enable_llm_editor enable_prompt_extensions enable_mcp",
        UntrustedRule::Only(false),
    ),
    ("agent", "enable_stuck_detection", UntrustedRule::Only(true)),
    (
        "agent",
        "system_prompt_filename",
        UntrustedRule::FileInFolder,
    ),
    (
        "sandbox",
        "use_host_network enable_gpu unsafe_local keep_runtime_alive",
        UntrustedRule::Only(false),
    ),
    ("sandbox", "network", UntrustedRule::OnlyText("none")),
    ("security", "confirmation_mode", UntrustedRule::Only(true)),
    (
        "security",
        "confirmation_policy",
        UntrustedRule::OnlyText("always"),
    ),
];

/// Keys that this version reads: section, kind, names.
const EFFECTIVE: &[(&str, Kind, &str)] = &[
    (
        "core",
        Kind::Text,
        "default_agent file_store_path workspace_base workspace_mount_path search_api_key \
         save_trajectory_path git_user_name git_user_email title_llm_config replay_trajectory_path",
    ),
    ("core", Kind::Runtime, "runtime"),
    (
        "core",
        Kind::Flag,
        "sync_events enable_browser save_screenshots_in_trajectory init_git_in_empty_workspace \
         enable_default_condenser",
    ),
    (
        "core",
        Kind::Integer,
        "max_iterations max_concurrent_conversations",
    ),
    ("core", Kind::Number, "max_budget_per_task"),
    ("core", Kind::List, "share_with_users"),
    ("security", Kind::Flag, "confirmation_mode"),
    ("security", Kind::Confirmation, "confirmation_policy"),
    (
        "security",
        Kind::Text,
        "security_analyzer security_analyzer_url security_analyzer_key",
    ),
    ("security", Kind::Number, "security_analyzer_timeout"),
    (
        "llm",
        Kind::Text,
        "model api_key custom_llm_provider base_url api_version reasoning_effort log_completions_folder",
    ),
    (
        "llm",
        Kind::Integer,
        "num_retries max_input_tokens max_output_tokens seed max_message_chars",
    ),
    (
        "llm",
        Kind::Number,
        "retry_multiplier retry_min_wait retry_max_wait timeout temperature top_p top_k input_cost_per_token \
         output_cost_per_token",
    ),
    (
        "llm",
        Kind::Flag,
        "native_tool_calling disable_stop_word drop_params disable_vision caching_prompt log_completions \
         for_routing",
    ),
    ("llm", Kind::Table, "completion_kwargs"),
    ("llm", Kind::Url, "ollama_base_url"),
    ("llm", Kind::Tables, "safety_settings"),
    ("model_routing", Kind::Router, "router_name"),
    ("store", Kind::Text, "url blobs"),
    ("store", Kind::Number, "lease_duration"),
    (
        "agent",
        Kind::Flag,
        "enable_history_truncation enable_stuck_detection enable_cmd enable_jupyter enable_editor \
         enable_browsing enable_llm_editor codeact_enable_jupyter codeact_enable_browsing \
         codeact_enable_llm_editor enable_think enable_finish enable_plan_mode enable_condensation_request \
         enable_prompt_extensions enable_mcp enable_som_visual_browsing",
    ),
    (
        "agent",
        Kind::Text,
        "llm_config system_prompt_filename description",
    ),
    ("agent", Kind::Table, "model_routing condenser"),
    ("agent", Kind::List, "disabled_microagents delegates"),
    ("condenser", Kind::Text, "type llm_config"),
    (
        "condenser",
        Kind::Integer,
        "attention_window keep_first max_events max_size max_event_length",
    ),
    ("condenser", Kind::Tables, "condensers"),
    (
        "sandbox",
        Kind::Text,
        "base_container_image runtime_container_image network platform cuda_visible_devices ssh_host \
         remote_server_key remote_ca_file remote_runtime_class api_key selected_repo",
    ),
    (
        "sandbox",
        Kind::Number,
        "timeout cpus remote_runtime_init_timeout remote_runtime_api_timeout remote_runtime_resource_factor \
         close_delay",
    ),
    ("sandbox", Kind::Volumes, "volumes"),
    (
        "sandbox",
        Kind::Flag,
        "use_host_network enable_gpu unsafe_local remote_runtime_enable_retries keep_runtime_alive \
         pause_closed_runtimes",
    ),
    ("sandbox", Kind::List, "additional_networks"),
    ("sandbox", Kind::Size, "memory_limit disk_limit"),
    ("sandbox", Kind::Integer, "pids_limit warm_pool"),
    ("sandbox", Kind::UnknownHosts, "ssh_unknown_hosts"),
    (
        "sandbox",
        Kind::Url,
        "remote_server_url remote_runtime_api_url",
    ),
    ("sandbox", Kind::Table, "runtime_startup_env_vars"),
    (
        "mcp",
        Kind::Servers,
        "stdio_servers shttp_servers sse_servers",
    ),
    (
        "mcp",
        Kind::Integer,
        "max_listed_tools max_listed_tool_tokens",
    ),
];

/// Keys that `glovebox config show` masks: section, names.
const SECRET: &[(&str, &str)] = &[
    ("core", "search_api_key"),
    ("llm", "api_key completion_kwargs"),
    (
        "sandbox",
        "api_key remote_server_key runtime_startup_env_vars",
    ),
    ("security", "security_analyzer_key"),
    ("mcp", "stdio_servers shttp_servers sse_servers"),
];

/// V0's keys without effect, by section.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (
        "core",
        "workspace_mount_path_in_sandbox workspace_mount_rewrite run_as_openhands \
         jwt_secret debug file_uploads_max_file_size_mb \
         file_uploads_restrict_file_types file_uploads_allowed_extensions conversation_max_age_seconds \
         file_store cache_dir \
         file_store_web_hook_url file_store_web_hook_headers file_store_web_hook_batch \
         cli_multiline_input client_wait_timeout enable_cli_session \
         disable_color mcp_host modal_api_token_id modal_api_token_secret e2b_api_key volumes",
    ),
    (
        "llm",
        "aws_access_key_id aws_secret_access_key aws_region_name modify_params custom_tokenizer correct_num \
         openrouter_site_url openrouter_app_name embedding_base_url embedding_deployment_name embedding_model",
    ),
    (
        "agent",
        "classpath cli_mode runtime memory_enabled memory_max_threads micro_agent_name \
         use_microagents",
    ),
    (
        "sandbox",
        "rm_all_containers user_id enable_auto_lint runtime_binding_address initialize_plugins runtime_extra_deps \
         docker_runtime_kwargs trusted_dirs vscode_port \
         force_rebuild_runtime gpu_base_container_image local_runtime_url browsergym_eval_env runtime_extra_build_args",
    ),
    ("security", "enable_security_analyzer"),
    (
        "kubernetes",
        "namespace ingress_domain pvc_storage_size pvc_storage_class resource_cpu_request resource_memory_request \
         resource_memory_limit image_pull_secret ingress_tls_secret node_selector_key node_selector_val \
         tolerations_yaml privileged",
    ),
    ("cli", "vi_mode"),
];
