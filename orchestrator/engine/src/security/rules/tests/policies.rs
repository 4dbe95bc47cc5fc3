//! The example policy, other actions than commands, and errors of policies.

use super::*;

#[test]
fn example_policy_allows_only_what_reads_and_prints() {
    for command in [
        "",
        "ls -la | head -n 5; cat src/main.rs | grep -rn 'fn main' 2>/dev/null >&2",
        "cd src && find . -name '*.rs' -type f | xargs -n 1 echo",
        "timeout 5 tail -n 20 log.txt; [ -f x ] || echo \"$X is missing\"",
        "echo $X > /dev/null",
        "diff -u a b; /usr/bin/stat /bin/sh; test -e x",
    ] {
        assert_eq!(risk_of(EXAMPLE, command), Low, "{command}");
    }
    for command in [
        // Not named, or writes.
        "make",
        "A=1",
        "rm x",
        "echo x > src/main.rs",
        "cat x | tee y",
        "find . -delete",
        "find . -fprint x",
        "sort -o x y",
        "sed '1e rm -rf y' f",
        "python3 -c 1",
        "git -c core.fsmonitor=./x status",
        // Runs another program.
        "flock f rm -rf y",
        "setarch -R rm -rf y",
        "parallel rm -rf ::: y",
        "find . -exec make {} +",
        "find . -exec grep x {} +",
        "./ls",
        "PATH=. ls",
        "LD_PRELOAD=./x cat y",
        "alias ls=rm; ls",
        // Other machines, also by names and numbers that do not look so.
        "curl evil",
        "curl 134744072",
        "curl http://localhost/",
        "curl -xevil.example:80 http://localhost/",
        "cat < /dev/tcp/evil.example/80",
    ] {
        let risk = risk_of(EXAMPLE, command);
        assert!([Medium, Unknown].contains(&risk), "{command}: {risk:?}");
    }
    for command in [
        "cat .ssh/id_ed25519",
        "grep -f/etc/shadow x",
        "cat /proc/self/root/etc/shadow",
        "cd /etc; cat shadow",
        "cat /proc/1/environ",
        "cd ~/.ssh && cat *",
    ] {
        let risk = risk_of(EXAMPLE, command);
        assert!([High, Unknown].contains(&risk), "{command}: {risk:?}");
    }
    let rules = SecurityRules::from_toml(EXAMPLE).unwrap();
    let risk = |action: Action| rules.assess_action(&action).risk;
    assert_eq!(risk(ReadAction::whole_file("/srv/x").into()), Low);
    assert_eq!(risk(ReadAction::whole_file("x/y").into()), Low);
    assert_eq!(risk(EditAction::new("/w/x", EditCommand::View).into()), Low);
    assert_eq!(
        risk(EditAction::new("/w/x", EditCommand::Create).into()),
        Medium
    );
}

#[test]
fn files_pages_and_tools_are_assessed() {
    let rules = SecurityRules::from_toml(&LENIENT).unwrap();
    let assess_action = |action: Action| rules.assess_action(&action);
    let assessed = assess_action(ReadAction::whole_file("/home/me/.ssh/config").into());
    assert_eq!(
        assessed,
        RiskAssessment {
            risk: High,
            reason: "keys and passwords".into()
        }
    );
    assert_eq!(
        assess_action(ReadAction::whole_file("/etc/hosts").into()).risk,
        Low
    );
    assert_eq!(
        assess_action(EditAction::new("/etc/hosts", EditCommand::View).into()).risk,
        Low
    );
    assert_eq!(
        assess_action(EditAction::new("/etc/hosts", EditCommand::Create).into()).risk,
        High
    );
    let page = |url: &str| {
        assess_action(
            BrowseAction {
                url: url.into(),
                ..Default::default()
            }
            .into(),
        )
        .risk
    };
    assert_eq!(
        (page("http://localhost:3000/"), page("https://h.example")),
        (Low, Medium)
    );
    let calls = |calls: &str| {
        assess_action(
            BrowseInteractiveAction {
                browser_actions: calls.into(),
                ..Default::default()
            }
            .into(),
        )
    };
    assert_eq!(
        calls("goto('file:///home/me/.ssh/id_rsa')").reason,
        "keys and passwords"
    );
    for spelt in [
        "file:/home/me/.ssh/k",
        "file://localhost/home/me/.ssh/k",
        "file:\\\\/home\\me\\.s\tsh/k",
    ] {
        assert_eq!(page(spelt), High, "{spelt}");
    }
    for spelt in ["https:/h.example", "https:h.example", "https:\\\\h.example"] {
        assert_eq!(page(spelt), Medium, "{spelt}");
    }
    assert_eq!(
        calls("upload_file('1', '/a/.env')").reason,
        "keys and passwords"
    );
    assert_eq!(calls("goto('https://h.example/')\nclick('1')").risk, Medium);
    assert_eq!(
        calls("noop()").reason,
        "code and tools whose doing is not in sight"
    );
    let own = "[[rule]]\nrisk = 'low'\nreason = 'ours'\nhosts = ['ours.example']\n";
    let own = SecurityRules::from_toml(&format!("otherwise = 'low'\n{own}")).unwrap();
    let assessed = |calls: &str| {
        own.assess_action(
            &BrowseInteractiveAction {
                browser_actions: calls.into(),
                ..Default::default()
            }
            .into(),
        )
    };
    assert_eq!(assessed("goto('ours.example/a')").risk, Low);
    assert_eq!(
        assessed("goto('ours.example')\ngoto('evil.example')").risk,
        Low,
        "as the policy says of what no rule names"
    );
    let within = "goto('data:text/html,<script>1</script>')";
    for unknown in [
        within,
        "click('1')",
        "goto('ours.example')\nclick('1')",
        "fly()",
    ] {
        assert_eq!(assessed(unknown).risk, Unknown, "{unknown}");
    }
    let cell: RunIpythonAction = serde_json::from_value(serde_json::json!({"code": "1"})).unwrap();
    assert_eq!(assess_action(cell.clone().into()).risk, Medium);
    assert_eq!(
        SecurityRules::from_toml("otherwise = \"low\"")
            .unwrap()
            .assess_action(&cell.into())
            .risk,
        Unknown
    );
}

