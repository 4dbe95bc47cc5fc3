//! `glovebox sandbox port`: ports of this machine that lead to ports inside, through the one connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap_complete::engine::ArgValueCompleter;
use engine::sandbox::{Door, Sandbox, SandboxError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use super::table;
use crate::cli::print;
use crate::cli::{completions, follow::Interrupts};
use crate::config::Overrides;
use crate::exit::{Exit, UsageError};

/// Below the tunnels that a server takes; a page of a browser opens a dozen. More wait to be accepted.
const MAX_CONNECTIONS: usize = 200;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the address of each, and forwards until ^C. Only programs of this machine reach it. Nothing is published, and the
sandbox needs no network.
Examples:
  glovebox sandbox port box                 lists what is listened on inside
  glovebox sandbox port box 8080            127.0.0.1:8080 leads to 8080 inside
  glovebox sandbox port box 8080:0 --wait   waits until it is listened on; any free port here")]
pub(super) struct PortArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(completions::sandboxes))]
    name: Name,

    /// A port inside, and the one of this machine that leads to it: the same, or 0 for any that is free.
    #[arg(value_name = "PORT[:LOCAL]")]
    ports: Vec<Forward>,

    /// Wait until the ports are listened on inside, for at most so long.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60")]
    wait: Option<u32>,

    /// Print the list as JSON.
    #[arg(long, conflicts_with = "ports")]
    json: bool,

    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Forward {
    inside: u16,
    local: u16,
}

impl FromStr for Forward {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (inside, local) = text.split_once(':').unwrap_or((text, text));
        match (inside.parse(), local.parse()) {
            (Ok(inside), Ok(local)) if inside != 0 => Ok(Self { inside, local }),
            _ => Err("expected a port, or two as 8080:9090"),
        }
    }
}

pub(super) async fn run(arguments: PortArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let sandbox: Arc<dyn Sandbox> = hosts.connect(&arguments.name).await?.1.into();
    if arguments.ports.is_empty() {
        return list(sandbox.as_ref(), arguments.json).await;
    }
    tokio::select! {
        forwarded = forward(&sandbox, &arguments) => forwarded,
        () = interrupts.next() => Ok(Exit::Interrupted),
    }
}

async fn list(sandbox: &dyn Sandbox, as_json: bool) -> anyhow::Result<Exit> {
    let ports = sandbox.ports().await?;
    if as_json {
        print::line(&serde_json::to_string(&ports)?)?;
        return Ok(Exit::Finished);
    }
    let rows: Vec<_> = ports
        .into_iter()
        .map(|port| {
            let programs: Vec<_> =
                port.processes.iter().map(|process| format!("{} ({})", process.name, process.pid)).collect();
            [port.port.to_string(), port.addresses.join(", "), programs.join(", ")]
        })
        .collect();
    table::print(["PORT", "ADDRESSES", "PROGRAMS"], &rows)?;
    Ok(Exit::Finished)
}

/// Ends only when the sandbox is lost.
async fn forward(sandbox: &Arc<dyn Sandbox>, arguments: &PortArguments) -> anyhow::Result<Exit> {
    let mut listeners = Vec::new();
    for Forward { inside, local } in &arguments.ports {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *local));
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| UsageError(format!("listening on {address}: {error}")))?;
        listeners.push((*inside, listener));
    }
    if let Some(seconds) = arguments.wait {
        for (inside, _) in &listeners {
            if !sandbox.wait_for_port(*inside, Duration::from_secs(seconds.into())).await? {
                anyhow::bail!("nothing listens on port {inside} inside after {seconds} s");
            }
        }
    }
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut serving = JoinSet::new();
    for (inside, listener) in listeners {
        print::line(&listener.local_addr()?.to_string())?;
        serving.spawn(serve(Arc::clone(sandbox), inside, listener, Arc::clone(&places)));
    }
    match serving.join_next().await {
        Some(ended) => ended.context("serving a port")?,
        None => Ok(Exit::Finished),
    }
}

async fn serve(
    sandbox: Arc<dyn Sandbox>,
    inside: u16,
    listener: TcpListener,
    places: Arc<Semaphore>,
) -> anyhow::Result<Exit> {
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place?,
            Some(ended) = connections.join_next() => {
                ended.context("forwarding a connection")??;
                continue;
            }
        };
        let connection = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted.context("accepting a connection")?.0,
                Some(ended) = connections.join_next() => ended.context("forwarding a connection")??,
            }
        };
        let sandbox = Arc::clone(&sandbox);
        connections.spawn(async move {
            let _place = place;
            carry(sandbox.as_ref(), inside, connection).await
        });
    }
}

/// An error only when the sandbox is lost; anything else is this connection's alone.
async fn carry(sandbox: &dyn Sandbox, inside: u16, mut connection: TcpStream) -> anyhow::Result<()> {
    let mut tunnel = match sandbox.open(&Door::Port(inside)).await {
        Ok(tunnel) => tunnel,
        Err(lost @ SandboxError::Lost { .. }) => return Err(lost.into()),
        Err(error) => {
            print::warning(&format!("a connection to port {inside} inside: {error}"));
            return Ok(());
        }
    };
    // Either side may break off as it likes.
    let _ = connection.set_nodelay(true);
    let _ = copy_bidirectional(&mut connection, &mut tunnel).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Forward;

    #[test]
    fn ports_are_read_as_one_or_two() {
        assert_eq!("8080".parse(), Ok(Forward { inside: 8080, local: 8080 }));
        assert_eq!("80:0".parse(), Ok(Forward { inside: 80, local: 0 }));
        for wrong in ["", "0", "x", "80:", ":80", "80:90:1", "70000", "-1"] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }
}
