use std::io::Write;

use engine::agent::tools::ToolName;
use engine::condenser::CondenserConfig;
use protocol::risk::{ConfirmationPolicy, SecurityRisk};
use storage::Durability;

use super::{AnalyzerChoice, BlobPlace, Config, ConfigError, Overrides, Runtime, keys};

fn load(
    file: &str,
    environment: &[(&str, &str)],
    overrides: Overrides,
) -> Result<Config, ConfigError> {
    let mut named = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    named.write_all(file.as_bytes()).unwrap();
    let overrides = Overrides {
        config_file: Some(named.path().to_owned()),
        ..overrides
    };
    Config::load(&overrides, |name| {
        let found = environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned());
        found.or_else(|| (name == "HOME").then(|| "/home/u".to_owned()))
    })
}

/// The error's line without the file's folder and random name.
fn error_of(file: &str, environment: &[(&str, &str)]) -> String {
    let text = load(file, environment, Overrides::default())
        .unwrap_err()
        .to_string();
    text.split_once(".toml")
        .map_or(text.clone(), |(_, rest)| rest.to_owned())
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = "[core]\nmax_iterations = 7\nruntime = \"local\"\n";
    let config = load("", &[], Overrides::default()).unwrap();
    assert_eq!(
        (config.max_iterations, config.runtime),
        (500, Runtime::Auto)
    );
    let config = load(file, &[], Overrides::default()).unwrap();
    assert_eq!((config.max_iterations, config.runtime), (7, Runtime::Local));
    let config = load(file, &[("MAX_ITERATIONS", "8")], Overrides::default()).unwrap();
    assert_eq!(config.max_iterations, 8);
    let flags = Overrides {
        max_iterations: Some(9),
        ..Default::default()
    };
    assert_eq!(
        load(file, &[("MAX_ITERATIONS", "8")], flags)
            .unwrap()
            .max_iterations,
        9
    );
}

#[test]
fn events_survive_a_power_cut_when_they_are_synced() {
    let durability = |file, environment| {
        load(file, environment, Overrides::default())
            .unwrap()
            .durability
    };
    assert_eq!(durability("", &[]), Durability::ProcessDeath);
    assert_eq!(
        durability("[core]\nsync_events = true\n", &[]),
        Durability::PowerCut
    );
    assert_eq!(
        durability("", &[("SYNC_EVENTS", "true")]),
        Durability::PowerCut
    );
}

#[test]
fn place_of_blobs_is_a_folder_or_a_bucket() {
    let read = |environment: &[(&str, &str)], flag: Option<&str>| {
        let overrides = Overrides {
            blobs: flag.map(str::to_owned),
            ..Overrides::default()
        };
        load("[store]\nblobs = \"~/blobs\"\n", environment, overrides).map(|config| config.store)
    };
    let folder = |store: super::StoreSettings| match store.blobs {
        BlobPlace::Folder(folder) => folder.to_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(folder(read(&[], None).unwrap()), "/home/u/blobs");
    assert_eq!(folder(read(&[("STORE_BLOBS", "/b")], None).unwrap()), "/b");
    assert_eq!(
        folder(read(&[("STORE_BLOBS", "/b")], Some("/c")).unwrap()),
        "/c"
    );
    let keys = [
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "canary"),
        ("AWS_PROFILE", "unsupported"),
    ];
    let store = read(&keys, Some("s3://bucket/a/b/")).unwrap();
    let BlobPlace::S3(options) = &store.blobs else {
        panic!("{:?}", store.blobs)
    };
    let names: Vec<_> = options.variables.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        (options.bucket.as_str(), options.prefix.as_str()),
        ("bucket", "a/b")
    );
    assert_eq!(names, ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]);
    assert_eq!(store.s3_secrets().count(), 1);
    assert!(!format!("{store:?}").contains("canary"));
    let default = load("", &keys, Overrides::default()).unwrap().store.blobs;
    assert!(matches!(default, BlobPlace::Default), "{default:?}");
    for wrong in ["gs://bucket", "https://host/bucket", ""] {
        let error = read(&[], Some(wrong)).unwrap_err().to_string();
        assert!(
            error.starts_with("store: blobs must be a folder or s3://BUCKET/PREFIX"),
            "{error}"
        );
    }
}

#[test]
fn variable_is_ignored_when_it_is_empty() {
    let config = load(
        "[llm]\nmodel = \"m\"\n",
        &[("LLM_MODEL", "")],
        Overrides::default(),
    )
    .unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("m"));
}

#[test]
fn group_inherits_from_its_section() {
    let file = "[llm]\nmodel = \"big\"\nbase_url = \"http://h\"\n[llm.fast]\nmodel = \"small\"\n";
    let named = |model: &str| Overrides {
        model: Some(model.into()),
        ..Default::default()
    };
    let config = load(file, &[], named("fast")).unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("small"));
    assert_eq!(config.llm.provider.base_url.as_deref(), Some("http://h"));
    let config = load(file, &[], named("other")).unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("other"));
}

