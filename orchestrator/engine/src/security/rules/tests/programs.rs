//! Rules that lower the risk apply only to programs that shells certainly run.

use super::*;

#[test]
fn rules_that_lower_the_risk_need_a_certain_program() {
    for (command, risk) in [
        ("echo x", Low),
        ("cat <<'EOF' && echo $X\nx\nEOF", Low),
        ("/bin/echo x; /usr/bin/cat y", Low),
        ("LANG=C LC_ALL=C cat x", Low),
        ("timeout 5 cat x | xargs -I{} echo {}", Low),
        ("find . -name x -exec cat {} \\; -exec echo {} +", Low),
        (
            "export LANG=C; while read -r l; do echo \"$l\"; done; [ -n \"$X\" ]",
            Low,
        ),
        ("./ours; /opt/a/theirs", Low),
        // Files of the workspace.
        ("./echo x", High),
        ("bin/echo x", High),
        ("~/echo x", High),
        ("/bin/../tmp/echo x", High),
        ("/tmp/ours x", High),
        ("./env echo x", High),
        // Variables.
        ("PATH=. cat x", High),
        ("LD_PRELOAD=./x cat x", High),
        ("LANG=C PATH+=:. cat x", High),
        ("PATH=. nice cat x", High),
        ("env PATH=. cat x", High),
        ("sudo PATH=. cat x", High),
        ("PATH=. ./ours", High),
        ("export PATH=.; cat x", High),
        ("export -- PATH=.", High),
        ("export $X; cat x", High),
        ("read PATH < x; cat x", High),
        ("printf -v PATH .; cat x", High),
        ("hash -p ./x cat; cat x", High),
        ("alias cat=./x\ncat x", High),
        ("test 'a[$(x)]' || echo x", Unknown),
        ("[ -v $X ]", Unknown),
        ("'LANG=.' cat x", Unknown),
        // Definitions.
        ("cat() { x; }; cat", Unknown),
        // Wrappers.
        ("env --split-string=x cat", Unknown),
        ("xargs -In x echo", Unknown),
        ("xargs -In x {} echo", Unknown),
        ("xargs -in x echo", Unknown),
        ("xargs -I echo echo x", Unknown),
        ("xargs -I{} {} x", Unknown),
        ("nice -n5 x echo", High),
        ("timeout -sINT 5 x echo", High),
        ("timeout $X echo x", Unknown),
        ("bash x -c 'echo x'", Unknown),
        ("bash --rcfile x -ic 'echo x'", Unknown),
        ("bash -c -e 'x' 'echo x'", High),
        ("find . -exec echo {} \\; -exec x {} \\;", High),
        ("find . -delete -exec echo {} +", High),
        ("find $X -exec echo {} +", High),
    ] {
        assert_eq!(risk_of(PRINTING, command), risk, "{command:?}");
    }
}

