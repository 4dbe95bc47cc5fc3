//! V0's `config.template.toml` with every key uncommented runs a task.

use serde_json::json;
use tests::glovebox::{Home, bash, finish};

/// All keys of the template, with its default values. Omitted is what TOML cannot express:
/// `native_tool_calling = None`, and all alternative condensers but one.
const TEMPLATE: &str = r#"
[core]
workspace_base = "./workspace"
cache_dir = "/tmp/cache"
debug = false
disable_color = false
save_trajectory_path = "./trajectories"
save_screenshots_in_trajectory = false
replay_trajectory_path = ""
file_store_path = "./file_store"
file_store = "memory"
file_uploads_max_file_size_mb = 0
enable_browser = true
max_budget_per_task = 0.0
max_iterations = 500
workspace_mount_path_in_sandbox = "/workspace"
workspace_mount_path = ""
workspace_mount_rewrite = ""
run_as_openhands = true
runtime = "docker"
default_agent = "CodeActAgent"
jwt_secret = ""
file_uploads_restrict_file_types = false
file_uploads_allowed_extensions = [".*"]
enable_default_condenser = true
max_concurrent_conversations = 3
conversation_max_age_seconds = 864000
e2b_api_key = ""
modal_api_token_id = ""
modal_api_token_secret = ""
enable_cli_session = false

[llm]
aws_access_key_id = ""
aws_region_name = ""
aws_secret_access_key = ""
api_key = ""
base_url = ""
api_version = ""
reasoning_effort = "medium"
input_cost_per_token = 0.0
output_cost_per_token = 0.0
custom_llm_provider = ""
embedding_base_url = ""
embedding_deployment_name = ""
embedding_model = "local"
max_message_chars = 10000
max_input_tokens = 0
max_output_tokens = 0
model = "claude-sonnet-4-5-20250929"
num_retries = 8
retry_max_wait = 120
retry_min_wait = 15
retry_multiplier = 2.0
drop_params = false
modify_params = true
caching_prompt = true
ollama_base_url = ""
temperature = 0.0
timeout = 0
top_p = 1.0
disable_vision = true
custom_tokenizer = ""
safety_settings = []

[llm.draft_editor]
correct_num = 5

[llm.gpt4o-mini]
api_key = ""
model = "gpt-4o"

[llm.secondary_model]
model = "kimi-k2"
api_key = ""
for_routing = true
max_input_tokens = 128000

[llm.condenser]
model = "gpt-4o"
temperature = 0.1
max_input_tokens = 1024

[agent]
enable_browsing = true
enable_llm_editor = false
enable_editor = true
enable_jupyter = true
enable_cmd = true
enable_think = true
enable_finish = true
llm_config = 'your-llm-config-group'
enable_prompt_extensions = true
disabled_microagents = []
enable_history_truncation = true
enable_condensation_request = false
codeact_enable_browsing = true
codeact_enable_llm_editor = false
codeact_enable_jupyter = true
micro_agent_name = ""
memory_enabled = false
memory_max_threads = 3
use_microagents = true

[agent.RepoExplorerAgent]
llm_config = 'gpt3'

[agent.CustomAgent]
classpath = "my_package.my_module.MyCustomAgent"

[sandbox]
timeout = 120
user_id = 1000
base_container_image = "nikolaik/python-nodejs:python3.12-nodejs22"
use_host_network = false
runtime_extra_build_args = ["--network=host", "--add-host=host.docker.internal:host-gateway"]
enable_auto_lint = false
initialize_plugins = true
runtime_extra_deps = ""
runtime_startup_env_vars = {}
browsergym_eval_env = ""
platform = ""
force_rebuild_runtime = false
runtime_container_image = ""
keep_runtime_alive = false
pause_closed_runtimes = false
close_delay = 300
rm_all_containers = false
enable_gpu = false
cuda_visible_devices = ''
docker_runtime_kwargs = {}
vscode_port = 41234
volumes = ""

[security]
confirmation_mode = false
security_analyzer = "llm"
enable_security_analyzer = true

[condenser]
type = "llm"
llm_config = "condenser"
keep_first = 1
max_size = 100

[kubernetes]
namespace = "default"
ingress_domain = "localhost"
pvc_storage_size = "2Gi"
pvc_storage_class = "standard"
resource_cpu_request = "1"
resource_memory_request = "1Gi"
resource_memory_limit = "2Gi"
image_pull_secret = ""
ingress_tls_secret = ""
node_selector_key = ""
node_selector_val = ""
tolerations_yaml = ""
privileged = false

[mcp]
sse_servers = ["http://127.0.0.1:1/sse", {url = "http://127.0.0.1:1/sse2", api_key = "your-api-key"}]
shttp_servers = ["http://127.0.0.1:1/mcp", {url = "http://127.0.0.1:1/mcp2", api_key = "your-api-key", timeout = 180}]
stdio_servers = [
    {name = "filesystem", command = "/nowhere/npx", args = ["server-filesystem", "/"]},
    {name = "fetch", command = "/nowhere/uvx", args = ["mcp-server-fetch"], env = {DEBUG = "true"}},
]

[model_routing]
router_name = "noop_router"
"#;

#[test]
fn whole_template_runs_a_task() {
    let home = Home::new();
    home.write(".openhands/config.toml", TEMPLATE);
    let model = home.script(&json!([bash("echo template"), finish()]));
    let run = [
        "run",
        "--json",
        "-t",
        "work",
        "--runtime",
        "local",
        "-l",
        &model,
    ];
    let ended = home.run(&run).expect(0);
    assert!(ended.events().iter().any(|event| {
        event["content"]
            .as_str()
            .is_some_and(|text| text == "template")
    }));
    assert!(!ended.stderr.contains("unknown"), "{}", ended.stderr);
    // The keys without effect, each with its replacement.
    for part in [
        "core.run_as_openhands (",
        "sandbox.runtime_extra_deps (",
        "llm.custom_tokenizer (",
    ] {
        assert!(ended.stderr.contains(part), "{part} in: {}", ended.stderr);
    }
    assert!(home.path().join("workspace").is_dir());
    assert!(home.path().join("trajectories").exists());
    home.assert_nothing_runs();
}