#[test]
fn error_names_file_line_and_key_when_a_value_is_bad() {
    assert_eq!(
        error_of("[core]\n\nmax_iterations = \"many\"\n", &[]),
        ":3: core.max_iterations must be a whole number, 0 or more, not a value of type string"
    );
    assert_eq!(
        error_of("[core]\nmax_iterations = -1\n", &[]),
        ":2: core.max_iterations must be a whole number, 0 or more, not -1"
    );
    assert!(error_of("[core]\nruntime = \n", &[]).starts_with(":2: "));
    assert_eq!(
        error_of("[core]\nruntime = \"moon\"\n", &[]),
        ":2: core.runtime must be auto, docker, local, ssh or remote, not \"moon\""
    );
    assert_eq!(
        error_of("", &[("LLM_TEMPERATURE", "hot")]),
        "environment variable LLM_TEMPERATURE: llm.temperature must be a number, 0 or more, not what it holds"
    );
}

#[test]
fn startup_environment_is_validated_and_does_not_print() {
    use secrecy::ExposeSecret;
    let file = "[core]\ninit_git_in_empty_workspace = true\n[sandbox]\nruntime_startup_env_vars = { TOKEN = \"hunter2\", N = 3 }\n";
    let config = load(file, &[], Overrides::default()).unwrap();
    assert!(config.workspace.init_git);
    let exposed: Vec<_> = config
        .workspace
        .startup_environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    assert_eq!(exposed, [("N", "3"), ("TOKEN", "hunter2")]);
    assert!(!format!("{config:?}").contains("hunter2"));
    let variable = [
        ("SANDBOX_RUNTIME_STARTUP_ENV_VARS", "{\"A\": \"b\"}"),
        ("INIT_GIT_IN_EMPTY_WORKSPACE", "False"),
    ];
    let config = load(file, &variable, Overrides::default()).unwrap();
    assert!(config.workspace.startup_environment.keys().eq(["A"]) && !config.workspace.init_git);
    for (name, part) in [("A=B", "a name"), ("", "a name"), ("1A", "a name")] {
        let file = format!("[sandbox]\nruntime_startup_env_vars = {{ \"{name}\" = \"secret\" }}\n");
        let error = load(&file, &[], Overrides::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part) && !error.contains("secret"), "{error}");
    }
    assert_eq!(
        error_of("[core]\ninit_git_in_empty_workspace = 3\n", &[]),
        ":2: core.init_git_in_empty_workspace must be true or false, not a value of type integer"
    );
}

#[test]
fn warning_names_the_nearest_key_when_a_key_is_unknown() {
    let file =
        "[core]\nmax_iteration = 3\n[llm]\nmodle = \"m\"\n[sandbx]\na = 1\n[cli]\nvi_mode = true\n";
    let warnings = load(file, &[], Overrides::default())
        .unwrap()
        .warnings
        .join("\n");
    for part in [
        ":2: unknown key core.max_iteration (did you mean max_iterations?)",
        ":4: unknown key llm.modle (did you mean model?)",
        ":5: unknown section [sandbx] (did you mean sandbox?)",
        "without effect in this version: cli.vi_mode",
    ] {
        assert!(warnings.contains(part), "{part} in {warnings}");
    }
}

#[test]
fn current_name_wins_when_an_old_one_is_set_too() {
    let tools = |file: &str, environment: &[(&str, &str)]| {
        let config = load(file, environment, Overrides::default()).unwrap();
        let tools = config.agent.definition.unwrap().tools;
        let named = [
            ToolName::ExecuteIpythonCell,
            ToolName::Browser,
            ToolName::EditFile,
        ]
        .map(|tool| tools.contains(&tool));
        assert_ne!(
            tools.contains(&ToolName::StrReplaceEditor),
            tools.contains(&ToolName::EditFile)
        );
        (named, config.warnings.join("\n"))
    };
    assert_eq!(tools("", &[]), ([true, true, false], String::new()));
    let older = "[agent]\ncodeact_enable_jupyter = false\ncodeact_enable_browsing = false\n\
                 codeact_enable_llm_editor = true\n";
    let (named, warnings) = tools(older, &[]);
    assert_eq!(named, [false, false, true]);
    assert!(
        warnings.contains(":2: agent.codeact_enable_jupyter is an older name of enable_jupyter")
    );
    assert!(!warnings.contains("without effect"), "{warnings}");
    // Before and after it, and in a layer above.
    let both = format!(
        "[agent]\nenable_jupyter = true\n{}enable_browsing = true\n",
        &older[8..]
    );
    assert_eq!(tools(&both, &[]).0, [true, true, true]);
    assert_eq!(
        tools("", &[("AGENT_CODEACT_ENABLE_LLM_EDITOR", "true")]).0,
        [true, true, true]
    );
    let section = format!(
        "[agent]\nenable_browsing = true\n[agent.CodeActAgent]\n{}",
        &older[8..]
    );
    assert_eq!(tools(&section, &[]).0, [false, false, true]);
}

