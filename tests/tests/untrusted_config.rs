//! Files of a clone or an agent that would widen what the user's own configuration allows.

use std::io::{Read as _, Write as _};
use std::path::Path;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};
use tests::glovebox::{CompletedRun, Home, bash, finish};

/// Configuration that touches `PWNED` on the host where its program starts.
fn host_server(home: &Home) -> String {
    let marker = home.path().join("PWNED");
    format!(
        "[[mcp.stdio_servers]]\nname = \"x\"\ncommand = \"touch\"\nargs = [{marker:?}]\nrun_in = \"host\"\n"
    )
}

fn is_started(home: &Home) -> bool {
    home.path().join("PWNED").exists()
}

fn clone_of(home: &Home, config: &str) -> std::path::PathBuf {
    home.write("clone/config.toml", config);
    home.path().join("clone")
}

fn run_in(home: &Home, folder: &Path, more: &[&str]) -> CompletedRun {
    let arguments = [&["run", "--json", "-t", "work", "--runtime", "local"], more].concat();
    home.run_in(folder, &arguments)
}

#[track_caller]
fn refused(ended: CompletedRun, parts: &[&str]) {
    let ended = ended.expect(2);
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.lines().count()),
        ("", 1),
        "{}",
        ended.stderr
    );
    for part in parts {
        assert!(ended.stderr.contains(part), "{part} in: {}", ended.stderr);
    }
}

fn system(events: &[Value]) -> &Value {
    &events
        .iter()
        .find(|event| event["action"] == "system")
        .unwrap()["args"]
}

#[test]
fn hostile_config_of_a_clone_starts_nothing() {
    let home = Home::new();
    let model = home.script(&json!([bash("touch ran"), finish()]));
    let outside = home.path().join("outside");
    for (config, key) in [
        (host_server(&home), "mcp.stdio_servers"),
        (
            "[mcp]\nshttp_servers = [\"http://127.0.0.1:1/\"]".to_owned(),
            "mcp.shttp_servers",
        ),
        (
            "[llm]\nbase_url = \"http://127.0.0.1:1\"".to_owned(),
            "llm.base_url",
        ),
        (
            "[llm]\nmodel = \"scripted:/etc/passwd\"".to_owned(),
            "llm.model",
        ),
        (
            "[llm.draft_editor]\nbase_url = \"http://127.0.0.1:1\"".to_owned(),
            "llm.draft_editor.base_url",
        ),
        (
            "[llm]\ninput_cost_per_token = 0.0".to_owned(),
            "llm.input_cost_per_token",
        ),
        (
            "[core]\nruntime = \"ssh\"\n[sandbox]\nssh_host = \"h\"".to_owned(),
            "core.runtime, sandbox.ssh_host",
        ),
        (
            "[sandbox]\nunsafe_local = true".to_owned(),
            "sandbox.unsafe_local",
        ),
        (
            "[sandbox]\nnetwork = \"host\"".to_owned(),
            "sandbox.network",
        ),
        (
            "[sandbox]\nuse_host_network = true".to_owned(),
            "sandbox.use_host_network",
        ),
        (
            "[sandbox]\nvolumes = \"/:/host\"".to_owned(),
            "sandbox.volumes",
        ),
        (
            "[sandbox]\nbase_container_image = \"evil\"".to_owned(),
            "sandbox.base_container_image",
        ),
        (
            "[sandbox]\nremote_server_url = \"http://127.0.0.1:1\"".to_owned(),
            "sandbox.remote_server_url",
        ),
        (
            "[sandbox]\nmemory_limit = \"900g\"".to_owned(),
            "sandbox.memory_limit",
        ),
        ("[secrets]\nTOKEN = \"x\"".to_owned(), "secrets"),
        (
            "[security]\nconfirmation_policy = \"never\"".to_owned(),
            "security.confirmation_policy",
        ),
        (
            "[security]\nsecurity_analyzer = \"llm\"".to_owned(),
            "security.security_analyzer",
        ),
        (
            format!("[llm]\nlog_completions = true\nlog_completions_folder = {outside:?}"),
            "llm.log_completions_folder",
        ),
        (
            format!("[core]\nsave_trajectory_path = {outside:?}"),
            "core.save_trajectory_path",
        ),
        (
            format!("[core]\nfile_store_path = {outside:?}"),
            "core.file_store_path",
        ),
        (
            format!("[core]\nworkspace_base = {outside:?}"),
            "core.workspace_base",
        ),
        (
            "[core]\nreplay_trajectory_path = \"t.json\"".to_owned(),
            "core.replay_trajectory_path",
        ),
        (
            "[core]\nmax_iterations = 501".to_owned(),
            "core.max_iterations",
        ),
        (
            "[core]\nmax_budget_per_task = 0.0".to_owned(),
            "core.max_budget_per_task",
        ),
        (
            "[core]\ndefault_agent = \"/etc/passwd\"".to_owned(),
            "core.default_agent",
        ),
        (
            "[agent]\nsystem_prompt_filename = \"../secret\"".to_owned(),
            "agent.system_prompt_filename",
        ),
        (
            "[agent.CodeActAgent]\nenable_cmd = true".to_owned(),
            "agent.CodeActAgent.enable_cmd",
        ),
    ] {
        let clone = clone_of(&home, &config);
        refused(
            run_in(&home, &clone, &["-l", &model]),
            &["clone/config.toml is not trusted", key, "glovebox trust"],
        );
        refused(
            home.run_in(&clone, &["exec", "--runtime", "local", "--", "true"]),
            &[key],
        );
        // A command that runs nothing ignores it.
        let list = home
            .run_in(&clone, &["conversations", "ls", "--json"])
            .expect(0);
        assert_eq!(list.stdout.trim(), "[]", "{key}");
        assert!(list.stderr.contains(key), "{}", list.stderr);
    }
    assert!(!is_started(&home) && !outside.exists());
    home.assert_nothing_runs();
}

