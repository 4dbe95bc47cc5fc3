//! `glovebox conversations` and what is left of a run: ids by their beginnings, trajectories, and no empty files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::glovebox::{Home, bash, finish};

fn run(home: &Home, responses: &Value, more: &[&str]) {
    let model = home.script(responses);
    let arguments = ["run", "--json", "--runtime", "local", "-t", "work", "-l", &model];
    home.run(&[&arguments, more].concat()).expect(0);
}

fn names(folder: &Path) -> Vec<PathBuf> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_beginning_of_an_id_is_enough_if_no_other_has_it() {
    let home = Home::new();
    (0..2).for_each(|_| run(&home, &json!([finish()]), &[]));
    let [later, earlier] = home.conversations().try_into().unwrap();
    let shared = later.bytes().zip(earlier.bytes()).take_while(|(one, other)| one == other).count();
    let whole = home.run(&["conversations", "show", &earlier, "--json"]).expect(0).stdout;
    let begun = home.run(&["conversations", "show", &earlier[..=shared], "--json"]).expect(0).stdout;
    assert_eq!(begun, whole);
    for arguments in [
        ["conversations", "show", &later[..shared]].as_slice(),
        &["conversations", "fork", &later[..shared]],
        &["conversations", "export", &later[..shared]],
        &["resume", &later[..shared]],
    ] {
        let said = home.run(arguments).expect(2).stderr;
        assert!(said.contains(&later) && said.contains(&earlier), "{said}");
        assert!(
            home.run(&[&arguments[..arguments.len() - 1], &["x"]].concat())
                .expect(2)
                .stderr
                .contains("no conversation x")
        );
    }
    let model = home.script(&json!([finish(), finish()]));
    home.run(&["resume", &later[..=shared], "-t", "more", "-l", &model]).expect(0);
    for words in ["glovebox resume", "glovebox conversations export"] {
        let offered = home.completed(words, None);
        assert!([&later, &earlier].iter().all(|id| offered.contains(id.as_str())), "{offered}");
    }
    home.assert_nothing_runs();
}

#[test]
fn an_exported_trajectory_is_the_one_that_is_saved_and_can_be_done_again() {
    let home = Home::new();
    let saved = home.path().join("saved.json");
    run(&home, &json!([bash("echo 1"), finish()]), &["--save-trajectory", saved.to_str().unwrap()]);
    let saved = std::fs::read_to_string(saved).unwrap();
    let id = &home.conversations()[0];
    assert_eq!(home.run(&["conversations", "export", id]).expect(0).stdout, saved);
    assert_eq!(home.run(&["conversations", "export", id, "-o", "-"]).expect(0).stdout, saved);
    assert_eq!(home.run(&["conversations", "export", id, "-o", "."]).expect(0).stdout, "");
    let exported = home.path().join(format!("{id}.json"));
    assert_eq!(std::fs::read_to_string(&exported).unwrap(), saved);
    home.run(&["replay", "--diff", "--runtime", "local", exported.to_str().unwrap()]).expect(0);
    home.write("wrong.json", r#"[{"action": "run", "args": {"command": "true"}}]"#);
    let said = home.run(&["replay", "wrong.json", "--runtime", "local"]).expect(2).stderr;
    assert!(said.contains("entry 0, counted from 0: missing field `id`"), "{said}");
    home.assert_nothing_runs();
}

#[test]
fn what_a_kill_left_is_not_called_running() {
    let home = Home::new();
    let model = home.script(&json!([bash("sleep 1000"), finish()]));
    let mut run =
        home.start(&mut home.glovebox(&["run", "--json", "--runtime", "local", "-t", "work", "-l", &model]));
    run.until("the command", |event| event["action"] == "run");
    let told = |home: &Home| {
        let list = home.run(&["conversations", "ls", "--json"]).expect(0).stdout;
        let list: Vec<Value> = serde_json::from_str(&list).unwrap();
        let text = home.run(&["conversations", "ls"]).expect(0).stdout;
        (list[0]["agent_state"].clone(), list[0]["interrupted"].clone(), text.contains("  interrupted  "))
    };
    assert_eq!(told(&home), (json!("running"), json!(false), false));
    run.kill();
    assert_eq!(told(&home), (json!("running"), json!(true), true));
    home.run(&["sandbox", "prune", "--runtime", "local"]).expect(0);
    home.assert_nothing_runs();
}

#[test]
fn a_trajectory_that_cannot_be_saved_is_refused_before_anything_is_done() {
    let home = Home::new();
    home.write("file", "");
    let model = home.script(&json!([finish()]));
    let arguments = ["run", "--runtime", "local", "-t", "work", "-l", &model, "--save-trajectory"];
    let said = home.run(&[arguments.as_slice(), &["file/saved.json"]].concat()).expect(2).stderr;
    assert!(said.contains("saving the trajectory to file/saved.json"), "{said}");
    assert!(home.conversations().is_empty());
    home.run(&[arguments.as_slice(), &["new/folder/saved.json"]].concat()).expect(0);
    assert!(home.path().join("new/folder/saved.json").is_file());
    home.run(&[arguments.as_slice(), &["another/"]].concat()).expect(0);
    assert_eq!(names(&home.path().join("another")).len(), 1);
    home.assert_nothing_runs();
}

#[test]
fn what_is_empty_after_a_run_goes_and_comes_again_with_a_resume() {
    let home = Home::new();
    let [locks, workspaces] = ["locks", "workspaces"].map(|name| home.path().join(".glovebox").join(name));
    run(&home, &json!([bash("true"), finish()]), &[]);
    assert_eq!((names(&locks), names(&workspaces)), (vec![], vec![]));
    let id = &home.conversations()[0];
    let model = home.script(&json!([finish(), finish(), bash("echo 1 > file"), finish()]));
    home.run(&["resume", id, "-t", "write", "-l", &model]).expect(0);
    assert_eq!((names(&locks), names(&workspaces)), (vec![], vec![workspaces.join(id)]));
    assert_eq!(std::fs::read_to_string(workspaces.join(id).join("file")).unwrap(), "1\n");
    // A fork has its own copy; one of a folder that was chosen leaves none.
    let fork = home.run(&["conversations", "fork", id]).expect(0).stdout;
    assert!(workspaces.join(fork.trim()).join("file").exists());
    run(&home, &json!([finish()]), &["-d", home.workspace().to_str().unwrap()]);
    home.run(&["conversations", "fork", &home.conversations()[0]]).expect(0);
    assert_eq!(names(&workspaces).len(), 2);
    home.assert_nothing_runs();
}