#[test]
fn load_fails_when_a_named_file_is_missing() {
    let overrides = Overrides {
        config_file: Some("/nowhere/config.toml".into()),
        ..Default::default()
    };
    let error = Config::load(&overrides, |_| Some("/home/u".into())).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
}

#[test]
fn secrets_do_not_print() {
    let config = load("[llm]\napi_key = \"hunter2\"\n", &[], Overrides::default()).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn sandbox_settings_are_read_in_v0s_notation() {
    let file = "[sandbox]\nvolumes = \"/home/me/work:/workspace:rw,/data:/data:ro,cache:/var/cache\"\n\
                use_host_network = true\nkeep_runtime_alive = true\nmemory_limit = \"512m\"\nclose_delay = 60\n\
                enable_gpu = true\ncuda_visible_devices = \"0,2\"\n";
    let config = load(file, &[("SANDBOX_PIDS_LIMIT", "99")], Overrides::default()).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    assert_eq!(
        config.workspace.base.as_deref(),
        Some(std::path::Path::new("/home/me/work"))
    );
    let sandbox = config.sandbox;
    let targets: Vec<_> = sandbox
        .volumes
        .iter()
        .map(|volume| (&*volume.target, volume.read_only))
        .collect();
    assert_eq!(targets, [("/data", true), ("/var/cache", false)]);
    assert_eq!(
        (sandbox.resources.memory_bytes, sandbox.resources.pids),
        (512 << 20, 99)
    );
    assert_eq!(sandbox.network.as_deref(), Some("host"));
    assert_eq!(sandbox.gpus, Some(vec!["0".to_owned(), "2".to_owned()]));
    assert_eq!(
        sandbox.disposition,
        engine::conversation::SandboxDisposition::Pause
    );
    assert_eq!(sandbox.close_delay.as_secs(), 60);
}

#[test]
fn sandbox_setting_is_refused_when_it_is_invalid() {
    assert_eq!(
        error_of("[sandbox]\nvolumes = \"/a:b\"\n", &[]),
        ":2: sandbox.volumes must be HOST:CONTAINER[:ro], with commas between them, not \"/a:b\""
    );
    assert_eq!(
        error_of("", &[("SANDBOX_MEMORY_LIMIT", "lots")]),
        "environment variable SANDBOX_MEMORY_LIMIT: sandbox.memory_limit must be a size such as 512m or 4g, \
         not \"lots\""
    );
    assert_eq!(
        error_of("[sandbox]\ntimeout = -5\n", &[]),
        ":2: sandbox.timeout must be a number, 0 or more, not -5"
    );
}

#[test]
fn mcp_servers_are_read_in_v0s_notation() {
    let file = "[mcp]\nsse_servers = [\"http://a/sse\", {url = \"https://b.example/sse\", api_key = \"hunter2\"}]\n\
                shttp_servers = [{url = \"https://c/mcp\", timeout = 90, headers = {X-Team = \"hunter2\"}}]\n\
                [[mcp.stdio_servers]]\nname = \"git\"\ncommand = \"uvx\"\nargs = [\"mcp-server-git\"]\n\
                env = {TOKEN = \"hunter2\"}\n\
                [[mcp.stdio_servers]]\nname = \"time\"\ncommand = \"x\"\nargs = \"-m 'a b'\"\nrun_in = \"host\"\n\
                start_timeout = 5\n";
    let config = load(file, &[], Overrides::default()).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    let printed = format!("{config:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
    let actual: Vec<_> = config
        .mcp
        .servers
        .iter()
        .map(|server| {
            (
                server.name.as_str(),
                server.start_timeout.as_secs(),
                server.call_timeout.as_secs(),
            )
        })
        .collect();
    let expected = [
        ("git", 30, 60),
        ("time", 5, 60),
        ("c", 30, 90),
        ("a", 30, 60),
        ("b.example", 30, 60),
    ];
    assert_eq!(actual, expected);
    assert!(
        matches!(&config.mcp.servers[0].transport, mcp::Transport::Sandbox(git) if git.command == "uvx")
    );
    assert!(
        matches!(&config.mcp.servers[1].transport, mcp::Transport::Host(time) if time.args == ["-m", "a b"])
    );

    let variable = [
        ("MCP_SHTTP_SERVERS", "[{\"url\": \"http://d/mcp\"}]"),
        ("AGENT_ENABLE_MCP", "true"),
    ];
    let config = load("", &variable, Overrides::default()).unwrap();
    assert!(matches!(
        config.mcp.servers[0].transport,
        mcp::Transport::StreamableHttp(_)
    ));
    let off = load(file, &[("AGENT_ENABLE_MCP", "false")], Overrides::default()).unwrap();
    assert!(off.mcp.servers.is_empty());
}

#[test]
fn error_names_file_line_and_key_when_a_server_is_bad() {
    for (file, error) in [
        (
            "stdio_servers = 3",
            "stdio_servers: must be a list of servers",
        ),
        (
            "stdio_servers = [\"x\"]",
            "stdio_servers: server 1: must be a table with `name` and `command`",
        ),
        (
            "stdio_servers = [{name = \"x\"}]",
            "stdio_servers: server 1: has no `command`",
        ),
        (
            "stdio_servers = [{name = \"x\", command = \"y\", run_on = \"host\"}]",
            "stdio_servers: server 1: has an unknown key \"run_on\"",
        ),
        (
            "stdio_servers = [{name = \"x\", command = \"y\", run_in = \"cellar\"}]",
            "stdio_servers: server 1: `run_in` must be sandbox or host",
        ),
        (
            "shttp_servers = [\"http://a\", {url = \"ftp://secret\"}]",
            "shttp_servers: server 2: `url` must be an address such as https://host/mcp, with a key in `api_key` or \
             `headers`",
        ),
        (
            "sse_servers = [{url = \"http://a\", timeout = -1}]",
            "sse_servers: server 1: `timeout` must be a number of seconds, at most 86400",
        ),
        (
            "sse_servers = [{api_key = 3, url = \"http://a\"}]",
            "sse_servers: server 1: `api_key` must be a string",
        ),
    ] {
        assert_eq!(
            error_of(&format!("[mcp]\n{file}\n"), &[]),
            format!(":2: mcp.{error}")
        );
    }
}

#[test]
fn condenser_is_read_with_v0s_defaults_and_its_models() {
    let config = load("", &[], Overrides::default()).unwrap();
    assert_eq!(
        (config.condenser.chosen, config.condenser.is_default_enabled),
        (None, true)
    );
    assert!(!config.history_truncation_disabled);

    let file = "[llm]\nmodel = \"big\"\nbase_url = \"http://h\"\n[llm.small]\nmodel = \"little\"\n\
                [agent]\nenable_history_truncation = false\n\
                [condenser]\ntype = \"pipeline\"\n\
                condensers = [{type = \"recent\"}, {type = \"llm\", llm_config = \"small\", max_size = 50}]\n";
    let small = Overrides {
        model: Some("small".into()),
        ..Default::default()
    };
    for overrides in [Overrides::default(), small] {
        let config = load(file, &[], overrides).unwrap();
        let llm = CondenserConfig::Llm {
            llm_config: Some("small".into()),
            keep_first: 1,
            max_size: 50,
            max_event_length: 10_000,
        };
        let condensers = vec![
            CondenserConfig::Recent {
                keep_first: 1,
                max_events: 100,
            },
            llm,
        ];
        assert_eq!(
            config.condenser.chosen,
            Some(CondenserConfig::Pipeline { condensers })
        );
        let small = &config.condenser.llms["small"];
        assert_eq!(small.model.as_deref(), Some("little"));
        assert_eq!(small.provider.base_url.as_deref(), Some("http://h"));
        assert!(config.history_truncation_disabled);
        assert_eq!(config.warnings, [] as [String; 0]);
    }

    let environment = [
        ("CONDENSER_TYPE", "amortized"),
        ("CONDENSER_MAX_SIZE", "30"),
    ];
    let config = load("", &environment, Overrides::default()).unwrap();
    assert_eq!(
        config.condenser.chosen,
        Some(CondenserConfig::Amortized {
            max_size: 30,
            keep_first: 1
        })
    );
}

#[test]
fn condenser_is_refused_when_it_is_invalid() {
    for (file, problem) in [
        (
            "[condenser]\ntype = 7\n",
            ":2: condenser.type must be a string, not a value of type integer",
        ),
        (
            "[condenser]\ntype = \"llm\"\nmax_size = 8\nkeep_first = 4\n",
            "condenser: keep_first (4) must be less than half of max_size (8)",
        ),
        (
            "[condenser]\ntype = \"llm\"\nllm_config = \"small\"\n",
            "condenser: llm_config: there is no [llm.small]",
        ),
        (
            "[condenser]\nmax_size = 8\n",
            "condenser: missing field `type`",
        ),
    ] {
        assert_eq!(error_of(file, &[]), problem);
    }
    assert!(
        error_of("[condenser]\ntype = \"lm\"\n", &[])
            .starts_with("condenser: unknown variant `lm`")
    );
}

#[test]
fn settings_of_a_model_are_typed_and_depend_on_its_name() {
    let file = "[llm]\nmodel = \"m\"\nbase_url = \"http://p\"\nollama_base_url = \"http://h:1\"\n\
                max_output_tokens = 0\ntop_k = 1.5\nretry_min_wait = 2\nsafety_settings = [{ category = \"c\" }]\n";
    let llm = load(file, &[], Overrides::default()).unwrap().llm;
    let config = |model| llm.provider_config(model);
    assert_eq!(config("m").base_url.as_deref(), Some("http://p"));
    assert_eq!(
        config("ollama/m").base_url.as_deref(),
        Some("http://h:1/v1")
    );
    assert_eq!(
        (config("m").max_output_tokens, config("m").top_k),
        (None, None)
    );
    assert_eq!(config("m").completion_kwargs["top_k"], 1.5);
    assert_eq!(
        config("m").retry.min_wait,
        std::time::Duration::from_secs(2)
    );
    let has_safety_settings = |model| {
        config(model)
            .completion_kwargs
            .contains_key("safety_settings")
    };
    assert!(has_safety_settings("gemini/m") && !has_safety_settings("m"));
}

#[test]
fn section_of_an_agent_sets_its_tools_and_model() {
    use engine::agent::tools::ToolName;
    let file = "[llm]\nmodel = \"big\"\n[llm.fast]\nmodel = \"small\"\nbase_url = \"http://h\"\n\
                [agent]\nenable_think = false\nenable_jupyter = false\ndisabled_microagents = [\"git\"]\n\
                [agent.quick]\nllm_config = \"fast\"\nenable_cmd = false\nenable_jupyter = true\nenable_condensation_request = true\n";
    let usual = load(file, &[("AGENT_ENABLE_EDITOR", "0")], Overrides::default()).unwrap();
    assert_eq!(
        (usual.agent.stored_name.as_str(), usual.llm.model.as_deref()),
        ("CodeActAgent", Some("big"))
    );
    let tools = usual.agent.definition.unwrap().tools;
    assert_eq!(
        tools,
        [
            ToolName::ExecuteBash,
            ToolName::Browser,
            ToolName::TaskTracker,
            ToolName::Finish
        ]
    );
    assert!(usual.agent.has_prompt_extensions && usual.agent.disabled_microagents.contains("git"));

    let quick = || Overrides {
        agent: Some("quick".into()),
        ..Default::default()
    };
    let config = load(
        file,
        &[("AGENT_ENABLE_PROMPT_EXTENSIONS", "false")],
        quick(),
    )
    .unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("small"));
    assert_eq!(config.llm.provider.base_url.as_deref(), Some("http://h"));
    let tools = config.agent.definition.unwrap().tools;
    let expected = [
        ToolName::ExecuteIpythonCell,
        ToolName::Browser,
        ToolName::StrReplaceEditor,
        ToolName::TaskTracker,
        ToolName::RequestCondensation,
        ToolName::Finish,
    ];
    assert_eq!(tools, expected);
    assert!(!config.agent.has_prompt_extensions);
    let named = Overrides {
        model: Some("other".into()),
        ..quick()
    };
    assert_eq!(
        load(file, &[], named).unwrap().llm.model.as_deref(),
        Some("other")
    );
}

#[test]
fn missing_agent_is_an_error_of_its_definition() {
    let config = load(
        "[core]\ndefault_agent = \"FlyingAgent\"\n",
        &[],
        Overrides::default(),
    )
    .unwrap();
    let error = config.agent.definition.unwrap_err();
    assert!(
        error.starts_with(
            "there is no agent FlyingAgent: there are CodeActAgent, ReadOnlyAgent, BrowsingAgent,"
        ),
        "{error}"
    );
    let config = load(
        "[agent]\nsystem_prompt_filename = \"no.md\"\n",
        &[],
        Overrides::default(),
    )
    .unwrap();
    let error = config.agent.definition.unwrap_err();
    assert!(
        error.starts_with("agent.system_prompt_filename: cannot read "),
        "{error}"
    );
}

#[test]
fn browser_is_enabled_unless_it_is_turned_off() {
    use engine::agent::tools::ToolName;
    let has_browser = |file: &str| {
        let config = load(file, &[], Overrides::default()).unwrap();
        let has_tool = config
            .agent
            .definition
            .unwrap()
            .tools
            .contains(&ToolName::Browser);
        (has_tool, config.enable_browser)
    };
    assert_eq!(has_browser(""), (true, true));
    assert_eq!(
        has_browser("[agent]\nenable_browsing = false\n"),
        (false, true)
    );
    assert_eq!(
        has_browser("[core]\nenable_browser = false\n"),
        (false, false)
    );
    let agent = "[core]\ndefault_agent = \"BrowsingAgent\"\n";
    assert_eq!(has_browser(agent), (true, true));
    let forbidden = load(
        &format!("{agent}enable_browser = false\n"),
        &[],
        Overrides::default(),
    )
    .unwrap();
    let error = forbidden.agent.definition.unwrap_err();
    assert!(
        error.contains("BrowsingAgent works in a browser"),
        "{error}"
    );
}

#[test]
fn default_model_is_used_when_an_agents_group_is_missing() {
    let file = "[llm]\nmodel = \"m\"\n[agent]\nllm_config = \"nope\"\n";
    let config = load(file, &[], Overrides::default()).unwrap();
    assert_eq!(config.llm.model.as_deref(), Some("m"));
    assert_eq!(
        config.warnings,
        ["agent.llm_config: there is no [llm.nope]: [llm] is used"]
    );
    let chosen = Overrides {
        model: Some("small".into()),
        ..Default::default()
    };
    assert_eq!(
        load(file, &[], chosen).unwrap().llm.model.as_deref(),
        Some("small")
    );
}

#[test]
fn prompt_and_model_of_an_agents_file_win() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("agents")).unwrap();
    let path = folder.path().join("agents/critic.md");
    let own = [("FILE_STORE_PATH", folder.path().to_str().unwrap())];
    std::fs::write(&path, "---\ntools: view\nmodel: fast\n---\nBe strict.\n").unwrap();
    let file = "[llm.fast]\nmodel = \"small\"\n[agent.critic]\nllm_config = \"slow\"\nenable_prompt_extensions = false\n";
    let overrides = || Overrides {
        agent: Some(path.display().to_string()),
        ..Default::default()
    };
    let config = load(file, &own, overrides()).unwrap();
    let definition = config.agent.definition.unwrap();
    assert_eq!(
        (definition.name.as_str(), definition.prompt.as_str()),
        ("critic", "Be strict.")
    );
    assert_eq!(config.llm.model.as_deref(), Some("small"));
    assert!(
        !config.agent.has_prompt_extensions,
        "the section of its name counts too"
    );
    let absolute = path.canonicalize().unwrap().display().to_string();
    assert_eq!(config.agent.stored_name, absolute);
    std::fs::write(&path, "---\nname: a b\n---\nx").unwrap();
    let error = load(file, &own, overrides())
        .unwrap()
        .agent
        .definition
        .unwrap_err();
    assert!(
        error.starts_with(&format!("{}:2: `name` must be", path.display())),
        "{error}"
    );
}