#[test]
fn file_is_trusted_until_one_byte_changes() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let clone = clone_of(&home, &host_server(&home));
    home.run_in(&clone, &["trust"]).expect(0);
    run_in(&home, &clone, &["-l", &model]).expect(0);
    assert!(is_started(&home));
    let list = home.run_in(&clone, &["trust", "--list"]).expect(0).stdout;
    assert_eq!(
        list,
        format!(
            "trusted\t{}\n",
            clone.join("config.toml").canonicalize().unwrap().display()
        )
    );

    std::fs::remove_file(home.path().join("PWNED")).unwrap();
    clone_of(&home, &format!("{}#", host_server(&home)));
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["mcp.stdio_servers"],
    );
    // After a denial the harmless keys are used.
    clone_of(
        &home,
        &format!("[agent]\nenable_think = false\n{}", host_server(&home)),
    );
    home.run_in(&clone, &["trust", "--deny"]).expect(0);
    let ended = run_in(&home, &clone, &["-l", &model]).expect(0);
    assert!(
        ended
            .stderr
            .contains("these keys have no effect: mcp.stdio_servers"),
        "{}",
        ended.stderr
    );
    assert!(
        !system(&ended.events())["tools"]
            .to_string()
            .contains("\"think\"")
    );
    home.run_in(&clone, &["trust", "--revoke"]).expect(0);
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["mcp.stdio_servers"],
    );
    assert!(!is_started(&home));
    home.assert_nothing_runs();
}

#[test]
fn file_that_only_narrows_needs_no_trust() {
    let home = Home::new();
    home.write(
        ".glovebox/config.toml",
        "[core]\nmax_iterations = 5\n[agent]\nenable_jupyter = false\n",
    );
    let model = home.script(&json!([bash("true"), finish()]));
    home.write("clone/prompt.md", "Be careful.");
    let config = "[core]\nmax_iterations = 1\nenable_browser = false\n[agent]\nenable_think = false\n\
                  system_prompt_filename = \"prompt.md\"\n[condenser]\ntype = \"recent\"\nmax_events = 50\n";
    let clone = clone_of(&home, config);
    let ended = run_in(&home, &clone, &["-l", &model]).expect(3);
    assert!(!ended.stderr.contains("trust"), "{}", ended.stderr);
    let events = ended.events();
    assert_eq!(system(&events)["content"], "Be careful.");
    // It does not replace a prompt of the user either.
    home.write(".glovebox/own.md", "Be very careful.");
    let own = "[core]\nmax_iterations = 5\n[agent]\nsystem_prompt_filename = \"own.md\"\n";
    home.write(".glovebox/config.toml", own);
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["sets agent.system_prompt_filename:"],
    );
    home.write(".glovebox/config.toml", "[core]\nmax_iterations = 5\n");
    // A link out of the folder is not followed.
    std::fs::remove_file(clone.join("prompt.md")).unwrap();
    home.write("id_rsa", "KEY");
    std::os::unix::fs::symlink("../id_rsa", clone.join("prompt.md")).unwrap();
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["agent.system_prompt_filename: cannot read"],
    );
    home.assert_nothing_runs();
}

