use proptest::prelude::*;

use super::*;

/// Each command as its words; `$` marks one that is not certain.
fn shown(text: &str) -> Vec<String> {
    let word = |word: &Word| format!("{}{}", word.text, if word.is_certain() { "" } else { "$" });
    let words = |words: &[Word]| words.iter().map(word).collect::<Vec<_>>().join(" ");
    let command = |command: ShellCommand| {
        let reads = command.reads.iter().map(|read| format!(" <{}", word(read)));
        let writes = command
            .writes
            .iter()
            .map(|write| format!(" >{}", word(write)));
        words(&command.words) + &reads.chain(writes).collect::<String>()
    };
    match commands(text, 0) {
        Ok(commands) => commands.into_iter().map(command).collect(),
        Err(UnparsedShell) => vec!["?".into()],
    }
}

#[test]
fn every_command_of_a_text_is_extracted() {
    for (text, found) in [
        ("ls -l", &["ls -l"][..]),
        ("", &[]),
        ("# rm", &[]),
        (
            "a; b && c || d | e |& f & g\nh",
            &["a", "b", "c", "d", "e", "f", "g", "h"],
        ),
        ("(cd x && rm y)", &["cd x", "rm y"]),
        ("{ a; b; } > out", &["a", "b", " >out"]),
        (
            "if [ -f x ]; then rm x; else touch x; fi",
            &["[ -f x ]", "rm x", "touch x"],
        ),
        (
            "while read -r l; do echo \"$l\"; done < in",
            &["read -r l", "echo $", " <in"],
        ),
        (
            "for f in a $(rm b); do cat \"$f\"; done",
            &["rm b", "cat $"],
        ),
        (
            "echo $(rm x) `rm \\`y\\`` \"pre$(rm z)\"",
            &["rm x", "y", "rm $", "rm z", "echo $ $ pre$"],
        ),
        ("diff <(rm a) <(b)", &["rm a", "b", "diff $ $"]),
        ("A=1 B=$(rm x) make", &["rm x", "make"]),
        ("X=1", &[""]),
        ("'r'm \"-r\"f \\/", &["rm -rf /"]),
        (
            "$CMD x; rm ~/a *.py {a,b} ${HOME}/x",
            &["$ x", "rm ~/a $ $ $"],
        ),
        ("a 2>&1 >>log <in &>both 3>n", &["a <in >log >both >n"]),
        ("$X>y", &["$ >y"]),
        ("cat <<EOF | b\nrm $x\nEOF\nc", &["cat", "b", "c"]),
        ("cat <<'EOF'\n$(rm x)\nEOF", &["cat"]),
        ("cat <<< word", &["cat"]),
        ("! a", &["a"]),
        ("a \\\n b", &["a b"]),
        ("a \\\n  | b \\\n> c", &["a", "b >c"]),
        ("cat <<-EOF\n\tx\n\tEOF\nb", &["cat", "b"]),
        ("cat <<E\"O\"F\n$(rm x)\nEOF\nb", &["cat", "b"]),
        ("cat <<A <<'B'\nx\nA\n$(y)\nB\nb", &["cat", "b"]),
        ("cat <<EOF\nx\\\ny\n${X} $X\nEOF\nb", &["cat", "b"]),
        ("echo $(cat <<EOF\nx\nEOF\n)", &["cat", "echo $"]),
        (
            "$\"rm\" -rf x; r$\"m\" y; \"a$\"",
            &["rm -rf x", "rm y", "a$"],
        ),
        ("echo ${X:-y} ${#X} ${X%.*} \"${X}\"", &["echo $ $ $ $"]),
        ("cat ~me/x ~+ ~/y", &["cat $ $ ~/y"]),
        (
            "a b=~me/x b+=c:~me _=\"c\":~me b[1]=~me",
            &["a b=$ b+=c:$ _=c:$ b$"],
        ),
        (
            "a b=c~me \"b\"=~me b\\=~me b=\"\"~me --b=~me b:~me b=~/x",
            &["a b=c~me b=~me b=~me b=~me --b=~me b:~me b=~/x"],
        ),
        ("find . -exec a {} +", &["find . -exec a {} +"]),
        ("a {b,c} >x '{d}'>y", &["a $ {d} >x >y"]),
    ] {
        assert_eq!(shown(text), found, "{text}");
    }
}

