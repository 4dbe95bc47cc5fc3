//! Browser in the sandbox: performs V0's `browse` and `browse_interactive` in sandboxes that have
//! Chromium.
//!
//! [`BrowsingProvider`] decorates a sandbox provider. It performs these two actions and forwards
//! all others. The browser runs in the sandbox and is driven from the host, which keeps the action
//! server small. Its debugging protocol uses two pipes in a folder of the sandbox (`folder`) and
//! the sandbox's connection. No port is opened, inside or on the host, through which another
//! process could drive the browser. The browser survives a broken connection and a restart of the
//! host, which then re-attach to it.
//!
//! The task in `owner` owns the browser. It performs actions sequentially, and each id at most
//! once. `browser` implements the protocol and tracks tabs, dialogs and crashes. `perform` executes
//! calls, `page` evaluates our script in the page, and `observe` builds the observation. Everything
//! that a page reports is hostile: every length and every wait is bounded.
//!
//! chromiumoxide is not used: it supports only WebSockets to a port, and generates types for the
//! whole protocol, of which some thirty methods are needed. The protocol over a pipe is JSON with a
//! zero byte after each message.

mod browser;
mod folder;
mod keys;
mod link;
mod messages;
mod observe;
mod owner;
mod page;
mod perform;
mod provider;
mod sandbox;

pub use provider::BrowsingProvider;