#[test]
fn config_that_an_agent_wrote_is_refused_at_resume() {
    let home = Home::new();
    let workspace = home.workspace();
    let config = host_server(&home);
    let model = home.script(&json!([
        bash(&format!("cat > config.toml <<'END'\n{config}END")),
        finish()
    ]));
    run_in(&home, &workspace, &["-l", &model, "-d", ".", "-i", "1"]).expect(3);
    assert_eq!(
        std::fs::read_to_string(workspace.join("config.toml")).unwrap(),
        config
    );
    let id = &home.conversations()[0];
    refused(
        home.run_in(&workspace, &["resume", id, "--json"]),
        &["work/config.toml is not trusted"],
    );
    refused(
        run_in(&home, &workspace, &["-l", &model, "-d", "."]),
        &["mcp.stdio_servers"],
    );
    // Started from elsewhere, the program does not read the file.
    home.run(&["resume", id, "--json"]).expect(0);
    assert!(!is_started(&home));
    home.assert_nothing_runs();
}

#[test]
fn resume_is_refused_when_a_link_replaced_the_workspace() {
    let home = Home::new();
    home.write("other/readme", "");
    home.write("outer/project/readme", "");
    let model = home.script(&json!([bash("touch made"), finish()]));
    let resume = |id: &str| home.run(&["resume", id, "--json", "-t", "go on"]);
    let part = "/other: start a new conversation";
    // In a given folder, and in the conversation's own.
    for named in [&["-d", "outer/project"][..], &[]] {
        run_in(
            &home,
            home.path(),
            &[&["-l", &model, "-i", "1"], named].concat(),
        )
        .expect(3);
        let id = &home.conversations()[0];
        let workspace = named
            .get(1)
            .map_or(format!(".glovebox/workspaces/{id}"), ToString::to_string);
        let workspace = home.path().join(workspace);
        let fork = home.run(&["conversations", "fork", id]).expect(0).stdout;
        std::fs::rename(&workspace, home.path().join(format!("moved-{id}"))).unwrap();
        std::os::unix::fs::symlink(home.path().join("other"), &workspace).unwrap();
        refused(resume(id), &["has been replaced by a link to", part]);
        match named {
            [] => refused(home.run(&["conversations", "fork", id]), &[part]),
            _ => refused(resume(fork.trim()), &[part]),
        }
    }
    assert!(!home.path().join("other/made").exists());
    home.assert_nothing_runs();
}

#[test]
fn named_config_in_the_workspace_needs_trust() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write("work/own.toml", "[agent]\nenable_think = false\n");
    let arguments = ["-l", &model, "--config-file", "work/own.toml", "-d", "work"];
    refused(
        run_in(&home, home.path(), &arguments),
        &["work/own.toml is not trusted", "the sandbox can write"],
    );
    home.run(&["trust", "work/own.toml"]).expect(0);
    run_in(&home, home.path(), &arguments).expect(0);
    run_in(
        &home,
        home.path(),
        &["-l", &model, "--config-file", "work/own.toml"],
    )
    .expect(0);
    home.assert_nothing_runs();
}

#[test]
fn named_config_that_links_out_of_the_workspace_is_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let own = home.write("own/c.toml", "[agent]\nenable_think = false\n");
    home.write("own/agent.md", "An agent.");
    home.run(&["trust", "own/c.toml"]).expect(0);
    home.write("work/sub/readme", "");
    std::os::unix::fs::symlink(&own, home.path().join("work/c.toml")).unwrap();
    std::os::unix::fs::symlink("../../own", home.path().join("work/sub/own")).unwrap();
    for named in ["work/c.toml", "work/sub/own/c.toml", "work/sub/../c.toml"] {
        let arguments = ["-l", &model, "--config-file", named, "-d", "work"];
        refused(
            run_in(&home, home.path(), &arguments),
            &["own/c.toml", "link in", "work, which the sandbox can write"],
        );
    }
    home.run(&["trust", "own/agent.md"]).expect(0);
    let arguments = ["-l", &model, "-c", "work/sub/own/agent.md", "-d", "work"];
    refused(
        run_in(&home, home.path(), &arguments),
        &["own/agent.md", "link in"],
    );
    // Here the workspace chooses neither.
    let arguments = [
        "-l",
        &model,
        "--config-file",
        "../own/c.toml",
        "-c",
        "../own/agent.md",
        "-d",
        ".",
    ];
    run_in(&home, &home.workspace(), &arguments).expect(0);
    home.assert_nothing_runs();
}

