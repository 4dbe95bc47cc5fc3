//! `str_replace` changes only the text that it names.

use std::fs;

use protocol::action::EditAction;

use super::choices::Choices;
use super::scratch::FuzzFolder;

/// Pieces of files and texts: both line ends, blanks, multi-byte characters and invalid UTF-8.
const PIECES: [&[u8]; 10] = [
    b"\n",
    b"\r\n",
    b"ab",
    b"a",
    b" ",
    b"\t",
    "\u{e9}".as_bytes(),
    b"\r",
    "\u{feff}".as_bytes(),
    b"\xff",
];

const MAX_PIECES: usize = 24;

/// An edit replaces the only occurrence of its text with the new text, in the line ends of the
/// file, and nothing else.
pub fn edit(bytes: &[u8]) {
    match bytes.split_first() {
        Some((kind, bytes)) if kind % 4 == 0 => edit_raw(bytes),
        Some((_, bytes)) => edit_pieces(&mut Choices::new(bytes)),
        None => {}
    }
}

fn edit_raw(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |&byte| byte == 0xff);
    let (Some(old), Some(new), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
        return;
    };
    if let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) {
        check(old, new, file);
    }
}

/// Edits a part of the file, named as a model would: with other line ends or surrounding blanks.
fn edit_pieces(choices: &mut Choices<'_>) {
    let file = pieces(choices);
    let new = String::from_utf8_lossy(&pieces(choices)).into_owned();
    let start = choices.below(file.len());
    let end = start + choices.below(file.len() - start + 1);
    let old = String::from_utf8_lossy(&file[start..end]).into_owned();
    let old = if choices.byte().is_multiple_of(2) {
        old
    } else {
        old.replace("\r\n", "\n")
    };
    let blanks = ["", "", "", " ", "\n"];
    check(
        &[choices.one_of(&blanks), &old, choices.one_of(&blanks)].concat(),
        &new,
        &file,
    );
}

fn pieces(choices: &mut Choices<'_>) -> Vec<u8> {
    (0..choices.below(MAX_PIECES))
        .flat_map(|_| choices.one_of(&PIECES))
        .copied()
        .collect()
}

fn check(old: &str, new: &str, before: &[u8]) {
    let scratch = FuzzFolder::create();
    let path = scratch.path().join("file");
    fs::write(&path, before).unwrap();
    let action = serde_json::json!({
        "command": "str_replace", "path": path, "old_str": old, "new_str": new, "impl_source": "oh_aci"
    });
    let action: EditAction = serde_json::from_value(action).unwrap();
    let outcome = action_server::fuzzing::edit(&action);
    let after = fs::read(&path).unwrap();
    if outcome.starts_with("ERROR:") {
        assert_eq!(after, before, "a failed edit changed the file");
        return;
    }
    let mut exact = memchr::memmem::find_iter(before, old.as_bytes());
    match (exact.next(), exact.next()) {
        (Some(place), None) => {
            assert!(
                is_replaced(before, place..place + old.len(), &after, new),
                "{after:?}"
            );
        }
        (Some(_), Some(_)) => panic!("the edit succeeded although the text is not unique"),
        (None, _) => {
            let is_edited = |old: &str, new: &str| {
                places(before, old).any(|place| is_replaced(before, place, &after, new))
            };
            assert!(
                is_edited(old, new) || is_edited(old.trim(), new.trim()),
                "{after:?}"
            );
        }
    }
}

/// Returns the occurrences of `text` with any line ends.
fn places<'a>(file: &'a [u8], text: &'a str) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
    let line_ends = text.matches('\n').count();
    let lengths =
        move |start: usize| (0..=line_ends).map(move |more| start..start + text.len() + more);
    (0..file.len()).flat_map(lengths).filter(move |place| {
        file.get(place.clone())
            .is_some_and(|found| plain(found) == plain(text.as_bytes()))
    })
}

/// Whether `after` is `before` with `new` in the range `place`.
fn is_replaced(before: &[u8], place: std::ops::Range<usize>, after: &[u8], new: &str) -> bool {
    let inserted = after
        .strip_prefix(&before[..place.start])
        .and_then(|rest| rest.strip_suffix(&before[place.end..]));
    inserted.is_some_and(|inserted| {
        let first_line_end = before.iter().position(|byte| *byte == b'\n');
        let has_carriage_return = first_line_end.is_some_and(|at| before[..at].ends_with(b"\r"));
        if has_carriage_return && !new.contains('\r') {
            let is_bare = |at: &usize| inserted[*at] == b'\n' && !inserted[..*at].ends_with(b"\r");
            plain(inserted) == new.as_bytes() && !(0..inserted.len()).any(|at| is_bare(&at))
        } else {
            inserted == new.as_bytes()
        }
    })
}

/// Converts to Unix line ends.
fn plain(text: &[u8]) -> Vec<u8> {
    let has_carriage_return = |at: &usize| text[*at] == b'\r' && text.get(at + 1) == Some(&b'\n');
    (0..text.len())
        .filter(|at| !has_carriage_return(at))
        .map(|at| text[at])
        .collect()
}