#[test]
fn word_is_single_unless_it_may_be_split() {
    for (text, is_single) in [
        ("a b'c'", true),
        ("a \"$x\"b", true),
        ("a $?", true),
        ("a \"$*\"", true),
        ("a $x", false),
        ("a b\"c\"$x", false),
        ("a \"$(b)\"`c`", false),
        ("a \"$@\"", false),
        ("a \"${@}\"", false),
        ("a {b,c}", false),
        ("a *", false),
        ("a <(b)", false),
    ] {
        let found = commands(text, 0).unwrap();
        assert_eq!(
            found.last().unwrap().words[1].is_single,
            is_single,
            "{text}"
        );
    }
}

#[test]
fn unreliable_text_is_not_parsed() {
    for text in [
        "f() { rm x; }",
        "function f { rm x; }",
        "case x in y) rm z;; esac",
        "a=(b c)",
        "((x))",
        "echo $((1+1))",
        "echo $'\\x72m'",
        "echo ${x:-$(rm y)}",
        "cat <<EOF\n$(rm x)\nEOF",
        "cat <<EOF\nnever ends",
        "echo 'open",
        "echo \"open",
        "echo $(open",
        "a )",
        "a >",
        "for x do rm -rf /; done",
        "\"`echo \\\"a\\\"`\"",
        // Continued lines within tokens.
        "echo \"$\\\n(rm x)\"",
        "echo $\\\n(rm x)",
        "cat <<<\"$\\\n(rm x)\"",
        "echo $\\\n{x}",
        "a &\\\n& b",
        "i\\\nf a",
        "r\\\nm x",
        "cat <\\\n<EOF\nEOF",
        "echo `a\\\nb`",
        // Here-documents.
        "cat <<EOF\n\tEOF\necho",
        "cat <<EOF\nx\\\nEOF\necho",
        "cat <<EOF\nEO\\\nF\necho '\nEOF\nrm x #'",
        "cat <<EOF\n$\\\n(rm x)\nEOF",
        "cat <<EOF\n$[a]\nEOF",
        "cat <<EOF\n${x@P}\nEOF",
        "cat <<EOF\n${x\n}\nEOF",
        "cat <<$\"EOF\"\nx\n$EOF",
        "cat <<#x\nrm x\n#x",
        "(cat <<EOF)\nrm x\nEOF",
        "cat <<EOF $(a\nb)\nx\nEOF",
        "cat <<EOF 'a\nEOF\nb'\nEOF",
        // Expansions that evaluate a value.
        "echo ${x@P}",
        "echo ${!x}",
        "echo ${x:y}",
        "echo ${a[x]}",
        "echo ${PATH=.}",
        "echo ${PATH:=.}",
        "echo $[x]",
        "echo \"$[x]\"",
        "echo \"${x:-${y}\" ; rm x #}\"",
        // A comment does not start within a word.
        "echo <(a)#; rm x",
        "echo a<(b)",
        "for PATH in .; do a; done",
        "for a$x in b; do a; done",
        // Assigns the number of a descriptor.
        "echo {PATH}<&1",
        "echo {PATH}>x",
        "{PATH}<x",
        "echo {a[$(rm x)]}>&1",
        "echo >{PATH}<&1",
        "a\r\nb",
        "a\0b",
    ] {
        assert_eq!(shown(text), ["?"], "{text}");
    }
    assert_eq!(commands(&"(".repeat(100), 0), Err(UnparsedShell));
    assert_eq!(
        commands(&"a ".repeat(MAX_TEXT_BYTES), 0),
        Err(UnparsedShell)
    );
    assert_eq!(
        commands("a b", 0).unwrap()[0].words,
        [Word::certain("a"), Word::certain("b")]
    );
}

proptest! {
    #[test]
    fn arbitrary_text_terminates(text in "[a$`'\"(){}<>|&;# \n\\\\=*-]{0,60}") {
        let _ = commands(&text, 0);
    }

    /// Wherever a command stands, it is found or the text is not read.
    #[test]
    fn no_command_is_missed(
        before in prop::sample::select(vec!["", "a; ", "a && ", "(", "{ ", "if x; then ", "echo $(", "a | ", "! ", "b=1 ", "echo \"`", "cat <(", "x & "]),
        after in prop::sample::select(vec!["", "; b", ")", "; }", "; fi", ")\"", "`\"", " > x", "\n", " | b", " #c"]),
    ) {
        if let Ok(found) = commands(&format!("{before}rm -rf /{after}"), 0) {
            let is_rm = |command: &ShellCommand| command.words.first() == Some(&Word::certain("rm"));
            prop_assert!(found.iter().any(is_rm), "{before}rm{after}: {found:?}");
        }
    }
}