#[test]
fn volume_that_a_link_in_the_workspace_leads_to_is_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write("work/data/readme", "");
    home.write("other/readme", "");
    for mode in ["rw", "ro"] {
        let source = home.path().join("work/data");
        let volumes = format!(
            "[sandbox]\nvolumes = \"{}:/data:{mode}\"\n",
            source.display()
        );
        home.write(".glovebox/config.toml", volumes);
        run_in(&home, home.path(), &["-l", &model, "-d", "work"]).expect(0);
        std::fs::rename(&source, home.path().join("kept")).unwrap();
        std::os::unix::fs::symlink("../other", &source).unwrap();
        refused(
            run_in(&home, home.path(), &["-l", &model, "-d", "work"]),
            &["work/data: it is a link in "],
        );
        std::fs::remove_file(&source).unwrap();
        std::fs::rename(home.path().join("kept"), &source).unwrap();
    }
    home.assert_nothing_runs();
}

#[test]
fn own_agents_that_the_sandbox_can_write_need_trust() {
    let home = Home::new();
    let model = home.script(&json!([bash("cat agents/helper.md"), finish()]));
    home.write("project/agents/helper.md", "Helps.");
    home.write(
        ".glovebox/config.toml",
        "[agent.lead]\ndelegates = [\"helper\"]\n",
    );
    std::os::unix::fs::symlink("../project/agents", home.path().join(".glovebox/agents")).unwrap();
    // As the agent and as a delegate.
    let arguments = |agent| ["-l", &model, "-c", agent, "-d", "project"];
    for agent in ["helper", "lead"] {
        let parts = [
            "agents/helper.md is not trusted",
            "configuration that the sandbox can write",
        ];
        refused(run_in(&home, home.path(), &arguments(agent)), &parts);
    }
    home.run(&["trust", "project/agents/helper.md"]).expect(0);
    for agent in ["helper", "lead"] {
        let events = run_in(&home, home.path(), &arguments(agent))
            .expect(0)
            .events();
        // It has no key, so it is not hidden from the sandbox.
        assert!(events.iter().any(|event| {
            event["content"]
                .as_str()
                .is_some_and(|text| text.starts_with("Helps."))
        }));
    }
    home.assert_nothing_runs();
}

#[test]
fn resume_is_refused_when_a_link_replaced_the_agent_file() {
    let home = Home::new();
    let secret = home.write("secret.txt", "the key of the host");
    let file = home.write("work/.glovebox/agents/helper.md", "Helps.");
    let model = home.script(&json!([bash("true"), finish()]));
    run_in(
        &home,
        &home.workspace(),
        &["-l", &model, "-c", "helper", "-d", ".", "-i", "1"],
    )
    .expect(3);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(secret, &file).unwrap();
    let id = &home.conversations()[0];
    refused(
        home.run(&["resume", id, "--json"]),
        &["helper.md has been replaced by a link to"],
    );
    home.assert_nothing_runs();
}

