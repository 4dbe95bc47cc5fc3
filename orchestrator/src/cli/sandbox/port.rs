//! `glovebox sandbox port`: forwards ports of this machine to ports inside, through the connection
//! to the action server.

mod host_guard;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use engine::sandbox::{Sandbox, SandboxError, StreamTarget};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::arguments::SandboxChoice;
use crate::cli::interrupts::Interrupts;
use crate::cli::{print, table};
use crate::config::Overrides;
use crate::exit::Exit;
use host_guard::{HostGuard, MISDIRECTED};

/// Maximum number of concurrent connections, below the action server's limit of tunnels. A web page
/// opens a dozen. More wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 200;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the address of each port and a URL for browsers, and forwards until ^C. Without BIND, only this machine can connect. The \
sandbox needs no network. Without ports, lists those with a listener in the sandbox.
Examples:
  glovebox sandbox port box                   list ports with a listener
  glovebox sandbox port box 8080              127.0.0.1:8080 to port 8080
  glovebox sandbox port box 9090:8080         127.0.0.1:9090 to port 8080
  glovebox sandbox port box 0:8080 --wait     any free port; wait for a listener on 8080
  glovebox sandbox port box 0.0.0.0:80:8080   also for other machines")]
pub(super) struct PortArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Port of this machine (0 for any free one) and port in the sandbox. One number is both. BIND
    /// is the address to listen on, by default 127.0.0.1.
    #[arg(value_name = "[[BIND:]HOST:]SANDBOX")]
    ports: Vec<Forward>,

    /// Wait until the ports have listeners in the sandbox, at most this long.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60")]
    wait: Option<u32>,

    /// Print the list as JSON.
    #[arg(long, conflicts_with = "ports")]
    json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Forward {
    /// Address on this machine.
    host: SocketAddr,
    /// Port in the sandbox.
    sandbox: u16,
}

impl FromStr for Forward {
    type Err = &'static str;

    /// Parses the syntax of `docker run -p` and `ssh -L`, with IPv6 addresses in brackets.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a port, or HOST:SANDBOX as 9090:8080, or BIND:HOST:SANDBOX as 0.0.0.0:80:8080";
        let port = |text: &str| text.parse::<u16>().map_err(|_| EXPECTED);
        let (rest, sandbox) = text.rsplit_once(':').unwrap_or((text, text));
        let sandbox = port(sandbox)?;
        let host = match rest.rsplit_once(':') {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, port(rest)?)),
            Some(("localhost", host)) => SocketAddr::from((Ipv4Addr::LOCALHOST, port(host)?)),
            Some(_) => rest.parse().map_err(|_| EXPECTED)?,
        };
        if sandbox == 0 {
            Err(EXPECTED)
        } else {
            Ok(Self { host, sandbox })
        }
    }
}

pub(super) async fn run(arguments: PortArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let work = async {
        let sandbox: Arc<dyn Sandbox> = arguments.sandbox.connect(overrides).await?.1.into();
        match arguments.ports.as_slice() {
            [] => list(sandbox.as_ref(), arguments.json).await,
            _ => forward(&sandbox, &arguments).await,
        }
    };
    interrupts
        .unless_interrupted(work)
        .await
        .unwrap_or(Ok(Exit::Interrupted))
}

async fn list(sandbox: &dyn Sandbox, as_json: bool) -> anyhow::Result<Exit> {
    let ports = sandbox.streams()?.ports().await?;
    if as_json {
        print::line(&serde_json::to_string(&ports)?)?;
        return Ok(Exit::Finished);
    }
    let rows: Vec<_> = ports
        .into_iter()
        .map(|port| {
            let programs: Vec<_> = port
                .processes
                .iter()
                .map(|process| format!("{} ({})", process.name, process.pid))
                .collect();
            [
                port.port.to_string(),
                port.addresses.join(", "),
                programs.join(", "),
            ]
        })
        .collect();
    table::print(["PORT", "ADDRESSES", "PROGRAMS"], &rows)?;
    Ok(Exit::Finished)
}

/// Returns a name of this machine for the sandbox alone. Browsers would send the cookies of other
/// programs of this machine to `127.0.0.1`, among them sessions of `glovebox serve`. The prefix
/// keeps it apart from the names that the server has: `glovebox.localhost`, and one for each port.
fn browser_host(sandbox: &str) -> String {
    const MAX_NAME_LENGTH: usize = 38;
    let label: String = sandbox
        .to_ascii_lowercase()
        .chars()
        .filter(|char| char.is_ascii_alphanumeric() || *char == '-')
        .take(MAX_NAME_LENGTH)
        .collect();
    let label = label.trim_matches('-');
    if label == sandbox {
        return format!("sandbox-{label}.localhost");
    }
    // Another name may have the same letters.
    let mut hasher = DefaultHasher::new();
    sandbox.hash(&mut hasher);
    format!("sandbox-{label}-{:016x}.localhost", hasher.finish())
}

