//! Gives a task to an agent of a server, and prints what it does.
//!
//! `GLOVEBOX_KEY=… cargo run -p client --example task -- http://127.0.0.1:3000 'Fix the tests.'`

#![allow(clippy::print_stdout, reason = "what the example is for")]

use std::error::Error;

use client::RemoteConversations;
use conversations::ConversationService as _;
use futures_util::StreamExt as _;
use protocol::ConversationUpdate;
use protocol::action::MessageAction;
use protocol::client_api::v2::CreateConversation;
use secrecy::SecretString;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(task)) = (arguments.next(), arguments.next()) else {
        return Err("usage: task URL TASK".into());
    };
    run(&url, &std::env::var("GLOVEBOX_KEY")?.into(), task).await
}

pub(crate) async fn run(url: &str, key: &SecretString, task: String) -> Result<(), Box<dyn Error>> {
    let server = RemoteConversations::new(url, key, tls::roots())?;
    let message = Some(MessageAction {
        content: task,
        ..MessageAction::default()
    });
    let request = CreateConversation {
        message,
        ..CreateConversation::default()
    };
    let id = server.create(request).await?;
    let mut updates = server.follow(&id, None).await?;
    while let Some(message) = updates.next().await {
        match message?.update {
            ConversationUpdate::Event(event) => println!("{}", serde_json::to_string(&*event)?),
            ConversationUpdate::Waiting(waiting) if waiting.is_idle => break,
            _ => {}
        }
    }
    Ok(())
}
