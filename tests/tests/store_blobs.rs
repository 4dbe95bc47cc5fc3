//! Event stores with large events in blobs, in a folder and in S3.

mod folder {
    //! All events of a SQLite store in a folder.

    use tests::store_contract::blobs::{FolderPlace, WithBlobs};
    use tests::store_contract::sqlite::SqliteBackend;

    tests::store_contract!(Some(WithBlobs::all(
        SqliteBackend::new(),
        FolderPlace::new()
    )));
    tests::blob_contract!(Some(WithBlobs::large(
        SqliteBackend::new(),
        FolderPlace::new()
    )));
}

mod s3 {
    //! All events of a PostgreSQL store in S3.

    use tests::store_contract::blobs::WithBlobs;
    use tests::store_contract::postgres::PostgresBackend;

    use crate::moto::Moto;

    async fn backend(
        new: fn(PostgresBackend, Moto) -> WithBlobs<PostgresBackend, Moto>,
    ) -> Option<WithBlobs<PostgresBackend, Moto>> {
        Some(new(PostgresBackend::create()?, Moto::start().await?))
    }

    tests::store_contract!(backend(WithBlobs::all).await);
    tests::blob_contract!(backend(WithBlobs::large).await);
}

mod sqlite_s3 {
    //! Large events of a SQLite store in S3: its overviews are completed on a blocking thread.

    use tests::store_contract::blobs::WithBlobs;
    use tests::store_contract::sqlite::SqliteBackend;

    use crate::moto::Moto;

    tests::store_contract!(
        Moto::start().await.map(|moto| WithBlobs::large(SqliteBackend::new(), moto));
        blobs::only_large_events_are_in_blobs,
        blobs::missing_overview_is_completed_from_blobs,
    );
}

mod postgres_folder {
    //! Large events of a PostgreSQL store in a folder.

    use tests::store_contract::blobs::{FolderPlace, WithBlobs};
    use tests::store_contract::postgres::PostgresBackend;

    tests::blob_contract!(
        PostgresBackend::create().map(|database| WithBlobs::large(database, FolderPlace::new()))
    );
}

mod places {
    //! Folders and servers that are not as they should be.

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use axum::Router;
    use axum::http::StatusCode;
    use engine::events::StoreError;
    use secrecy::SecretString;
    use storage::{BlobStore, S3Options};
    use tests::store_contract::blobs::{FolderPlace, WithBlobs};
    use tests::store_contract::sqlite::SqliteBackend;
    use tests::store_contract::{
        SqlBackend as _, StoreBackend as _, conversation, event, event_with, log,
    };

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn folder_is_private_and_removed_with_unfinished_files() {
        let place = FolderPlace::new();
        let (path, a) = (place.path(), conversation("a"));
        let backend = WithBlobs::all(SqliteBackend::new(), place);
        let store = backend.open().await;
        assert!(!path.exists());
        store.append(&a, &[event(0)]).await.unwrap();
        assert_eq!((mode(&path), mode(&path.join("a"))), (0o700, 0o700));
        // As a process leaves it that is killed while it writes.
        let name = fs::read_dir(path.join("a"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .file_name();
        fs::write(
            path.join("a").join(format!("{}#1", name.to_str().unwrap())),
            "half of",
        )
        .unwrap();
        store.append(&a, &[event(1)]).await.unwrap();
        assert_eq!(log(&*store, &a).await, [event(0), event(1)]);
        store.remove(&a).await.unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn full_server_is_a_full_disk() {
        let full = Router::new().fallback(async || StatusCode::INSUFFICIENT_STORAGE);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, full).await });
        let variables = [
            ("AWS_ENDPOINT_URL", url.as_str()),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
        ];
        let blobs = BlobStore::s3(&S3Options {
            bucket: "bucket".to_owned(),
            prefix: String::new(),
            variables: variables
                .map(|(name, value)| (name, SecretString::from(value)))
                .into(),
        });
        let backend = SqliteBackend::new();
        let store = backend.open_with_blobs(blobs.unwrap()).await;
        let a = conversation("a");
        let error = store
            .append(&a, &[event_with(0, &"large ".repeat(20_000))])
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Full {
                    operation: "store a blob",
                    ..
                }
            ),
            "{error:?}"
        );
        store.append(&a, &[event(0)]).await.unwrap();
        assert_eq!(log(&*store, &a).await, [event(0)]);
        serving.abort();
    }
}

mod command_line {
    //! The place that the user names.

    use serde_json::json;
    use tests::glovebox::{CompletedRun, Home, finish};
    use tests::store_contract::blobs::BlobPlace as _;

    use crate::moto::Moto;

    /// Runs the program to completion, with more variables.
    fn run(home: &Home, arguments: &[&str], environment: &[(&str, &str)]) -> CompletedRun {
        let mut command = home.glovebox(arguments);
        CompletedRun::from_output(&command.envs(environment.iter().copied()).output().unwrap())
    }

    /// Runs a conversation with a message and returns its id.
    fn start(home: &Home, message: &str, options: &[&str], environment: &[(&str, &str)]) -> String {
        let model = home.script(&json!([finish()]));
        let arguments = [
            "run",
            "--json",
            "--runtime",
            "local",
            "-t",
            message,
            "-l",
            &model,
        ];
        run(home, &[&arguments, options].concat(), environment).expect(0);
        home.conversations().remove(0)
    }

    #[test]
    fn large_message_is_in_a_folder() {
        let home = Home::new();
        let message = "large ".repeat(15_000);
        for (options, folder) in [
            (&[] as &[&str], home.path().join(".glovebox/blobs")),
            (&["--blobs", "~/other"], home.path().join("other")),
        ] {
            let id = start(&home, &message, options, &[]);
            assert!(folder.join(&id).read_dir().unwrap().count() > 0);
            let export = home
                .run(&[&["conversations", "export", &id], options].concat())
                .expect(0)
                .stdout;
            assert!(export.contains(&message));
            home.run(&[&["conversations", "rm", &id], options].concat())
                .expect(0);
            assert_eq!(folder.read_dir().unwrap().count(), 0);
        }
        let error = home
            .run(&["conversations", "ls", "--blobs", "gs://bucket"])
            .expect(2)
            .stderr;
        assert!(
            error.contains("blobs must be a folder or s3://BUCKET/PREFIX"),
            "{error}"
        );
        home.assert_nothing_runs();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_message_is_in_s3() {
        let Some(moto) = Moto::start().await else {
            return;
        };
        let home = Home::new();
        let (endpoint, place) = (moto.endpoint(), moto.place());
        let environment = [
            ("STORE_BLOBS", place.as_str()),
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let message = "large ".repeat(15_000);
        let id = start(&home, &message, &[], &environment);
        let names = moto.names().await;
        assert!(
            !names.is_empty() && names.iter().all(|name| name.starts_with(&format!("{id}/"))),
            "{names:?}"
        );
        assert!(!home.path().join(".glovebox/blobs").exists());
        let export = run(&home, &["conversations", "export", &id], &environment)
            .expect(0)
            .stdout;
        assert!(export.contains(&message));
        run(&home, &["conversations", "rm", &id], &environment).expect(0);
        assert_eq!(moto.names().await, [""; 0]);
        home.assert_nothing_runs();
    }
}
