//! Updates of a conversation in display order: an action, then its output, then its observation.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::conversation::{LiveUpdate, State};
use protocol::{Event, EventId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// An update of a conversation.
#[derive(Debug)]
pub enum ConversationUpdate {
    /// An event was appended.
    Event(Arc<Event>),
    /// An action that an earlier process started, and that still runs. It precedes the first event
    /// to report.
    Attached(Arc<Event>),
    /// A live update between events.
    Live(LiveUpdate),
    /// Live updates were missed.
    LiveGap,
    /// All events are reported, and the conversation waits for the user.
    Waiting(WaitState),
    /// The conversation's task has failed. Closing the conversation returns the reason.
    Closed,
}

/// State of a conversation that waits for the user.
#[derive(Debug)]
pub struct WaitState {
    /// State of the conversation.
    pub state: Arc<State>,
    /// Whether the conversation is at rest. `false` if an action awaits approval while other agents
    /// work.
    pub is_at_rest: bool,
}

/// Updates that are not reported yet.
pub(crate) struct UpdateQueue {
    live: Receiver<LiveUpdate>,
    queue: VecDeque<ConversationUpdate>,
    /// The last event that was queued.
    last: Option<EventId>,
    /// The first live update of an action that is not queued yet. Later updates stay in the
    /// channel.
    early: Option<LiveUpdate>,
}

impl UpdateQueue {
    pub(crate) fn new(live: Receiver<LiveUpdate>) -> Self {
        Self {
            live,
            queue: VecDeque::new(),
            last: None,
            early: None,
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ConversationUpdate> {
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Receives a live update and queues it. Never returns while an update waits for its action.
    /// Cancel-safe.
    pub(crate) async fn receive_live(&mut self) {
        if self.early.is_some() {
            return std::future::pending().await;
        }
        match self.live.recv().await {
            Ok(update) => self.push_live(update),
            Err(_) => self.queue.push_back(ConversationUpdate::LiveGap),
        }
    }

    /// Queues an event after earlier output. If the event is an action, its own output follows it.
    pub(crate) fn push_event(
        &mut self,
        event: Arc<Event>,
        to_update: fn(Arc<Event>) -> ConversationUpdate,
    ) {
        let mut is_missed = false;
        while self.early.is_none() {
            match self.live.try_recv() {
                Ok(update) => self.push_live(update),
                Err(TryRecvError::Lagged(_)) => is_missed = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let early = self.early.take();
        // It is unknown which action the missed output belongs to.
        if is_missed && early.is_none() {
            self.queue.push_back(ConversationUpdate::LiveGap);
        }
        self.last = Some(event.id);
        self.queue.push_back(to_update(event));
        if let Some(early) = early {
            if is_missed {
                self.queue.push_back(ConversationUpdate::LiveGap);
            }
            self.push_live(early);
        }
    }

    /// Queues a live update, or holds it until its action is queued.
    fn push_live(&mut self, update: LiveUpdate) {
        match update {
            LiveUpdate::Output { action, .. } | LiveUpdate::OutputGap { action, .. }
                if Some(action) > self.last =>
            {
                self.early = Some(update);
            }
            update => self.queue.push_back(ConversationUpdate::Live(update)),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::testing::timestamp;
    use protocol::action::RunAction;
    use protocol::{Action, EventSource};
    use tokio::sync::broadcast;

    use super::*;

    fn event(id: u64) -> Arc<Event> {
        let action = Action::from(RunAction::default());
        Arc::new(Event::new(
            EventId(id),
            timestamp(),
            EventSource::Agent,
            action,
        ))
    }

    #[test]
    fn output_waits_for_the_action_that_it_belongs_to() {
        let (sender, live) = broadcast::channel(4);
        let mut queue = UpdateQueue::new(live);
        sender
            .send(LiveUpdate::Output {
                action: EventId(3),
                offset: 0,
                bytes: b"early".into(),
            })
            .unwrap();
        for id in 1..3 {
            queue.push_event(event(id), ConversationUpdate::Event);
            assert!(
                matches!(queue.pop(), Some(ConversationUpdate::Event(event)) if event.id.0 == id)
            );
            assert!(queue.is_empty() && queue.early.is_some(), "{id}");
        }
        queue.push_event(event(3), ConversationUpdate::Event);
        assert!(matches!(queue.pop(), Some(ConversationUpdate::Event(event)) if event.id.0 == 3));
        assert!(matches!(
            queue.pop(),
            Some(ConversationUpdate::Live(LiveUpdate::Output {
                action: EventId(3),
                ..
            }))
        ));
    }
}
