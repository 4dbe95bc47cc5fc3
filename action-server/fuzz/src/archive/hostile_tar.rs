//! Hostile tar archives with valid checksums.

use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::{Choices, names};

const KINDS: [EntryType; 14] = [
    EntryType::Regular,
    EntryType::Symlink,
    EntryType::Directory,
    EntryType::Link,
    EntryType::Regular,
    EntryType::Symlink,
    EntryType::GNULongName,
    EntryType::GNULongLink,
    EntryType::XHeader,
    EntryType::Continuous,
    EntryType::Fifo,
    EntryType::Char,
    EntryType::Block,
    EntryType::XGlobalHeader,
];

const MAX_ENTRIES: u8 = 16;

pub(super) fn archive(choices: &mut Choices<'_>, target: &Path) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for _ in 0..MAX_ENTRIES {
        if choices.is_empty() {
            break;
        }
        let kind = choices.one_of(&KINDS);
        let content = match kind {
            EntryType::GNULongName | EntryType::GNULongLink => names::path(choices, target),
            EntryType::XHeader => {
                let key = choices.one_of(&["path", "linkpath", "size", "GNU.sparse.name"]);
                pax_record(key, &names::path(choices, target))
            }
            EntryType::Regular | EntryType::Continuous => choices.content(),
            _ => Vec::new(),
        };
        let mut header = Header::new_gnu();
        let (name, link) = (names::path(choices, target), names::path(choices, target));
        let fields = header.as_gnu_mut().unwrap();
        fill(&mut fields.name, &name);
        fill(&mut fields.linkname, &link);
        header.set_entry_type(kind);
        header.set_mode(names::mode(choices));
        header.set_mtime(u64::from(choices.byte()) << choices.one_of(&[0, 24, 48, 56]));
        let length = content.len() as u64;
        header.set_size(if choices.is_rare() {
            length << choices.one_of(&[1, 8, 50])
        } else {
            length
        });
        header.set_cksum();
        archive.append(&header, content.as_slice()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn fill(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

/// Returns `LENGTH KEY=VALUE\n`. The length includes itself.
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [format!(" {key}=").as_bytes(), value, b"\n"].concat();
    let digits = (1..5)
        .find(|digits| (digits + rest.len()).to_string().len() == *digits)
        .unwrap();
    [(digits + rest.len()).to_string().as_bytes(), &rest].concat()
}
