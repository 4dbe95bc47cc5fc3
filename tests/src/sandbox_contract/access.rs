//! Cases for operations other than actions: processes, the environment, terminals, files and ports.

use std::sync::Mutex;
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxError, StreamTarget, TransferKind};
use protocol::ProcessId;
use protocol::sandbox_api::{
    ExitReason, FileKind, FileMode, FrameDecoder, OutputStream, ProcessExit, ProcessRequest,
    TerminalInput, TerminalOutput, TerminalQuery,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Backend, create_sandbox, remove, run, spec};

fn program(argv: &[&str]) -> ProcessRequest {
    ProcessRequest {
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        ..ProcessRequest::new(argv.iter().copied())
    }
}

async fn exec(
    sandbox: &dyn Sandbox,
    id: &str,
    argv: &[&str],
    stdin: Option<Vec<u8>>,
) -> (ProcessExit, Vec<u8>, Vec<u8>) {
    let output: Mutex<(Vec<u8>, Vec<u8>)> = Mutex::default();
    let on_output = |stream, chunk: OutputChunk<'_>| {
        let OutputChunk::Bytes { bytes, offset } = chunk else {
            panic!("a gap: {chunk:?}")
        };
        let mut output = output.lock().unwrap();
        let (stdout, stderr) = &mut *output;
        let kept = if stream == OutputStream::Stdout {
            stdout
        } else {
            stderr
        };
        assert_eq!(offset, kept.len() as u64, "output out of order");
        kept.extend_from_slice(bytes);
    };
    let id: ProcessId = id.parse().unwrap();
    let stdin = stdin.map(|bytes| Box::new(std::io::Cursor::new(bytes)) as _);
    let exit = sandbox
        .processes()
        .unwrap()
        .exec(&id, &program(argv), stdin, &on_output)
        .await
        .unwrap();
    let (stdout, stderr) = output.into_inner().unwrap();
    (exit, stdout, stderr)
}

/// Stdin, stdout and stderr carry exact bytes, and exit codes and signals are reported.
pub async fn process_streams_are_exact_and_separate(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let input: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let (exit, stdout, stderr) = exec(&*sandbox, "cat", &["cat"], Some(input.clone())).await;
    assert_eq!((exit.code, exit.reason), (Some(0), ExitReason::Exited));
    assert!(stdout == input, "{} of {} bytes", stdout.len(), input.len());
    assert_eq!(stderr, b"");
    let script = "echo $GREETING; echo oops >&2; exit 7";
    let (exit, stdout, stderr) = exec(&*sandbox, "apart", &["sh", "-c", script], None).await;
    assert_eq!(
        (exit.code, &stdout[..], &stderr[..]),
        (Some(7), &b"hello\n"[..], &b"oops\n"[..])
    );
    let (exit, ..) = exec(&*sandbox, "killed", &["sh", "-c", "kill -9 $$"], None).await;
    assert_eq!(exit.signal, Some(9));
    // A program that ignores its stdin exits too.
    let (exit, ..) = exec(&*sandbox, "deaf", &["true"], Some(input)).await;
    assert_eq!(exit.code, Some(0));
    let none = sandbox
        .processes()
        .unwrap()
        .exec(
            &"none".parse().unwrap(),
            &program(&["no-such-program"]),
            None,
            &|_, _| {},
        )
        .await;
    let none = none.unwrap_err();
    assert!(
        matches!(none, SandboxError::NoProgram { exists: false, .. }),
        "{none}"
    );
    assert!(none.to_string().contains("no-such-program"));
    remove(backend, sandbox).await;
}

/// A program that is killed has an exit status.
pub async fn killed_process_ends_with_its_process_tree(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let id: ProcessId = "sleeper".parse().unwrap();
    let request = program(&["sh", "-c", "sleep 1000 & echo started; wait"]);
    let started = tokio::sync::Notify::new();
    let on_output = |_, _: OutputChunk<'_>| started.notify_one();
    let end = async {
        started.notified().await;
        sandbox
            .processes()
            .unwrap()
            .kill_process(&id)
            .await
            .unwrap();
    };
    let (exit, ()) = tokio::join!(
        sandbox
            .processes()
            .unwrap()
            .exec(&id, &request, None, &on_output),
        end
    );
    assert_eq!(exit.unwrap().reason, ExitReason::Killed);
    sandbox
        .processes()
        .unwrap()
        .kill_process(&id)
        .await
        .unwrap();
    remove(backend, sandbox).await;
}

/// Requested variables are set from the first command on, and later sets replace them.
pub async fn commands_have_the_requested_environment(backend: &dyn Backend) {
    let mut spec = spec(backend);
    spec.environment = [("TOKEN".to_owned(), "s3cret".to_owned())].into();
    let sandbox = backend.provider().create(&spec, &|_| {}).await.unwrap();
    assert_eq!(
        run(&*sandbox, 1, "echo $TOKEN").await.content.trim(),
        "s3cret"
    );
    sandbox
        .processes()
        .unwrap()
        .set_environment(&[("OTHER".to_owned(), "o".to_owned())].into())
        .await
        .unwrap();
    let (_, stdout, _) = exec(&*sandbox, "env", &["sh", "-c", "echo [$TOKEN$OTHER]"], None).await;
    assert_eq!(stdout, b"[o]\n");
    remove(backend, sandbox).await;
}

