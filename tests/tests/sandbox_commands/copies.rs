//! `glovebox sandbox cp`.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Instant;

use super::{SandboxFixture, refused};
use crate::skip::skip_without;

#[test]
fn folder_is_unchanged_when_copied_in_and_out() {
    for fixture in SandboxFixture::all() {
        let source = fixture.home.path().join("source");
        std::fs::create_dir_all(source.join("deep/er")).unwrap();
        std::fs::create_dir(source.join("empty")).unwrap();
        for (name, content) in [
            ("plain", "1"),
            ("a b'c\"d$e\nf\\g", "2"),
            ("deep/er/-rf", "3"),
            ("ünï", "4"),
        ] {
            std::fs::write(source.join(name), content).unwrap();
        }
        std::fs::write(source.join("run.sh"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(
            source.join("run.sh"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("plain", source.join("link")).unwrap();
        let name = fixture.name();
        fixture
            .run(&["cp", source.to_str().unwrap(), &fixture.path("in/side")])
            .expect(0);
        let target = fixture.home.path().join("target");
        fixture
            .run(&["cp", &fixture.path("in/side"), target.to_str().unwrap()])
            .expect(0);
        let compared = std::process::Command::new("diff")
            .arg("-r")
            .args([&source, &target])
            .output()
            .unwrap();
        assert!(compared.status.success(), "{compared:?}");
        assert_eq!(
            std::fs::read_link(target.join("link")).unwrap(),
            Path::new("plain")
        );
        assert_eq!(
            target
                .join("run.sh")
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o755
        );
        // Into an existing folder, and only the contents.
        fixture
            .run(&["cp", &fixture.path("in/side"), target.to_str().unwrap()])
            .expect(0);
        assert!(target.join("side/deep/er/-rf").exists());
        fixture
            .run(&[
                "cp",
                &format!("{}/.", source.display()),
                &format!("{name}:"),
            ])
            .expect(0);
        assert_eq!(fixture.exec(&["cat", "deep/er/-rf"]).expect(0).stdout, "3");
        fixture.end();
    }
}

#[test]
fn large_file_is_unchanged_when_copied_in_and_out() {
    for fixture in SandboxFixture::all() {
        let content: Vec<u8> = (0..50_u32 << 20)
            .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let file = fixture.home.write("large", &content);
        let began = Instant::now();
        fixture
            .run(&["cp", file.to_str().unwrap(), &fixture.path("large")])
            .expect(0);
        let up = began.elapsed();
        fixture
            .run(&["cp", &fixture.path("large"), "back"])
            .expect(0);
        println!(
            "{}: 50 MiB in {up:?} up, {:?} down",
            fixture.runtime,
            began.elapsed() - up
        );
        assert!(std::fs::read(fixture.home.path().join("back")).unwrap() == content);
        let out = fixture
            .command(&["cp", &fixture.path("large"), "-"])
            .output()
            .unwrap();
        assert!(out.stdout == content);
        fixture.end();
    }
}

#[test]
fn link_out_of_the_folder_is_skipped_and_reported() {
    for fixture in SandboxFixture::all() {
        let outside = fixture.home.write("outside", "untouched");
        let script = format!(
            "mkdir t; echo x >t/file; ln -s {} t/out; ln -s ../.. t/up; ln -s file t/in",
            outside.display()
        );
        fixture.exec(&["sh", "-c", &script]).expect(0);
        let copied = fixture.run(&["cp", &fixture.path("t"), "t"]).expect(1);
        assert!(
            copied.stderr.contains("left out out: ") && copied.stderr.contains("left out up: "),
            "{copied:?}"
        );
        let target = fixture.home.path().join("t");
        assert!(std::fs::symlink_metadata(target.join("out")).is_err());
        assert_eq!(std::fs::read_to_string(target.join("in")).unwrap(), "x\n");
        // The same for uploads.
        symlink("/etc/passwd", target.join("out")).unwrap();
        let copied = fixture.run(&["cp", "t", &fixture.path("u")]).expect(1);
        assert!(copied.stderr.contains("left out out: "), "{copied:?}");
        assert_eq!(fixture.exec(&["ls", "u"]).expect(0).stdout, "file\nin\n");
        // An existing link in the target is not followed.
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::create_dir(&target).unwrap();
        symlink(fixture.home.path(), target.join("t")).unwrap();
        fixture
            .exec(&["sh", "-c", "mkdir t/t; echo hostile >t/t/outside"])
            .expect(0);
        let through = fixture.run(&["cp", &fixture.path("t/."), "t"]);
        refused(&through, 1, "not a folder");
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "untouched");
        refused(
            &fixture.run(&["cp", &fixture.path("nothing"), "."]),
            2,
            "there is no nothing",
        );
        for source in ["t", "t/file"] {
            let missing = fixture.run(&["cp", &fixture.path(source), "missing/copy"]);
            refused(&missing, 2, "there is no folder missing");
        }
        refused(
            &fixture.run(&["cp", "a", "b"]),
            2,
            "exactly one of SRC and DST",
        );
        fixture.end();
    }
}

/// Root in a sandbox may read everything, so that the entry is a pipe.
#[test]
fn entry_that_is_left_out_in_the_sandbox_is_reported() {
    for fixture in SandboxFixture::all() {
        let script = "mkdir t; echo x >t/file; mkfifo t/pipe; mkdir t/z; echo y >t/z/file";
        fixture.exec(&["sh", "-c", script]).expect(0);
        for target in ["t", "-"] {
            let copied = fixture.run(&["cp", &fixture.path("t"), target]).expect(1);
            assert!(
                copied.stderr.contains("left out pipe: neither a file"),
                "{copied:?}"
            );
        }
        let copy = fixture.home.path().join("t/z/file");
        assert_eq!(std::fs::read_to_string(copy).unwrap(), "y\n");
        fixture.end();
    }
}

#[test]
fn upload_leaves_out_what_the_user_may_not_read() {
    if rustix::process::geteuid().is_root() && skip_without("setpriv") {
        return;
    }
    let fixture = SandboxFixture::local();
    let at = fixture.home.path().join("t");
    for name in ["a", "locked", "locked/b", "z"] {
        if name == "locked" {
            std::fs::create_dir(at.join(name)).unwrap();
        } else {
            fixture.home.write(&format!("t/{name}"), name);
        }
    }
    for name in ["a", "locked"] {
        std::fs::set_permissions(at.join(name), Permissions::from_mode(0o000)).unwrap();
    }
    let target = fixture.path("u");
    let arguments = ["sandbox", "cp", "--runtime", "local", "t", &target];
    let copied = fixture.home.run_without_capabilities(&arguments).expect(1);
    for name in ["a", "locked"] {
        let expected = format!("left out {name}: Permission denied");
        assert!(copied.stderr.contains(&expected), "{copied:?}");
    }
    assert_eq!(fixture.exec(&["ls", "u"]).expect(0).stdout, "z\n");
    fixture.end();
}

#[test]
fn upload_names_the_file_that_cannot_be_read() {
    for fixture in SandboxFixture::all() {
        // Nothing is at the address 0, so that even root cannot read it.
        let source = format!("/proc/{}/mem", std::process::id());
        let copied = fixture.run(&["cp", &source, &fixture.path("in")]).expect(1);
        assert!(
            copied.stderr.contains(&source) && copied.stderr.contains("Input/output error"),
            "{copied:?}"
        );
        fixture.end();
    }
}

/// A sandbox that can write the target folder puts a link there, with the name of the file that its
/// user downloads.
#[test]
fn download_is_refused_when_its_name_is_a_link() {
    for fixture in SandboxFixture::all() {
        let keys = fixture.home.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("authorized_keys"), "own").unwrap();
        symlink(&keys, fixture.home.path().join("result.json")).unwrap();
        fixture
            .exec(&[
                "sh",
                "-c",
                "mkdir result.json; echo hostile >result.json/authorized_keys",
            ])
            .expect(0);
        let source = fixture.path("result.json");
        refused(
            &fixture.run(&["cp", &source, "."]),
            1,
            "\"result.json\" is not a folder, or is a link",
        );
        refused(
            &fixture.run(&["cp", &source, "result.json"]),
            2,
            "result.json is a link to ",
        );
        refused(
            &fixture.run(&["cp", &format!("{source}/."), "./result.json/"]),
            2,
            "result.json is a link to ",
        );
        refused(
            &fixture.run(&["cp", "result.json", &fixture.path("up")]),
            2,
            "result.json is a link to ",
        );
        // A file replaces the link.
        fixture
            .exec(&["sh", "-c", "rm -r result.json; echo mine >result.json"])
            .expect(0);
        fixture.run(&["cp", &source, "."]).expect(0);
        assert_eq!(
            std::fs::read_to_string(fixture.home.path().join("result.json")).unwrap(),
            "mine\n"
        );
        assert_eq!(
            std::fs::read_to_string(keys.join("authorized_keys")).unwrap(),
            "own"
        );
        assert_eq!(std::fs::read_dir(keys).unwrap().count(), 1);
        fixture.end();
    }
}