#[test]
fn confirmation_policy_is_read_and_refused_when_unknown() {
    let file = "[security]\nconfirmation_mode = true\nsecurity_analyzer = \"llm\"\nsecurity_analyzer_key = \"hunter2\"\n";
    let config = load(
        file,
        &[("SECURITY_CONFIRMATION_POLICY", "medium")],
        Overrides::default(),
    )
    .unwrap();
    let security = &config.security;
    assert!(security.confirmation_mode && !format!("{config:?}").contains("hunter2"));
    assert!(matches!(
        security.analyzer,
        Some(AnalyzerChoice::DeclaredRisk)
    ));
    assert_eq!(
        security.policy,
        Some(ConfirmationPolicy::Risky {
            from: SecurityRisk::Medium
        })
    );
    assert_eq!(
        error_of("[security]\nconfirmation_policy = \"often\"\n", &[]),
        ":2: security.confirmation_policy must be never, low, medium, high or always, not \"often\""
    );
}

#[test]
fn secrets_are_read_from_config_flags_environment_and_files() {
    use secrecy::ExposeSecret;
    let held = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(held.path(), "of a file\n").unwrap();
    let file =
        "[secrets]\nA = \"of the config\"\nB = {value = \"described\", description = \"for b\"}\n";
    let flags = |secrets: &[&str]| Overrides {
        secrets: secrets.iter().map(|secret| (*secret).to_owned()).collect(),
        ..Default::default()
    };
    let of_file = format!("C=@{}", held.path().display());
    let config = load(
        file,
        &[("D", "of the environment")],
        flags(&["A=of a flag", &of_file, "D"]),
    )
    .unwrap();
    let exposed: Vec<_> = config
        .secrets
        .iter()
        .map(|(name, secret)| (name.as_str(), secret.value.expose_secret()))
        .collect();
    assert_eq!(
        exposed,
        [
            ("A", "of a flag"),
            ("B", "described"),
            ("C", "of a file"),
            ("D", "of the environment")
        ]
    );
    assert_eq!(config.secrets["B"].description, "for b");
    assert!(!format!("{config:?}").contains("of a"));
    let config = load(file, &[], flags(&["B=of a flag"])).unwrap();
    let secret = &config.secrets["B"];
    assert_eq!(
        (secret.value.expose_secret(), secret.description.as_str()),
        ("of a flag", "for b")
    );
    for (file, secret, part) in [
        (
            "[secrets]\nA = 1\n",
            "B=bbbbbb",
            "the secret \"A\" must be a string",
        ),
        (
            "[secrets]\nA = {text = \"hunter2\"}\n",
            "B=bbbbbb",
            "the secret \"A\" must be a string",
        ),
        (
            "[secrets]\nA = {value = \"hunter2\", description = 1}\n",
            "B=bbbbbb",
            "the secret \"A\" must be a string",
        ),
        ("", "E", "the secret \"E\" is not in the environment"),
        (
            "",
            "E=@/nowhere",
            "the secret \"E\" cannot be read from /nowhere: No such file",
        ),
        (
            "",
            "1E=hunter2",
            "the secret \"1E\" has a name that a shell does not take",
        ),
    ] {
        let error = load(file, &[], flags(&[secret])).unwrap_err().to_string();
        assert!(
            error.starts_with(part) && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[test]
fn router_uses_the_model_that_is_marked_for_routing() {
    let file = "[llm]\nmodel = \"big\"\nbase_url = \"http://h\"\n[llm.fast]\nmodel = \"small\"\nfor_routing = true\n";
    let second = |more: &str| {
        let config = load(&format!("{file}{more}"), &[], Overrides::default()).unwrap();
        assert_eq!(
            (config.llm.model.as_deref(), config.warnings),
            (Some("big"), Vec::new())
        );
        config
            .secondary_llm
            .map(|llm| (llm.model.unwrap(), llm.provider.base_url.unwrap()))
    };
    let found = |model: &str| Some((model.to_owned(), "http://h".to_owned()));
    let router = "[model_routing]\nrouter_name = \"multimodal_router\"\n";
    let v0 = "[llm.secondary_model]\nmodel = \"tiny\"\nfor_routing = true\n";
    assert_eq!(second(""), None);
    assert_eq!(second(router), found("small"));
    assert_eq!(second(&format!("{v0}{router}")), found("tiny"));
    assert_eq!(
        second(&format!(
            "[agent.model_routing]\nrouter_name = \"noop_router\"\n{router}"
        )),
        None
    );
    assert_eq!(
        second("[agent.CodeActAgent.model_routing]\nrouter_name = \"multimodal_router\"\n"),
        found("small")
    );
    for (file, problem) in [
        (
            router,
            "model_routing: multimodal_router needs one [llm.NAME] with for_routing = true, and there are 0",
        ),
        (
            "[model_routing]\nrouter_name = \"x\"\n",
            ":2: model_routing.router_name must be noop_router or multimodal_router, not \"x\"",
        ),
        (
            "[agent.model_routing]\nrouter_name = \"x\"\n",
            "model_routing: there is no router x, but multimodal_router",
        ),
    ] {
        assert_eq!(error_of(file, &[]), problem);
    }
}

#[test]
fn condenser_of_an_agents_section_wins() {
    let file = "[condenser]\ntype = \"noop\"\n[agent.quick.condenser]\ntype = \"recent\"\nmax_events = 7\n";
    let of = |agent: Option<&str>| {
        let named = Overrides {
            agent: agent.map(Into::into),
            ..Default::default()
        };
        load(file, &[], named).unwrap().condenser.chosen.unwrap()
    };
    assert_eq!(of(None), CondenserConfig::Noop {});
    assert_eq!(
        of(Some("quick")),
        CondenserConfig::Recent {
            keep_first: 1,
            max_events: 7
        }
    );
}

#[test]
fn warning_names_a_replacement_when_a_key_has_no_effect() {
    let file = "[llm]\naws_region_name = \"eu\"\nmodify_params = true\n[cli]\nvi_mode = true\n";
    let warnings = load(file, &[], Overrides::default()).unwrap().warnings;
    assert_eq!(
        warnings,
        [
            "without effect in this version: cli.vi_mode, llm.aws_region_name (for Bedrock give the base_url of a \
          LiteLLM proxy), llm.modify_params (requests always follow the provider's rules)"
        ]
    );
}

#[test]
fn delegates_are_bounded_and_have_their_own_models() {
    let file = "[llm]\nmodel = \"big\"\n[llm.small]\nmodel = \"small\"\nfor_routing = true\n[agent]\ndelegates = [\"a\", \"b\"]\n\
                [agent.a]\ndescription = \"Reads.\"\n[agent.b.model_routing]\nrouter_name = \"multimodal_router\"\n";
    let config = load(file, &[], Overrides::default()).unwrap();
    let actual = &config.agent.definition.as_ref().unwrap().delegates;
    let actual: Vec<_> = actual
        .iter()
        .map(|to| (to.name.as_str(), to.description.as_str()))
        .collect();
    assert_eq!(actual, [("a", "Reads."), ("b", "")]);
    assert!(config.team["a"].is_routed_like(&config) && !config.team["b"].is_routed_like(&config));
    assert!(
        config.team["a"].agent.delegates.is_empty(),
        "[agent] is the first one's"
    );

    let names: Vec<_> = (0..40).map(|number| format!("\"a{number}\"")).collect();
    let sections: String = (0..40)
        .map(|number| format!("[agent.a{number}]\n"))
        .collect();
    let many = format!("[agent]\ndelegates = [{}]\n{sections}", names.join(", "));
    let error = load(&many, &[], Overrides::default())
        .unwrap()
        .agent
        .definition
        .unwrap_err();
    assert_eq!(error, "agent.delegates: tasks go to at most 32 agents");
}

#[test]
fn budget_is_unlimited_when_it_is_zero() {
    let config = load(
        "[core]\nmax_budget_per_task = 0.0\n",
        &[],
        Overrides::default(),
    )
    .unwrap();
    assert_eq!(config.max_budget, None);
    let variable = [("MAX_BUDGET_PER_TASK", "0")];
    assert_eq!(
        load("", &variable, Overrides::default())
            .unwrap()
            .max_budget,
        None
    );
}

#[test]
fn environment_is_read_in_v0s_notation() {
    let variables = [
        ("SANDBOX_RUNTIME_STARTUP_ENV_VARS", "{'FOO': 'bar'}"),
        ("AGENT_DISABLED_MICROAGENTS", "['git', 'npm']"),
        (
            "MCP_STDIO_SERVERS",
            "[{'name': 'a', 'command': 'b', 'args': ['c'], 'env': 'A=1, B=2=3'}]",
        ),
        (
            "MCP_SHTTP_SERVERS",
            "[{'url': 'http://h/mcp', 'api_key': None, 'timeout': 60}]",
        ),
        ("MAX_ITERATIONS", " 7 "),
        ("JWT_SECRET", "hunter2"),
        ("SANDBOX_USER_ID", "1000"),
    ];
    let config = load("", &variables, Overrides::default()).unwrap();
    assert!(config.workspace.startup_environment.keys().eq(["FOO"]));
    assert!(config.agent.disabled_microagents.iter().eq(["git", "npm"]));
    assert_eq!(config.max_iterations, 7);
    let [program, remote] = config.mcp.servers.as_slice() else {
        panic!("{:?}", config.mcp.servers)
    };
    assert!(
        matches!(&program.transport, mcp::Transport::Sandbox(program) if program.env.keys().eq(["A", "B"]))
    );
    assert_eq!((program.secrets().len(), remote.secrets().len()), (2, 0));
    let warnings = config.warnings.join("\n");
    assert!(
        warnings.contains("core.jwt_secret, ") || warnings.contains("core.jwt_secret"),
        "{warnings}"
    );
    assert!(
        warnings.contains("sandbox.user_id (commands run as"),
        "{warnings}"
    );
    assert!(!warnings.contains("hunter2"), "{warnings}");
}

#[test]
fn suggestion_is_made_only_when_a_name_is_similar() {
    let warning = |file: &str| {
        load(file, &[], Overrides::default())
            .unwrap()
            .warnings
            .join("\n")
    };
    for (file, name) in [
        ("[core]\nmax_iteratons = 1", "max_iterations"),
        ("[llm]\napikey = \"x\"", "api_key"),
        (
            "[sandbox]\nbase_container_img = \"x\"",
            "base_container_image",
        ),
        ("[secrity]\n", "security"),
    ] {
        assert!(
            warning(file).ends_with(&format!("(did you mean {name}?)")),
            "{}",
            warning(file)
        );
    }
    for file in [
        "[core]\nbaseURL = 1",
        "[llm]\nprovider = 1",
        "[params]\n",
        "[sandbox]\nos = 1",
        "[core]\nmax = 1",
    ] {
        assert!(!warning(file).contains("did you mean"), "{}", warning(file));
    }
}

#[test]
fn search_key_of_tavily_adds_its_server() {
    let config = load(
        "[core]\nsearch_api_key = \"tvly-hunter2\"\n",
        &[],
        Overrides::default(),
    )
    .unwrap();
    let [server] = config.mcp.servers.as_slice() else {
        panic!("{:?}", config.mcp.servers)
    };
    assert!(
        matches!(&server.transport, mcp::Transport::StreamableHttp(remote) if remote.host() == "mcp.tavily.com")
    );
    assert_eq!(server.secrets().len(), 1);
    assert!(!format!("{config:?}").contains("hunter2"));
    let other = load("", &[("SEARCH_API_KEY", "other")], Overrides::default()).unwrap();
    assert_eq!(other.mcp.servers.len(), 0);
}

#[test]
fn rules_for_untrusted_files_name_keys_with_effect() {
    for (section, names, _) in keys::UNTRUSTED {
        for name in names.split(' ') {
            assert!(
                keys::find(section, name).is_some_and(|key| key.has_effect),
                "{section}.{name}"
            );
        }
    }
}
