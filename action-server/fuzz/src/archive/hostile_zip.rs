//! Hostile zip archives, some with wrong fields.

use std::io::Write as _;
use std::path::Path;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::{Choices, names};

const MAX_ENTRIES: u8 = 8;

/// File types of entries, mostly regular or unspecified.
const KINDS: [u32; 7] = [
    0o100_000, 0, 0o100_000, 0o040_000, 0o120_000, 0o020_000, 0o010_000,
];

pub(super) fn archive(choices: &mut Choices<'_>, target: &Path) -> Vec<u8> {
    let (mut archive, mut directory, mut count) = (Vec::new(), Vec::new(), 0_u16);
    for _ in 0..MAX_ENTRIES {
        if choices.is_empty() {
            break;
        }
        let offset = maybe_wrong(choices, archive.len() as u32);
        let (name, content) = (names::path(choices, target), choices.content());
        let method = choices.one_of(&[0_u16, 8, 0, 8, 1]);
        let data = if method == 8 {
            deflated(&content)
        } else {
            content.clone()
        };
        let mut checksum = Crc::new();
        checksum.update(&content);
        let attributes = (choices.one_of(&KINDS) | names::mode(choices)) << 16;
        let host = choices.one_of(&[3_u16, 3, 3, 0]) << 8;
        let flags = choices.one_of(&[0_u16, 0x0800, 0x0800, 1]);
        let facts = [
            maybe_wrong(choices, checksum.sum()),
            maybe_wrong(choices, data.len() as u32),
            maybe_wrong(choices, content.len() as u32),
        ];
        let facts: Vec<u8> = facts.iter().flat_map(|fact| fact.to_le_bytes()).collect();
        let name_length = (name.len() as u16).to_le_bytes();

        put(
            &mut archive,
            &[
                b"PK\x03\x04",
                &[20, 0],
                &flags.to_le_bytes(),
                &method.to_le_bytes(),
                &[0; 4],
            ],
        );
        put(&mut archive, &[&facts, &name_length, &[0; 2], &name, &data]);
        put(
            &mut directory,
            &[
                b"PK\x01\x02",
                &(host | 20).to_le_bytes(),
                &[20, 0],
                &flags.to_le_bytes(),
            ],
        );
        put(
            &mut directory,
            &[
                &method.to_le_bytes(),
                &[0; 4],
                &facts,
                &name_length,
                &[0; 8],
            ],
        );
        put(
            &mut directory,
            &[&attributes.to_le_bytes(), &offset.to_le_bytes(), &name],
        );
        count += 1;
    }
    let (offset, length) = (archive.len() as u32, directory.len() as u32);
    let (offset, length) = (maybe_wrong(choices, offset), maybe_wrong(choices, length));
    put(
        &mut archive,
        &[
            &directory,
            b"PK\x05\x06",
            &[0; 4],
            &count.to_le_bytes(),
            &count.to_le_bytes(),
        ],
    );
    put(
        &mut archive,
        &[&length.to_le_bytes(), &offset.to_le_bytes(), &[0; 2]],
    );
    archive
}

fn maybe_wrong(choices: &mut Choices<'_>, value: u32) -> u32 {
    match choices.byte() {
        250 => value.wrapping_add(1),
        251 => value.wrapping_sub(1),
        252 => u32::MAX,
        253 => u32::MAX - 1,
        _ => value,
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

fn put(into: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| into.extend_from_slice(part));
}