#[test]
fn input_is_opaque_except_for_keys() {
    let rules = SecurityRules::from_toml(&LENIENT).unwrap();
    let typed = |text: &str| RunAction {
        command: text.into(),
        is_input: true,
        ..Default::default()
    };
    for text in ["ls", "\n", " "] {
        assert_eq!(
            rules.assess_action(&typed(text).into()).risk,
            Unknown,
            "{text:?}"
        );
    }
    assert_eq!(rules.assess_action(&typed("").into()).risk, Low);
    assert_eq!(rules.assess_action(&typed("C-c").into()).risk, Low);
    assert_eq!(
        rules.assess_action(&typed("C-c\u{3000}").into()).risk,
        Unknown
    );
}

#[test]
fn first_matching_rule_decides_for_each_target() {
    let rules = "[[rule]]\nrisk = 'low'\nreason = 'ours'\nhosts = ['*.ours.example', 'ours.example']\n\
                 [[rule]]\nrisk = 'low'\nreason = 'work'\nwrites = ['/srv/**']\n\
                 [[rule]]\nrisk = 'low'\nreason = 'fine'\ncommands = ['cat', 'curl', 'cp']\n\
                 [[rule]]\nrisk = 'high'\nreason = 'never'\nhosts = ['evil.example']\nreads = ['/secret/**']\n";
    for (command, risk) in [
        ("curl https://git.ours.example/x", Low),
        ("curl https://ours.example -o /srv/x", Low),
        ("curl https://ours.example -o /x", Unknown),
        ("curl https://ours.example https://evil.example", High),
        ("curl https://ours.example other.example", Unknown),
        ("curl https://ours.example$X/", Unknown),
        ("curl https://ours.example@evil.example/", High),
        ("curl https://OURS.example./", Low),
        ("cp a /srv/b", Low),
        ("cp -t /srv a /b", Unknown),
        ("mv a /srv/b", Unknown),
        ("cp a /srv/../b", Unknown),
        ("cat /secret/x", Low),
        ("cat x > /y", Unknown),
        ("cat x > /srv/y", Low),
        ("cp /secret/x /srv/y", Low),
        ("grep x /secret/y", High),
        ("ls", Unknown),
        // No rule names the program.
        ("x https://ours.example /srv/y", Unknown),
        ("touch /srv/y", Unknown),
        ("> /srv/y", Low),
    ] {
        assert_eq!(risk_of(rules, command), risk, "{command}");
    }
}

#[test]
fn policy_errors_name_line_and_key() {
    for (text, error) in [
        (
            "[[rule]]\nrisk = 'awful'\nreason = 'r'\n",
            "line 2: rule[0].risk: unknown variant `awful`",
        ),
        (
            "otherwise = 'low'\n[[rule]]\nreason = 'r'\n",
            "line 2: rule[0]: missing field `risk`",
        ),
        ("a = 1\n", "line 1: a: unknown field `a`"),
        (
            "[[rule]]\nrisk = 'low'\nreason = 'r'\nreads = ['']\n",
            "line 4: rule[0].reads[0]: an empty pattern",
        ),
        (
            "[[rule]]\nrisk = 'low'\nreason = 'r'\nwrites = ['/a', '[']\n",
            "line 4: rule[0].writes[1]: \"[\" is no",
        ),
        (
            "[[rule]]\nrisk = 'low'\nreason = 'r'\nactions = ['fly']\n",
            "line 4: rule[0].actions[0]: there is no action fly",
        ),
        ("otherwise = \n", "line 1: the file: "),
    ] {
        let found = SecurityRules::from_toml(text).unwrap_err().to_string();
        assert!(found.starts_with(error) && !found.contains('\n'), "{found}");
    }
}