/// The value of `$x` may be an option, a name, or several words.
#[test]
fn builtin_is_not_low_when_its_options_are_uncertain() {
    for (command, risk) in [
        // `test` evaluates subscripts after `-v`.
        ("for x in '-v a[$(pwned)]'; do test $x; done", Unknown),
        ("for x in '-v a[$(pwned)]'; do [ $x ]; done", Unknown),
        ("[ \"$@\" ]", Unknown),
        ("[ -n $x ]", Unknown),
        ("[ \"$x\" 'a[1]' ]", Unknown),
        ("[ ! \"$x\" \"$y\" ]", Unknown),
        ("test -n \"$x\" -a \"$y\" z", Unknown),
        ("[ -v \"$x\" ]", Unknown),
        ("for x in 'a[$(pwned)]'; do test -v 'b[x]'; done", Unknown),
        (
            "[ -n \"$x\" ]; [ ! -e \"$x\" ]; [ \"$x\" = y ]; test \"$x\"",
            Low,
        ),
        (
            "[ $? -eq 0 ]; [ $# = 1 ]; [ \"$x\" -gt 1 ]; [ ! \"$x\" != '[' ]",
            Low,
        ),
        // `printf` assigns with `-v` and `%n`.
        ("for x in -vPATH; do printf \"$x\" .; done; cat y", Unknown),
        (
            "for x in '-va[$(pwned)]'; do printf \"$x\" .; done",
            Unknown,
        ),
        ("printf $x -v PATH .; cat y", Unknown),
        ("printf -$x .", Unknown),
        ("printf -v $x .", Unknown),
        ("for x in %n; do printf \"a$x\" PATH; cat y; done", Unknown),
        (
            "for x in %n; do printf -- \"$x\" PATH; cat y; done",
            Unknown,
        ),
        ("printf a%n PATH; cat y", High),
        ("printf 'a%-5.*ln' 3 PATH; cat y", High),
        (
            "printf '%s %d\\n' $x \"$y\"; printf -- \"$x\"; printf \"a $x\"",
            Low,
        ),
        // Names and values of declarations.
        ("for x in 'A PATH'; do export LC_$x=.; cat y; done", High),
        ("export LANG$x; cat y", High),
        ("export LANG=$x; cat y", High),
        (
            "for x in 'C PATH=.'; do 'export' LANG=$x; cat y; done",
            High,
        ),
        ("export LANG=\"$x\" LC_ALL=C; cat y", Low),
        ("readonly $x", High),
        ("declare \"$x\"", Unknown),
        ("local $x", Unknown),
        ("declare LC_$x=.", Unknown),
        (
            "for x in 'a[$(pwned)]'; do declare -i LANG=x; done",
            Unknown,
        ),
        ("declare 'LC_A[x]=1'", Unknown),
        // Others that assign or evaluate.
        ("for x in -k; do set $x; cat y PATH=.; done", High),
        ("set -$x; cat y", High),
        ("set -e -- $x; cat y", Low),
        ("shopt $x; cat y", High),
        ("shopt -so keyword; cat y PATH=.", High),
        ("bash -o keyword -c 'cat y PATH=.'", Unknown),
        ("wait $x", Unknown),
        ("wait \"$x\"", Unknown),
        ("wait -np PATH; cat y", High),
        ("read $x", Unknown),
        ("for x in 'a[$(pwned)]'; do read 'b[x]'; done", Unknown),
        ("mapfile $x", Unknown),
        ("getopts a $x", Unknown),
        ("unset $x", Unknown),
        ("for x in 'a[$(pwned)]'; do let x; done", Unknown),
        ("let \"$x\"", Unknown),
        ("jobs -x pwned", Unknown),
        ("jobs $x", Unknown),
        ("jobs -l; wait; read -r line; unset x", Low),
        // The number of a descriptor becomes the value.
        ("echo {PATH}<&1; cat x", Unknown),
    ] {
        assert_eq!(risk_of(PRINTING, command), risk, "{command:?}");
    }
}

/// In zsh, a loop over `path` sets `PATH`.
#[test]
fn text_is_opaque_when_another_shell_runs_it() {
    let rules = PRINTING.replace("otherwise = 'high'", "otherwise = 'low'");
    for shell in ["zsh", "ksh", "/bin/mksh", "fish", "yash", "csh", "rbash"] {
        for text in ["for path in .; do cat x; done", "cat x"] {
            let command = format!("{shell} -c '{text}'");
            assert_eq!(risk_of(&rules, &command), Unknown, "{command}");
        }
    }
    for shell in [
        "sh",
        "bash",
        "/bin/dash",
        "ash",
        "busybox sh",
        "busybox ash",
    ] {
        assert_eq!(
            risk_of(PRINTING, &format!("{shell} -c 'cat x'")),
            Low,
            "{shell}"
        );
        assert_eq!(
            risk_of(PRINTING, &format!("{shell} -c 'pwned'")),
            High,
            "{shell}"
        );
    }
}