/// A terminal passes input, output, its size and the exit status.
pub async fn terminal_has_size_keys_and_an_exit_code(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let query = TerminalQuery {
        columns: 99,
        rows: 31,
        command: Some("stty size; read word; echo got $word; exit 5".into()),
        ..TerminalQuery::default()
    };
    let mut stream = sandbox
        .streams()
        .unwrap()
        .open(&StreamTarget::Terminal(query))
        .await
        .unwrap();
    let mut typed = Vec::new();
    TerminalInput::Keys(b"green\r".to_vec())
        .encode(&mut typed)
        .unwrap();
    stream.write_all(&typed).await.unwrap();
    let (mut shown, mut decoder, mut buffer) = (
        String::new(),
        FrameDecoder::<TerminalOutput>::default(),
        [0; 4096],
    );
    let exit = loop {
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "closed after {shown:?}");
        decoder.push(&buffer[..count]);
        if let Some(exit) =
            std::iter::from_fn(|| decoder.next_frame().unwrap()).find_map(|output| match output {
                TerminalOutput::Output(bytes) => {
                    shown.push_str(&String::from_utf8_lossy(&bytes));
                    None
                }
                TerminalOutput::Exit(exit) => Some(exit),
            })
        {
            break exit;
        }
    };
    assert!(
        shown.contains("31 99") && shown.contains("got green"),
        "{shown:?}"
    );
    assert_eq!(exit.code, Some(5));
    remove(backend, sandbox).await;
}

/// Uploaded files and folders are downloaded unchanged.
pub async fn files_and_folders_are_transferred(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let content: Vec<u8> = (0..5_000_000_u32)
        .map(|number| (number % 253) as u8)
        .collect();
    let source = || Box::new(std::io::Cursor::new(content.clone())) as _;
    sandbox
        .files()
        .unwrap()
        .upload(
            "a dir/file?&x",
            TransferKind::File,
            Some(FileMode::from_bits(0o750)),
            source(),
        )
        .await
        .unwrap();
    let status = sandbox
        .files()
        .unwrap()
        .status("a dir/file?&x")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (status.kind, status.size, status.mode),
        (FileKind::File, 5_000_000, FileMode::from_bits(0o750))
    );
    assert_eq!(
        sandbox.files().unwrap().status("a dir/none").await.unwrap(),
        None
    );
    let mut came = Vec::new();
    sandbox
        .files()
        .unwrap()
        .download("a dir/file?&x", TransferKind::File)
        .await
        .unwrap()
        .read_to_end(&mut came)
        .await
        .unwrap();
    assert!(came == content);
    let mut archive = Vec::new();
    sandbox
        .files()
        .unwrap()
        .download("a dir", TransferKind::Tree)
        .await
        .unwrap()
        .read_to_end(&mut archive)
        .await
        .unwrap();
    sandbox
        .files()
        .unwrap()
        .upload(
            "copy",
            TransferKind::Tree,
            None,
            Box::new(std::io::Cursor::new(archive)),
        )
        .await
        .unwrap();
    let sums = run(
        &*sandbox,
        1,
        "cmp 'a dir/file?&x' 'copy/file?&x' && echo same",
    )
    .await;
    assert_eq!(sums.content.trim(), "same", "{sums:?}");
    let missing = sandbox
        .files()
        .unwrap()
        .download("none", TransferKind::File)
        .await
        .err()
        .unwrap();
    assert!(missing.to_string().contains("404"), "{missing}");
    // A failed upload leaves nothing.
    let failing = failing_source();
    let failed = sandbox
        .files()
        .unwrap()
        .upload("half", TransferKind::File, None, failing)
        .await
        .unwrap_err();
    let failed = engine::errors::format_chain(&failed);
    assert!(failed.ends_with("the disk is gone"), "{failed}");
    assert_eq!(sandbox.files().unwrap().status("half").await.unwrap(), None);
    remove(backend, sandbox).await;
}

/// Returns a source that yields a megabyte and then an error.
fn failing_source() -> engine::sandbox::ByteSource {
    struct FailingReader;
    impl tokio::io::AsyncRead for FailingReader {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("the disk is gone")))
        }
    }
    Box::new(std::io::Cursor::new(vec![7; 1 << 20]).chain(FailingReader))
}

/// A connection to a port without a listener fails within the requested time.
pub async fn connect_fails_when_the_port_has_no_listener(backend: &dyn Backend) {
    let sandbox = create_sandbox(backend).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    assert!(
        !sandbox
            .streams()
            .unwrap()
            .wait_for_port(free, Duration::from_millis(50))
            .await
            .unwrap()
    );
    let error = sandbox
        .streams()
        .unwrap()
        .open(&StreamTarget::Port(free))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("nothing listens"), "{error}");
    assert!(
        sandbox
            .streams()
            .unwrap()
            .ports()
            .await
            .unwrap()
            .iter()
            .all(|port| port.port != free)
    );
    remove(backend, sandbox).await;
}