#[test]
fn default_agent_of_a_folder_brings_back_no_disabled_tool() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let agents = [
        "DummyAgent",
        "BrowsingAgent",
        "VisualBrowsingAgent",
        "LocAgent",
        "ReadOnlyAgent",
    ];
    for (own, refused_agents) in [
        (
            "[agent]\nenable_cmd = false\nenable_browsing = false\n",
            &agents[..],
        ),
        (
            "[agent.CodeActAgent]\nenable_cmd = false\nenable_browsing = false\n",
            &agents,
        ),
        ("[agent]\nenable_browsing = false\n", &agents[..3]),
        ("", &agents[..1]),
    ] {
        home.write(".glovebox/config.toml", own);
        for agent in agents.iter().chain(&["CodeActAgent"]) {
            let clone = clone_of(&home, &format!("[core]\ndefault_agent = \"{agent}\"\n"));
            let list = home.run_in(&clone, &["conversations", "ls"]).expect(0);
            let is_refused = list.stderr.contains("sets core.default_agent");
            assert_eq!(
                is_refused,
                refused_agents.contains(agent),
                "{own}{agent}: {}",
                list.stderr
            );
        }
    }
    clone_of(&home, "[core]\ndefault_agent = \"DummyAgent\"\n");
    refused(
        run_in(&home, &home.path().join("clone"), &["-l", &model]),
        &["core.default_agent"],
    );
    // Harmless tools stay off too.
    home.write(
        ".glovebox/config.toml",
        "[agent.CodeActAgent]\nenable_think = false\n",
    );
    for section in ["agent.CodeActAgent", "agent"] {
        let clone = clone_of(&home, &format!("[{section}]\nenable_think = true\n"));
        refused(
            run_in(&home, &clone, &["-l", &model]),
            &[&format!("sets {section}.enable_think")],
        );
    }
}

#[test]
fn agent_file_of_a_folder_replaces_no_section_of_the_users() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write("prompt.md", "The user's own.");
    let section = |key| {
        format!(
            "[agent.helper]\n{key} = \"{}\"\n",
            home.path().join("prompt.md").display()
        )
    };
    home.write(".glovebox/config.toml", section("system_prompt_filename"));
    home.write("clone/.glovebox/agents/helper.md", "Of the clone.");
    let prompt = || {
        let ended = run_in(
            &home,
            &home.path().join("clone"),
            &["-l", &model, "-c", "helper"],
        )
        .expect(0);
        system(&ended.events())["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(prompt(), "The user's own.");
    home.write(".glovebox/config.toml", "");
    assert_eq!(prompt(), "Of the clone.");
    home.assert_nothing_runs();
}

#[test]
fn trust_command_works_when_the_config_is_broken() {
    let home = Home::new();
    for (config, problem) in [
        ("[core\n", "config.toml:1: "),
        (
            "[core]\nmax_iterations = \"x\"\n",
            "core.max_iterations must be",
        ),
        ("[condenser]\ntype = \"unknown\"\n", "condenser: "),
    ] {
        let clone = clone_of(&home, config);
        for arguments in [
            &["trust", "--deny"][..],
            &["trust", "--list"],
            &["trust", "--revoke"],
            &["trust"],
            &["trust", "--revoke"],
        ] {
            home.run_in(&clone, arguments).expect(0);
        }
        let list = home
            .run_in(&clone, &["conversations", "ls", "--json"])
            .expect(0);
        assert_eq!(list.stdout.trim(), "[]");
        assert!(
            list.stderr.contains(problem) && list.stderr.contains("ignored"),
            "{}",
            list.stderr
        );
        let ended = run_in(&home, &clone, &["-l", "scripted:none"]).expect(2);
        assert!(ended.stderr.contains(problem), "{}", ended.stderr);
    }
}

#[test]
fn agent_file_of_a_folder_chooses_no_model() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(
        ".glovebox/config.toml",
        "[llm.other]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1\"\n[agent]\nenable_cmd = false\n",
    );
    let clone = home.path().join("clone");
    let agent = |fields: &str| {
        home.write(
            "clone/.glovebox/agents/helper.md",
            format!("---\n{fields}\n---\nOf the clone."),
        );
    };
    for (fields, part) in [
        ("model: other", "sets model"),
        ("delegates: [CodeActAgent]", "sets delegates"),
        ("tools: [execute_bash, finish]", "sets tools"),
    ] {
        agent(fields);
        refused(
            run_in(&home, &clone, &["-l", &model, "-c", "helper"]),
            &["agents/helper.md is not trusted", part],
        );
    }
    agent("tools: [finish]");
    let events = run_in(&home, &clone, &["-l", &model, "-c", "helper"])
        .expect(0)
        .events();
    assert_eq!(system(&events)["content"], "Of the clone.");
    // A file of the user is not replaced.
    home.write(
        ".glovebox/agents/helper.md",
        "---\ntools: [finish]\n---\nThe user's own.",
    );
    let events = run_in(&home, &clone, &["-l", &model, "-c", "helper"])
        .expect(0)
        .events();
    assert_eq!(system(&events)["content"], "The user's own.");
    home.assert_nothing_runs();
}

