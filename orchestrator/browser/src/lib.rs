//! A browser in the sandbox: performs V0's `browse` and `browse_interactive`, for sandboxes that have Chromium.
//!
//! [`BrowsingProvider`] stands before a provider of sandboxes; in what it places these two actions are performed here and
//! everything else goes on. The browser runs in the sandbox and is driven from the host, because the action server is to
//! stay small. Its debugging protocol goes over two pipes in a folder inside (`place`), and over the connection that
//! everything goes over: no port is opened, neither inside nor on the host, where others could drive it too. So it goes on
//! when the connection breaks or the host starts anew, and is found again.
//!
//! `owner` is the one task that has the browser: actions are performed one after the other, each id at most once.
//! `browser` speaks the protocol and keeps up with tabs, dialogs and crashes; `perform` does what a call asks for; `page`
//! asks a script of ours in the page; `observe` says what is there to be seen. What a page says is hostile: every length and
//! every wait has a bound.
//!
//! Not chromiumoxide: it takes no stream but a WebSocket to a port, and brings generated types of the whole protocol for some
//! thirty methods. A pipe's protocol is JSON with a zero byte after each message.

mod browser;
mod keys;
mod link;
mod messages;
mod observe;
mod owner;
mod page;
mod perform;
mod place;
mod provider;
mod sandbox;

pub use provider::BrowsingProvider;