/// Fragments of shell texts. `pwned` is the only program that is not harmless.
const FRAGMENTS: [&str; 76] = [
    "echo",
    "echo ",
    "cat ",
    "true",
    ":",
    " pwned",
    "pwned",
    "\npwned",
    "; pwned",
    "(pwned)",
    "{ pwned; }",
    " x",
    "\n",
    "\n",
    "\n",
    " ",
    " ",
    "\t",
    ";",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "!",
    "#",
    " #",
    "\\",
    "\\\n",
    "\\\n",
    " \\\n",
    "$",
    "$(",
    "`",
    "(",
    ")",
    ")",
    "{",
    "}",
    "${x",
    "${x:-",
    "$\"",
    "$'",
    "\"",
    "\"",
    "'",
    "'",
    "<<EOF",
    "<<EOF\n",
    "<<-EOF\n",
    "<<'EOF'\n",
    "<<E\"O\"F\n",
    "EOF\n",
    "\nEOF\n",
    "\tEOF\n",
    "\nEOF",
    "<<<",
    "<(",
    ">(",
    "$((",
    "$[",
    "[[ ",
    "]]",
    "case x in x) ",
    " esac",
    "if ",
    "; then ",
    "; fi",
    "for x in a; do ",
    "; done",
    "./cat",
    "PATH=. ",
    "time ",
    "eval ",
    "export PATH=.; ",
    "~",
];

/// Fragments of a here-document and of the text after it. Few, so that most orders are tried.
const HEREDOC_FRAGMENTS: [&str; 7] = [
    "EOF\n",
    "\tEOF\n",
    "x\\\n",
    "$\\\n",
    "(pwned)\n",
    "echo '\n",
    "pwned #'\n",
];

/// Builtins that may assign or evaluate their arguments.
const BUILTINS: [&str; 20] = [
    "test ",
    "test -",
    "[ ",
    "[ ! ",
    "printf ",
    "printf -",
    "printf -- ",
    "export ",
    "'export' ",
    "declare ",
    "'declare' ",
    "readonly ",
    "read ",
    "true & wait ",
    "set ",
    "unset ",
    "let ",
    "mapfile ",
    "jobs ",
    "echo ",
];

/// Values of `x` that are dangerous as an argument.
const VALUES: [&str; 16] = [
    "-v",
    "'-v a[$(pwned)]'",
    "'-va[$(pwned)]'",
    "'a[$(pwned)]'",
    "'a[$(pwned)]=1'",
    "-vPATH",
    "'-v PATH .'",
    "PATH",
    "PATH=.",
    "'A PATH=.'",
    "'A PATH'",
    "-k",
    "'-n -p PATH'",
    "'-x pwned'",
    "'a%n'",
    "n",
];

/// Arguments of builtins, and parts of them.
const ARGUMENTS: [&str; 24] = [
    "$x",
    "$x",
    "$x",
    " $x",
    "\"$x\"",
    " \"$x\"",
    "\"$@\"",
    "-v ",
    "-n ",
    " = ",
    " -a ",
    "x",
    " x",
    "'a[x]'",
    "a%",
    "LANG=",
    "LC_",
    "PATH",
    " PATH=.",
    " .",
    " ]",
    " ]",
    " {PATH}<&1",
    "{x}>&1",
];

/// Generates loops that run a builtin with the variable `x`.
fn loops() -> impl Strategy<Value = String> {
    let arguments = prop::collection::vec(prop::sample::select(&ARGUMENTS[..]), 1..=4);
    let builtin = prop::sample::select(&BUILTINS[..]);
    (prop::sample::select(&VALUES[..]), builtin, arguments).prop_map(
        |(value, builtin, arguments)| {
            format!(
                "for x in {value}; do {builtin}{}; cat y PATH=.; done",
                arguments.concat()
            )
        },
    )
}