#[test]
fn agent_file_that_links_out_of_the_folder_is_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let secret = home.write("secret.txt", "the key of the host");
    home.write("clone/.glovebox/agents/other.md", "Of the clone.");
    std::os::unix::fs::symlink(secret, home.path().join("clone/.glovebox/agents/leak.md")).unwrap();
    let ended = run_in(
        &home,
        &home.path().join("clone"),
        &["-l", &model, "-c", "leak"],
    )
    .expect(2);
    assert!(
        ended
            .stderr
            .contains("cannot read .glovebox/agents/leak.md"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stdout.contains("the key of the host"));
}

#[test]
fn configuration_that_links_out_of_the_folder_is_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(
        "good/config.toml",
        "[sandbox]\nruntime_startup_env_vars = { A = \"1\" }\n",
    );
    home.run_in(&home.path().join("good"), &["trust", "config.toml"])
        .expect(0);
    home.write("evil/readme", "");
    std::os::unix::fs::symlink("../good/config.toml", home.path().join("evil/config.toml"))
        .unwrap();
    let ended = run_in(&home, &home.path().join("evil"), &["-l", &model]).expect(2);
    assert!(ended.stderr.contains("config.toml"), "{}", ended.stderr);
}

#[test]
fn policy_of_a_folder_needs_trust() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write(
        ".glovebox/config.toml",
        "[security]\nsecurity_analyzer = \"policy.toml\"\n",
    );
    let policy = include_str!("../../orchestrator/security-policy.toml");
    home.write("clone/policy.toml", policy);
    let clone = home.path().join("clone");
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["clone/policy.toml is not trusted", "is a policy"],
    );
    home.run_in(&clone, &["trust", "policy.toml"]).expect(0);
    run_in(&home, &clone, &["-l", &model]).expect(0);
    home.run_in(&clone, &["trust", "--deny", "policy.toml"])
        .expect(0);
    refused(
        run_in(&home, &clone, &["-l", &model]),
        &["cannot read the policy policy.toml: denied"],
    );
    // A link in the folder to a policy elsewhere is the folder's choice too.
    home.write("clone/below/readme", "");
    home.write("other/policy.toml", policy);
    std::os::unix::fs::symlink("../../other/policy.toml", clone.join("below/policy.toml")).unwrap();
    refused(
        run_in(&home, &clone.join("below"), &["-l", &model]),
        &["other/policy.toml is not trusted", "is a policy"],
    );
    home.assert_nothing_runs();
}

#[test]
fn home_is_no_workspace_without_the_flag() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    for folder in [".", "/", ".glovebox", "/usr", "/etc"] {
        home.write(".glovebox/config.toml", "");
        refused(
            run_in(&home, home.path(), &["-l", &model, "-d", folder]),
            &["--unsafe-directory"],
        );
        let create = ["sandbox", "create", "--runtime", "local", "-d", folder];
        refused(home.run(&create), &["--unsafe-directory"]);
    }
    let volumes = format!("[sandbox]\nvolumes = \"{}:/data\"\n", home.path().display());
    home.write(".glovebox/config.toml", volumes);
    refused(
        run_in(&home, home.path(), &["-l", &model, "-d", "work"]),
        &["--unsafe-directory"],
    );
    home.assert_nothing_runs();
}

#[test]
fn endless_and_huge_input_files_are_refused() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let too_long = "longer than 1048576 bytes";
    refused(
        home.run(&["run", "-t", "x", "--config-file", "/dev/zero"]),
        &["cannot read /dev/zero", too_long],
    );
    refused(
        home.run(&["run", "-l", &model, "-f", "/dev/zero"]),
        &["the task in /dev/zero", too_long],
    );
    refused(
        home.run(&["replay", "/dev/zero"]),
        &["/dev/zero", "longer than 268435456 bytes"],
    );
    refused(
        home.run(&["run", "-t", "x", "-l", "scripted:/dev/zero"]),
        &["/dev/zero", "longer than"],
    );
    refused(
        home.run(&["run", "-t", "x", "--secret", "A=@/dev/zero"]),
        &["/dev/zero", too_long],
    );
    let keys = home
        .run(&["sandbox-host", "--keys", "/dev/zero"])
        .expect(2)
        .stderr;
    assert!(
        keys.contains("cannot read the keys in /dev/zero") && keys.contains(too_long),
        "{keys}"
    );
    home.write("clone/huge.md", vec![b'x'; 300_000]);
    refused(
        run_in(&home, home.path(), &["-l", &model, "-c", "clone/huge.md"]),
        &["huge.md", "longer than 262144"],
    );
    let unknown: String = (0..80_000)
        .map(|number| format!("key{number}=1\n"))
        .collect();
    let own = home.write("own.toml", format!("[llm]\n{unknown}"));
    let ended = home
        .run(&[
            "conversations",
            "ls",
            "--config-file",
            own.to_str().unwrap(),
        ])
        .expect(0);
    assert_eq!(ended.stderr.lines().count(), 21, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("79980 more warnings"),
        "{}",
        ended.stderr
    );
}