/// Forwards until the sandbox is lost, which is an error.
async fn forward(sandbox: &Arc<dyn Sandbox>, arguments: &PortArguments) -> anyhow::Result<Exit> {
    let name = arguments.sandbox.name.conversation().to_string();
    let browser_host: Arc<str> = browser_host(&name).into();
    let mut listeners = Vec::new();
    for Forward { host, sandbox } in &arguments.ports {
        let listener = TcpListener::bind(host)
            .await
            .with_context(|| format!("cannot listen on {host}: choose another port"))?;
        listeners.push((*sandbox, listener));
    }
    if let Some(seconds) = arguments.wait {
        for (inside, _) in &listeners {
            if !sandbox
                .streams()?
                .wait_for_port(*inside, Duration::from_secs(seconds.into()))
                .await?
            {
                anyhow::bail!("port {inside} in the sandbox has no listener after {seconds} s");
            }
        }
    }
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut serving = JoinSet::new();
    for (inside, listener) in listeners {
        let address = listener.local_addr()?;
        print::line(&address.to_string())?;
        if address.ip().is_loopback() {
            print::note(&format!(
                "in a browser: http://{browser_host}:{}\n",
                address.port()
            ));
        }
        serving.spawn(serve(
            Arc::clone(sandbox),
            (inside, Arc::clone(&browser_host)),
            listener,
            Arc::clone(&permits),
        ));
    }
    match serving.join_next().await {
        Some(result) => result.context("cannot serve a port")?,
        None => Ok(Exit::Finished),
    }
}

async fn serve(
    sandbox: Arc<dyn Sandbox>,
    (inside, browser_host): (u16, Arc<str>),
    listener: TcpListener,
    permits: Arc<Semaphore>,
) -> anyhow::Result<Exit> {
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&permits).acquire_owned() => permit?,
            Some(result) = connections.join_next() => {
                result.context("cannot forward a connection")??;
                continue;
            }
        };
        let connection = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted.context("cannot accept a connection")?.0,
                Some(result) = connections.join_next() => result.context("cannot forward a connection")??,
            }
        };
        let (sandbox, browser_host) = (Arc::clone(&sandbox), Arc::clone(&browser_host));
        connections.spawn(async move {
            let _permit = permit;
            forward_connection(sandbox.as_ref(), inside, connection, &browser_host).await
        });
    }
}

/// Forwards one connection. Fails only if the sandbox is lost; other errors end only this
/// connection.
async fn forward_connection(
    sandbox: &dyn Sandbox,
    inside: u16,
    connection: TcpStream,
    browser_host: &str,
) -> anyhow::Result<()> {
    let mut tunnel = match sandbox.streams()?.open(&StreamTarget::Port(inside)).await {
        Ok(tunnel) => tunnel,
        Err(lost @ SandboxError::Lost { .. }) => return Err(lost.into()),
        Err(error) => {
            print::warning(&format!(
                "cannot connect to port {inside} in the sandbox: {error}"
            ));
            return Ok(());
        }
    };
    // Either side may close the connection at any time.
    let _ = connection.set_nodelay(true);
    let mut connection = HostGuard::new(connection, browser_host);
    let _ = copy_bidirectional(&mut connection, &mut tunnel).await;
    if let Some(mut misdirected) = connection.into_misdirected() {
        let _ = misdirected.write_all(MISDIRECTED).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Forward, browser_host};

    #[test]
    fn sandbox_has_a_host_of_its_own_in_browsers() {
        assert_eq!(browser_host("box"), "sandbox-box.localhost");
        assert_eq!(browser_host("my-box-2"), "sandbox-my-box-2.localhost");
        let names = [
            "my_box", "my-box", "My-Box", "mybox", "Glovebox", "glovebox", "-é-", "-",
        ];
        let long = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(60)));
        let hosts = names
            .map(browser_host)
            .into_iter()
            .chain(long.map(|name| browser_host(&name)));
        let mut hosts: Vec<String> = hosts.collect();
        assert!(
            hosts
                .iter()
                .all(|host| host.len() <= 63 + ".localhost".len())
        );
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), names.len() + 2, "{hosts:?}");
    }

    #[test]
    fn port_syntax_is_that_of_docker_and_ssh() {
        for (text, host, sandbox) in [
            ("8080", "127.0.0.1:8080", 8080),
            ("9090:80", "127.0.0.1:9090", 80),
            ("0:80", "127.0.0.1:0", 80),
            ("localhost:9090:80", "127.0.0.1:9090", 80),
            ("0.0.0.0:9090:80", "0.0.0.0:9090", 80),
            ("[::1]:9090:80", "[::1]:9090", 80),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Forward {
                    host: host.parse().unwrap(),
                    sandbox
                }),
                "{text}"
            );
        }
        for wrong in [
            "",
            "0",
            "x",
            "80:",
            ":80",
            "80:0",
            "80:90:1",
            "::1:80:90",
            "name:80:90",
            "70000",
            "-1",
        ] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }
}