/// Generates texts of up to `max_count` fragments.
fn fragments(
    start: &'static str,
    fragments: &'static [&'static str],
    max_count: usize,
) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(fragments), 1..=max_count)
        .prop_map(move |fragments| format!("{start}{}", fragments.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bash decides what runs: if it runs `pwned`, the text must not be low.
    #[test]
    fn no_text_is_low_when_bash_runs_another_program(
        text in prop_oneof![
            fragments("echo ", &FRAGMENTS, 9),
            fragments("cat <<EOF\n", &HEREDOC_FRAGMENTS, 4),
        ],
    ) {
        static RULES: LazyLock<SecurityRules> =
            LazyLock::new(|| SecurityRules::from_toml(PRINTING).unwrap());
        let run = RunAction { command: text.clone(), ..Default::default() };
        // Other texts cannot run it, and bash takes most of the time.
        let may_run = text.contains("pwned") || text.contains("cat");
        if may_run && RULES.assess_action(&run.into()).risk == Low {
            prop_assert!(!runs_pwned(&text), "{text:?}");
        }
    }
}

proptest! {
    // Bash runs most of these texts.
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same for the values of variables in the arguments of builtins.
    #[test]
    fn no_loop_is_low_when_bash_runs_another_program(text in loops()) {
        static RULES: LazyLock<SecurityRules> =
            LazyLock::new(|| SecurityRules::from_toml(PRINTING).unwrap());
        let run = RunAction { command: text.clone(), ..Default::default() };
        if RULES.assess_action(&run.into()).risk == Low {
            prop_assert!(!runs_pwned(&text), "{text:?}");
        }
    }
}

/// Whether bash runs `pwned` for a text. The same program is in the current folder as `cat`.
fn runs_pwned(text: &str) -> bool {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let record = folder.path().join("record");
    for program in [programs.join("pwned"), folder.path().join("cat")] {
        let script = format!("#!/bin/sh\n: > {}\n", record.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    symlink("/bin/cat", programs.join("cat")).unwrap();
    // `PATH` may become the number of a descriptor or of written bytes.
    for number in 0..=12 {
        symlink(".", folder.path().join(number.to_string())).unwrap();
    }
    let status = Command::new("/bin/bash")
        .args(["--norc", "--noprofile", "-c", text])
        .env_clear()
        .env("PATH", &programs)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap();
    record.exists()
}

#[test]
fn bash_runs_the_programs_that_the_property_looks_for() {
    for text in [
        "cat <<EOF\n\tEOF\necho '\nEOF\npwned #'",
        "cat <<EOF\nx\\\nEOF\necho '\nEOF\npwned #'",
        "cat <<EOF\n$\\\n(pwned)\nEOF",
        "echo \"$\\\n(pwned)\"",
        "cat <<<\"$\\\n(pwned)\"",
        "$\"pwned\"",
        "./cat x",
        "PATH=. cat x",
        "echo <(true)#; pwned",
        "y=1; x='a[$(pwned)]'; echo ${y:x}",
        "x='$(pwned)'; echo ${x@P}",
        "test -v 'a[$(pwned)]'",
        "printf -v 'a[$(pwned)]' x",
        "for x in '-v a[$(pwned)]'; do test $x; done",
        "for x in -v; do [ ! $x 'a[$(pwned)]' ]; done",
        "for x in 'b[$(pwned)]'; do test -v 'a[x]'; done",
        "set -- -v 'a[$(pwned)]'; [ \"$@\" ]",
        "for x in -vPATH; do printf \"$x\" .; done; cat y",
        "for x in '-va[$(pwned)]'; do printf \"$x\" .; done",
        "for x in %n; do printf \"a$x\" PATH; cat y; done",
        "printf 'a%-5.*ln' 3 PATH; cat y",
        "for x in 'A PATH'; do export LC_$x=.; cat y; done",
        "for x in 'C PATH=.'; do 'export' LANG=$x; cat y; done",
        "for x in 'a[$(pwned)]=1'; do declare \"$x\"; done",
        "for x in 'a[$(pwned)]'; do declare -i LANG=x; done",
        "for x in 'a[$(pwned)]'; do read 'b[x]'; done",
        "for x in 'a[$(pwned)]'; do let x; done",
        "for x in -k; do set $x; done; cat y PATH=.",
        "for x in PATH; do unset $x; cat y; done",
        "set -o keyword; cat y PATH=.",
        "shopt -so keyword\ncat y PATH=.",
        "true & for x in '-n -p a[$(pwned)]'; do wait $x; done",
        "jobs -x pwned",
        "echo {PATH}<&1; cat x",
        "for x in 'a[$(pwned)]'; do echo {b[$x]}<&1; done",
    ] {
        assert!(runs_pwned(text), "{text:?}");
        assert_ne!(risk_of(PRINTING, text), Low, "{text:?}");
    }
    assert!(!runs_pwned("echo pwned"));
}