#[test]
fn fifo_is_refused_wherever_a_file_is_named() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    home.write("calls/readme", "");
    for fifo in ["fifo", "calls/000001.json"] {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, home.path().join(fifo), mode).unwrap();
    }
    let problem = "not a regular file";
    for named in [
        &["-l", "scripted:fifo"][..],
        &["-l", &model, "--image-file", "fifo"],
        &["-l", &model, "--config-file", "fifo"],
        &["-l", &model, "--secret", "A=@fifo"],
        &["-l", &model, "-c", "./fifo"],
        &["-l", &model, "--replay", "calls"],
    ] {
        refused(run_in(&home, home.path(), named), &[problem]);
    }
    refused(home.run(&["run", "-l", &model, "-f", "fifo"]), &[problem]);
    refused(home.run(&["replay", "fifo"]), &[problem]);
    refused(home.run(&["trust", "fifo"]), &[problem]);
    assert!(
        home.run(&["sandbox-host", "--keys", "fifo"])
            .expect(2)
            .stderr
            .contains(problem)
    );
    home.assert_nothing_runs();
}

#[test]
fn question_at_a_terminal_is_asked_once() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let clone = clone_of(&home, &host_server(&home));
    let answered = |answer: &str| {
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let program = home.glovebox(&["run", "-t", "x", "-l", &model, "--runtime", "local"]);
        let mut command = CommandBuilder::new(program.get_program());
        command.args(program.get_args());
        command.cwd(&clone);
        command.env_clear();
        program
            .get_envs()
            .for_each(|(name, value)| command.env(name, value.unwrap()));
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let (mut reader, mut writer) = (
            pair.master.try_clone_reader().unwrap(),
            pair.master.take_writer().unwrap(),
        );
        let (mut seen, mut is_answered, mut piece) = (String::new(), false, [0; 4096]);
        // The end of a terminal is read as an error.
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            seen.push_str(&String::from_utf8_lossy(&piece[..length]));
            if !is_answered && seen.contains("to cancel: ") {
                writer.write_all(format!("{answer}\r").as_bytes()).unwrap();
                is_answered = true;
            }
        }
        (is_answered, child.wait().unwrap().exit_code(), seen)
    };
    let (is_asked, code, seen) = answered("");
    assert!(
        is_asked && code == 2 && seen.contains("sets mcp.stdio_servers"),
        "{code}: {seen}"
    );
    let (is_asked, code, seen) = answered("n");
    assert!(
        is_asked && code == 0 && !is_started(&home),
        "{code}: {seen}"
    );
    home.run_in(&clone, &["trust", "--revoke"]).expect(0);
    let (is_asked, code, seen) = answered("y");
    assert!(is_asked && code == 0 && is_started(&home), "{code}: {seen}");
    let (is_asked, code, seen) = answered("n");
    assert!(!is_asked && code == 0, "{code}: {seen}");
    home.assert_nothing_runs();
}

#[test]
fn config_of_another_program_is_refused_with_a_way_out() {
    let home = Home::new();
    let model = home.script(&json!([finish()]));
    let folder = clone_of(&home, "baseURL = {{ site }}\n");
    let refusal = run_in(&home, &folder, &["-l", &model]);
    refused(
        refusal,
        &["config.toml:1: ", "another program? --config-file FILE"],
    );
    home.write("own.toml", "");
    let own = home.path().join("own.toml");
    let own = own.to_str().unwrap();
    run_in(&home, &folder, &["-l", &model, "--config-file", own]).expect(0);
}
