//! `glovebox sandbox port`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::glovebox::Home;

use super::{SandboxFixture, refused};

#[test]
fn port_on_another_address_is_bound_when_it_is_named() {
    let fixture = SandboxFixture::local();
    let name = fixture.name();
    let ports = ["port", &name, "127.0.0.2:0:8080", "localhost:0:8080"];
    let mut port = PortForward(
        fixture
            .command(&ports)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(port.0.stdout.as_mut().unwrap()).lines();
    for address in ["127.0.0.2:", "127.0.0.1:"] {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with(address), "{line}");
        TcpStream::connect(&line).unwrap();
    }
    port.interrupt();
    fixture.end();
}

/// Not a misuse, because the port may be free later.
#[test]
fn forward_fails_when_the_port_is_in_use() {
    let fixture = SandboxFixture::local();
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = used.local_addr().unwrap().port();
    let failed = fixture.run(&["port", &fixture.name(), &format!("{port}:8080")]);
    refused(&failed, 1, "Address already in use");
    fixture.end();
}

#[test]
fn forwarded_port_serves_concurrent_connections() {
    let fixture = SandboxFixture::create(Home::new(), "local", &["--unsafe-local"]);
    // An echo server of this test, which a local sandbox can reach.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inside = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    forwarded(&fixture, inside, |address| {
        let threads: Vec<_> = (0..40_u8)
            .map(|number| {
                let address = address.to_owned();
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    let sent = vec![number; 100_000];
                    let mut writer = stream.try_clone().unwrap();
                    let copy = sent.clone();
                    let writing = std::thread::spawn(move || {
                        writer.write_all(&copy).unwrap();
                        writer.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut received = Vec::new();
                    stream.read_to_end(&mut received).unwrap();
                    writing.join().unwrap();
                    assert!(received == sent);
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let list: Vec<Value> = serde_json::from_str(
        &fixture
            .run(&["port", &fixture.name(), "--json"])
            .expect(0)
            .stdout,
    )
    .unwrap();
    assert!(list.iter().any(|port| port["port"] == inside), "{list:?}");
    fixture.end();
}

/// A `port` command, killed on drop.
struct PortForward(Child);

impl PortForward {
    fn interrupt(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(130));
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_forward(fixture: &SandboxFixture, inside: u16, more: &[&str]) -> PortForward {
    let (name, ports) = (fixture.name(), format!("0:{inside}"));
    let arguments = [&["port", name.as_str(), &ports], more].concat();
    PortForward(
        fixture
            .command(&arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

fn address_of(port: &mut PortForward) -> String {
    let mut address = String::new();
    BufReader::new(port.0.stdout.as_mut().unwrap())
        .read_line(&mut address)
        .unwrap();
    address.trim().to_owned()
}

fn forwarded(fixture: &SandboxFixture, inside: u16, check: impl FnOnce(&str)) {
    let mut port = start_forward(fixture, inside, &[]);
    let address = address_of(&mut port);
    check(&address);
    port.interrupt();
    assert!(TcpStream::connect(&address).is_err());
}
