//! Tests of the editor on real files.

use std::fs;
use std::path::PathBuf;

use protocol::Observation;
use protocol::SecurityRisk;
use protocol::action::{EditAction, FileImplementation, WriteAction};
use protocol::observation::{EditObservation, ObservationKind};
use tempfile::TempDir;

use crate::environment::Environment;
use crate::files::Files;

struct Editor {
    files: Files,
    dir: TempDir,
}

impl Editor {
    fn new() -> Self {
        Self {
            files: Files::unconfined(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with(content: &[u8]) -> Self {
        let editor = Self::new();
        fs::write(editor.path(), content).unwrap();
        editor
    }

    fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("f")
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn perform(&self, command: &str, change: impl FnOnce(&mut EditAction)) -> Observation {
        let mut action = EditAction::new("f", command.to_owned().into());
        change(&mut action);
        self.files
            .edit(&action, self.dir.path().canonicalize().unwrap().as_path())
    }

    fn str_replace(&self, old: &str, new: &str) -> String {
        self.perform("str_replace", |edit| {
            edit.old_str = Some(old.into());
            edit.new_str = Some(new.into());
        })
        .content
    }

    fn insert(&self, line: i64, text: &str) -> String {
        self.perform("insert", |edit| {
            edit.insert_line = Some(line);
            edit.new_str = Some(text.into());
        })
        .content
    }
}

fn edit(observation: &Observation) -> &EditObservation {
    match &observation.kind {
        ObservationKind::Edit(edit) => edit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn create_makes_folders_and_never_overwrites() {
    let editor = Editor::new();
    let observation = editor.perform("create", |edit| {
        edit.path = "a/f".into();
        edit.file_text = Some("x\n".into());
    });
    let path = editor
        .dir
        .path()
        .canonicalize()
        .unwrap()
        .join("a/f")
        .display()
        .to_string();
    assert_eq!(
        observation.content,
        format!("File created successfully at: {path}")
    );
    assert!(!edit(&observation).prev_exist);
    assert_eq!(
        edit(&observation).diff,
        Some(format!("--- {path}\n+++ {path}\n@@ -0,0 +1 @@\n+x\n"))
    );
    let again = editor.perform("create", |edit| {
        edit.path = "a/f".into();
        edit.file_text = Some("y".into());
    });
    assert!(again.content.starts_with(&format!(
        "ERROR:\nInvalid `path` parameter: {path}. File already exists"
    )));
    assert_eq!(fs::read(path).unwrap(), b"x\n");
}

#[test]
fn replacement_is_exact_when_the_edit_is_llm_based() {
    let editor = Editor::with(b"a\r\nb\nc\n");
    let exact = |old: &str, new: &str| {
        editor.perform("str_replace", |edit| {
            (edit.old_str, edit.new_str) = (Some(old.into()), Some(new.into()));
            edit.impl_source = FileImplementation::LlmBasedEdit;
        })
    };
    let done = exact("b\n", "B\nB\n");
    assert_eq!(
        (editor.content(), edit(&done).impl_source),
        (b"a\r\nB\nB\nc\n".into(), FileImplementation::LlmBasedEdit)
    );
    let changed = exact("c \n", "C\n");
    assert!(
        changed
            .content
            .starts_with("ERROR:\nNo replacement was performed, old_str `c \n`"),
        "{changed:?}"
    );
    assert_eq!(editor.content(), b"a\r\nB\nB\nc\n");
}

#[test]
fn error_names_the_missing_parameter() {
    let editor = Editor::with(b"x\n");
    let content_of = |command: &str| editor.perform(command, |_| ()).content;
    assert_eq!(
        content_of("create"),
        "ERROR:\nParameter `file_text` is required for command: create."
    );
    assert_eq!(
        content_of("str_replace"),
        "ERROR:\nParameter `old_str` is required for command: str_replace."
    );
    assert_eq!(
        content_of("insert"),
        "ERROR:\nParameter `insert_line` is required for command: insert."
    );
    let no_text = editor
        .perform("insert", |edit| edit.insert_line = Some(0))
        .content;
    assert_eq!(
        no_text,
        "ERROR:\nParameter `new_str` is required for command: insert."
    );
    assert!(content_of("dance").starts_with("ERROR:\nUnrecognized command `dance`."));
}

#[test]
fn replacement_shows_surrounding_lines_and_the_diff() {
    let editor = Editor::with(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
    let observation = editor.perform("str_replace", |edit| {
        edit.old_str = Some("6\n".into());
        edit.new_str = Some("six\nSIX\n".into());
    });
    let path = editor.path().display().to_string();
    let lines = "     2\t2\n     3\t3\n     4\t4\n     5\t5\n     6\tsix\n     7\tSIX\n     8\t7\n     9\t8\n    10\t9\n    11\t10\n    12\t11\n";
    assert_eq!(
        observation.content,
        format!(
            "The file {path} has been edited. Here's the result of running `cat -n` on a snippet of {path}:\n{lines}{}",
            super::REVIEW
        )
    );
    assert_eq!(
        edit(&observation).diff,
        Some(format!(
            "--- {path}\n+++ {path}\n@@ -6 +6,2 @@\n-6\n+six\n+SIX\n"
        ))
    );
}

#[test]
fn bytes_outside_the_edit_are_unchanged() {
    let editor = Editor::with(b"\xef\xbb\xbf\ta\r\n\xff\xfe b\r\nlast");
    editor.str_replace(" b\n", "\tc\nd\n");
    assert_eq!(
        editor.content(),
        b"\xef\xbb\xbf\ta\r\n\xff\xfe\tc\r\nd\r\nlast"
    );
    editor.insert(0, "first");
    assert_eq!(
        editor.content(),
        b"\xef\xbb\xbffirst\r\n\ta\r\n\xff\xfe\tc\r\nd\r\nlast"
    );
    editor.insert(5, "end");
    assert_eq!(
        editor.content(),
        b"\xef\xbb\xbffirst\r\n\ta\r\n\xff\xfe\tc\r\nd\r\nlast\r\nend"
    );
}

#[test]
fn text_is_found_without_surrounding_whitespace() {
    let editor = Editor::with(b"def f():\n\treturn 1\n");
    editor.str_replace("   return 1   \n", "return 2\n");
    assert_eq!(editor.content(), b"def f():\n\treturn 2\n");
}

#[test]
fn failed_replacement_returns_the_reason_and_changes_nothing() {
    let editor = Editor::with(b"one two\ntwo\n");
    let path = editor.path().display().to_string();
    assert_eq!(
        editor.str_replace("two", "2"),
        "ERROR:\nNo replacement was performed. Multiple occurrences of old_str `two` in lines [1, 2]. Please ensure it is unique."
    );
    assert!(editor.str_replace("one  tow", "x").contains(&format!(
        "old_str `one  tow` did not appear verbatim in {path}"
    )));
    assert!(
        editor
            .str_replace("two", "two")
            .contains("`new_str` and `old_str` must be different.")
    );
    assert!(
        editor
            .str_replace("", "x")
            .contains("Invalid `old_str` parameter")
    );
    assert_eq!(editor.content(), b"one two\ntwo\n");
}

#[test]
fn insert_error_contains_the_range_of_lines() {
    let editor = Editor::with(b"a\nb\n");
    assert!(
        editor
            .insert(2, "c")
            .contains("on a snippet of the edited file:\n     1\ta\n     2\tb\n     3\tc\n")
    );
    assert_eq!(editor.content(), b"a\nb\nc\n");
    for line in [-1, 4, i64::MAX] {
        assert!(editor.insert(line, "x").ends_with(&format!(
            "Invalid `insert_line` parameter: {line}. It should be within the range of allowed values: [0, 3]"
        )));
    }
}

#[test]
fn undo_reverts_one_edit_at_a_time() {
    let editor = Editor::with(b"a\n");
    editor.str_replace("a", "b");
    editor.str_replace("b", "c");
    let path = editor.path().display().to_string();
    let undone = editor.perform("undo_edit", |_| ()).content;
    assert_eq!(
        undone,
        format!(
            "Last edit to {path} undone successfully. Here's the result of running `cat -n` on {path}:\n     1\tb\n     2\t\n"
        )
    );
    editor.perform("undo_edit", |_| ());
    assert_eq!(editor.content(), b"a\n");
    assert!(
        editor
            .perform("undo_edit", |_| ())
            .content
            .contains("No edit history found for")
    );
}

#[test]
fn error_is_returned_when_the_path_is_not_a_text_file() {
    let editor = Editor::new();
    let path = editor.path().display().to_string();
    let content_of = editor.str_replace("a", "b");
    assert!(content_of.starts_with(&format!(
        "ERROR:\nInvalid `path` parameter: {path}. The path {path} does not exist"
    )));
    fs::create_dir(editor.path()).unwrap();
    assert!(editor.str_replace("a", "b").contains("It is a directory"));
    fs::remove_dir(editor.path()).unwrap();
    fs::write(editor.path(), b"a\0b").unwrap();
    assert_eq!(editor.str_replace("a", "b"), "ERROR:\nERROR_BINARY_FILE");
}

#[test]
fn link_is_kept_when_its_target_is_edited() {
    let editor = Editor::with(b"a\n");
    let link = editor.path().with_file_name("link");
    std::os::unix::fs::symlink("f", &link).unwrap();
    editor.perform("str_replace", |edit| {
        edit.path = "link".into();
        edit.old_str = Some("a".into());
        edit.new_str = Some("b".into());
    });
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(editor.content(), b"b\n");
}

#[test]
fn tilde_is_the_home_in_every_file_action() {
    let home = tempfile::tempdir().unwrap();
    let variables = vec![("HOME".into(), home.path().into())];
    let files = Files::new(None, Environment::new(variables));
    let editor = Editor {
        files,
        dir: tempfile::tempdir().unwrap(),
    };
    let at_home = |edit: &mut EditAction| {
        edit.path = "~/below/f".into();
        edit.file_text = Some("made".into());
        (edit.old_str, edit.new_str) = (Some("made".into()), Some("edited".into()));
    };
    for command in ["create", "str_replace", "view"] {
        let done = editor.perform(command, at_home);
        assert_eq!(
            edit(&done).path,
            home.path().join("below/f").display().to_string(),
            "{}",
            done.content
        );
    }
    assert_eq!(
        fs::read_to_string(home.path().join("below/f")).unwrap(),
        "edited"
    );
    let write = WriteAction {
        path: "~/written".into(),
        content: "x".into(),
        start: 0,
        end: -1,
        thought: String::new(),
        security_risk: SecurityRisk::default(),
    };
    editor.files.write(&write, editor.dir.path());
    assert_eq!(
        fs::read_to_string(home.path().join("written")).unwrap(),
        "x"
    );
    assert_eq!(
        fs::read_dir(editor.dir.path()).unwrap().count(),
        0,
        "no folder named `~`"
    );
}

#[test]
fn edit_that_would_mix_encodings_is_refused() {
    let latin1 = b"caf\xe9 = 1\nna\xefve = 2\n";
    let editor = Editor::with(latin1);
    for refused in [
        editor.str_replace("= 1", "= \u{e9}"),
        editor.str_replace("caf\u{e9}", "coffee"),
        editor.insert(1, "\u{4f60}"),
    ] {
        assert!(
            refused.starts_with("ERROR:\n") && refused.contains("mix two encodings"),
            "{refused}"
        );
    }
    assert_eq!(editor.content(), latin1);
    let shown = editor.perform("view", |_| {}).content;
    assert!(
        shown.contains("caf\u{fffd} = 1") && shown.contains("NOTE: The file is not UTF-8."),
        "{shown}"
    );
    editor.str_replace("= 1", "= 3");
    editor.insert(2, "last = 4");
    assert_eq!(editor.content(), b"caf\xe9 = 3\nna\xefve = 2\nlast = 4\n");
}

#[test]
fn half_of_a_foreign_character_is_not_replaced() {
    // The first character of this Shift-JIS is 0x95 0x5c, whose second byte is a backslash.
    let shift_jis = b"\x95\x5c\x8e\xa6 = 'a\\n'\n";
    let editor = Editor::with(shift_jis);
    editor.str_replace("\\", "/");
    assert_eq!(editor.content(), b"\x95\x5c\x8e\xa6 = 'a/n'\n");
}

#[test]
fn utf16_is_refused_with_the_reason() {
    let utf16 = b"\xff\xfea\0\n\0";
    let editor = Editor::with(utf16);
    let view = editor.perform("view", |_| {}).content;
    for refused in [view, editor.str_replace("a", "b"), editor.insert(0, "a")] {
        assert!(
            refused.contains("is UTF-16") && refused.contains("iconv"),
            "{refused}"
        );
    }
    assert_eq!(editor.content(), utf16);
}
