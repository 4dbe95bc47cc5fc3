//! Tests with real changes. The kernel reports them immediately, so that a step after a change sees
//! its event.

use super::*;

fn after(watcher: &mut Watcher, is_timed_out: bool) -> WatchStep {
    let arrived = watcher.source().read().unwrap_or_default();
    watcher.step(arrived, is_timed_out)
}

fn created(path: &str) -> WatchEvent {
    WatchEvent::Created { path: path.into() }
}

fn modified(path: &str) -> WatchEvent {
    WatchEvent::Modified { path: path.into() }
}

fn removed(path: &str) -> WatchEvent {
    WatchEvent::Removed { path: path.into() }
}

fn moved(from: &str, path: &str) -> WatchEvent {
    WatchEvent::Moved {
        from: from.into(),
        path: path.into(),
    }
}

#[test]
fn events_are_reported_for_created_changed_and_moved_files() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    let mut watcher = Watcher::start(&Files::unconfined(), dir.path(), false).unwrap();
    assert!(after(&mut watcher, true).events.is_empty());
    fs::write(at("a"), "x").unwrap();
    assert_eq!(
        after(&mut watcher, true).events,
        [created("a"), modified("a")]
    );
    fs::rename(at("a"), at("b")).unwrap();
    assert_eq!(after(&mut watcher, false).events, [moved("a", "b")]);
    fs::rename(at("b"), other.path().join("b")).unwrap();
    let step = after(&mut watcher, false);
    assert_eq!(
        (step.events.len(), step.is_leaving, step.is_over),
        (0, true, false)
    );
    assert_eq!(after(&mut watcher, true).events, [removed("b")]);
    fs::rename(other.path().join("b"), at("c")).unwrap();
    fs::remove_file(at("c")).unwrap();
    assert_eq!(
        after(&mut watcher, true).events,
        [created("c"), removed("c")]
    );
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/x"), "").unwrap();
    assert_eq!(after(&mut watcher, true).events, [created("folder")]);
}

#[test]
fn new_and_moved_folders_are_watched() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("old/deep")).unwrap();
    let mut watcher = Watcher::start(&Files::unconfined(), dir.path(), true).unwrap();
    fs::create_dir(at("new")).unwrap();
    fs::write(at("new/early"), "").unwrap();
    assert_eq!(
        after(&mut watcher, true).events,
        [created("new"), created("new/early")]
    );
    fs::remove_file(at("new/early")).unwrap();
    fs::remove_file(at("missing")).unwrap_err();
    assert_eq!(after(&mut watcher, true).events, [removed("new/early")]);
    fs::rename(at("old"), at("new/old")).unwrap();
    assert_eq!(after(&mut watcher, true).events, [moved("old", "new/old")]);
    fs::create_dir(at("new/old/deep/x")).unwrap();
    assert_eq!(
        after(&mut watcher, true).events,
        [created("new/old/deep/x")]
    );
    fs::rename(at("new"), other.path().join("new")).unwrap();
    assert_eq!(after(&mut watcher, true).events, [removed("new")]);
    fs::write(other.path().join("new/old/deep/y"), "").unwrap();
    assert_eq!(after(&mut watcher, true).events, []);
    assert_eq!(watcher.folders.len(), 1);
}

#[test]
fn watch_is_over_when_the_watched_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    let mut watcher = Watcher::start(&Files::unconfined(), &file, false).unwrap();
    fs::write(&file, "x").unwrap();
    assert_eq!(after(&mut watcher, true).events, [modified("")]);
    fs::remove_file(&file).unwrap();
    let step = after(&mut watcher, true);
    assert_eq!(
        (step.events.last(), step.is_over),
        (Some(&removed("")), true)
    );
    assert!(matches!(
        Watcher::start(&Files::unconfined(), &file, false),
        Err(FileError::NotFound(_))
    ));
}

#[test]
fn overflow_is_reported_when_there_are_too_many_events() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let many = other.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..=MAX_EVENTS {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    let mut watcher = Watcher::start(&Files::unconfined(), dir.path(), true).unwrap();
    fs::rename(many, dir.path().join("many")).unwrap();
    let step = after(&mut watcher, true);
    assert_eq!(step.events.len(), MAX_EVENTS + 1);
    assert_eq!(step.events.last(), Some(&WatchEvent::Overflow));
}
