//! Exports in V0's layout.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tests::glovebox::Home;

use super::{names, resume, run};

/// Reads the files of an exported conversation: its events by their number, and its metadata.
fn read(folder: &Path, id: &str) -> (BTreeMap<u64, Value>, Value) {
    let folder = folder.join("sessions").join(id);
    let json =
        |path: &Path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
    let events = names(&folder.join("events")).into_iter().map(|name| {
        let number = name.strip_suffix(".json").unwrap().parse().unwrap();
        (number, json(&folder.join("events").join(name)))
    });
    (events.collect(), json(&folder.join("metadata.json")))
}

#[test]
fn exported_conversations_are_imported_with_their_events() {
    let (home, other) = (Home::new(), Home::new());
    let ids = [run(&home, "Mend it"), run(&home, "work")];
    resume(&home, &ids[0], "more");
    let folder = home.path().join("v0");
    let exported = home
        .run(&["store", "export", folder.to_str().unwrap()])
        .expect(0)
        .stdout;
    let mut listed: Vec<_> = exported.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, [ids[0].as_str(), &ids[1]]);
    assert_eq!(names(&folder), ["sessions"]);
    let (first, metadata) = read(&folder, &ids[0]);
    assert!(first.keys().copied().eq(0..first.len() as u64));
    assert!(
        first
            .iter()
            .all(|(number, event)| event["id"] == *number && event["record"].is_null())
    );
    let run = first
        .iter()
        .find(|(_, event)| event["action"] == "run")
        .unwrap()
        .0;
    assert!(
        first
            .values()
            .any(|event| event["observation"] == "run" && event["cause"] == *run)
    );
    assert_eq!(
        (&metadata["title"], &metadata["conversation_id"]),
        (&json!("Mend it"), &json!(ids[0]))
    );

    let import = [
        "conversations",
        "import",
        "--runtime",
        "local",
        folder.to_str().unwrap(),
    ];
    other.run(&import).expect(0);
    let again = other.path().join("v0");
    other
        .run(&["store", "export", again.to_str().unwrap()])
        .expect(0);
    for id in &ids {
        assert_eq!(read(&again, id).0, read(&folder, id).0);
        assert_eq!(read(&again, id).1["title"], read(&folder, id).1["title"]);
    }
}

#[test]
fn export_adds_to_a_folder_only_when_asked_to() {
    let home = Home::new();
    let [first, second] = [run(&home, "one"), run(&home, "two")];
    let folder = home.path().join("v0");
    let export = |more: &[&str]| {
        home.run(
            &[
                &["store", "export", "--json", folder.to_str().unwrap()],
                more,
            ]
            .concat(),
        )
    };
    let statuses = |stdout: &str| -> Vec<(String, String)> {
        let rows = stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        rows.map(|row| (text(&row["id"]), text(&row["status"])))
            .collect()
    };
    let exported = statuses(&export(&[&first]).expect(0).stdout);
    assert_eq!(exported, [(first.clone(), "exported".to_owned())]);
    assert!(export(&[]).expect(2).stderr.contains("is not empty"));
    std::fs::write(folder.join("sessions").join(&first).join("own"), "").unwrap();
    let exported = statuses(&export(&["--add"]).expect(0).stdout);
    assert_eq!(
        exported,
        [
            (first.clone(), "exists".to_owned()),
            (second, "exported".to_owned())
        ]
    );
    assert!(folder.join("sessions").join(&first).join("own").exists());
    assert!(
        export(&["--add", "missing"])
            .expect(2)
            .stderr
            .contains("no conversation missing")
    );
}
