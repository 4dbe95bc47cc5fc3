//! Retained output is read from any offset, and a gap is reported for the rest.

use std::path::PathBuf;

use super::*;

fn store(max_bytes: u64) -> (SpoolStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (
        SpoolStore::with(vec![folder.path().to_owned()], max_bytes),
        folder,
    )
}

fn read_all(spool: &Spool, mut cursor: u64) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut gaps) = (Vec::new(), Vec::new());
    while let Some(piece) = spool.read(cursor) {
        let more = match piece {
            OutputPiece::Bytes(more) => more,
            OutputPiece::Spilled(range) => range.read().unwrap(),
            OutputPiece::Gap(to) => {
                gaps.push((cursor, to));
                cursor = to;
                continue;
            }
        };
        cursor += more.len() as u64;
        bytes.extend(more);
    }
    (bytes, gaps)
}

/// Not periodic in any power of two.
fn text(length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| (n % 251) as u8 ^ (n / 65_537) as u8)
        .collect()
}

#[test]
fn output_is_read_from_any_offset_in_memory_and_on_disk() {
    let (store, folder) = store(1 << 30);
    let text = text(5_000_000);
    for chunk in [777, 20_000, 3_000_000] {
        let spool = Spool::new(&store);
        text.chunks(chunk).for_each(|chunk| spool.push(chunk));
        assert_eq!(spool.end(), text.len() as u64);
        for cursor in [
            0, 1, 65_536, 3_999_999, 4_600_000, 4_999_999, 5_000_000, 6_000_000,
        ] {
            let (bytes, gaps) = read_all(&spool, cursor);
            assert!(
                bytes == text[(cursor as usize).min(text.len())..],
                "from {cursor} in {chunk}"
            );
            assert_eq!(gaps, []);
        }
        let held = spool.close();
        assert_eq!(held.memory + held.disk, text.len() as u64);
        assert!(held.memory <= MEMORY_BYTES as u64, "{held:?}");
    }
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "a file has a name"
    );
}

#[test]
fn short_output_is_not_written_to_the_disk() {
    let spool = Spool::new(&SpoolStore::with(vec![PathBuf::from("/nowhere")], 0));
    spool.push(&text(MEMORY_BYTES));
    assert_eq!(read_all(&spool, 0), (text(MEMORY_BYTES), vec![]));
}

#[test]
fn output_is_spilled_to_the_first_writable_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folders = vec![
        PathBuf::from("/nowhere"),
        PathBuf::from("/proc"),
        folder.path().to_owned(),
    ];
    let spool = Spool::new(&SpoolStore::with(folders, 1 << 30));
    let text = text(4_000_000);
    text.chunks(10_000).for_each(|chunk| spool.push(chunk));
    assert!(read_all(&spool, 0) == (text, vec![]));
}

#[test]
fn gap_is_reported_when_the_disk_rejects_output() {
    let spool = Spool::new(&SpoolStore::with(vec![PathBuf::from("/nowhere")], 1 << 30));
    let text = text(4_000_000);
    text.chunks(10_000).for_each(|chunk| spool.push(chunk));
    let (bytes, gaps) = read_all(&spool, 5);
    let missing = (text.len() - bytes.len()) as u64;
    assert_eq!(gaps, [(5, missing)]);
    assert!(bytes.len() >= KEPT_BYTES);
    assert!(text.ends_with(&bytes));
}

#[test]
fn oldest_output_is_dropped_when_the_store_is_full() {
    let (store, _folder) = store(70 << 20);
    let spool = Spool::new(&store);
    let piece = vec![b'x'; 1 << 20];
    (0..100).for_each(|_| spool.push(&piece));
    spool.push(b"end");
    let (bytes, gaps) = read_all(&spool, 0);
    assert_eq!(gaps.len(), 1);
    assert_eq!(bytes.len() as u64 + gaps[0].1, (100 << 20) + 3);
    assert!(bytes.ends_with(b"xend"));
    drop(spool);
    assert!(store.reserve(70 << 20).is_some());
}

#[test]
fn output_is_dropped_after_the_spool_was_closed() {
    let (store, _folder) = store(0);
    let spool = Spool::new(&store);
    spool.push(b"before");
    spool.close();
    spool.push(b"after");
    assert_eq!(read_all(&spool, 0).0, b"before");
}

#[tokio::test]
async fn memory_is_bounded_when_the_producer_waits_for_room() {
    let (store, _folder) = store(1 << 30);
    let spool = Spool::new(&store);
    let text = text(20_000_000);
    let mut most = 0;
    for chunk in text.chunks(65_536) {
        spool.push_owned(Bytes::copy_from_slice(chunk));
        spool.wait_for_room().await;
        most = most.max(spool.state().memory.len());
    }
    assert!(most <= MEMORY_BYTES + BACKLOG_BYTES, "{most}");
    let (bytes, gaps) = read_all(&spool, 0);
    assert!(bytes == text && gaps.is_empty());
}
