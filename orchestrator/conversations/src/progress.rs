//! What happens in a conversation, in an order that can be shown as it is: the output of an action after the action and
//! before its observation.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::conversation::{Live, State};
use protocol::{Event, EventId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// What happens in a conversation.
#[derive(Debug)]
pub enum Progress {
    /// An event was appended.
    Event(Event),
    /// An action before the first event to report still runs: an earlier process started it.
    Attached(Event),
    /// Something happened between events.
    Live(Live),
    /// Some of what happened between events was missed.
    LiveGap,
    /// All events are reported, and the conversation waits for the user.
    Waiting(Waiting),
    /// The conversation's task has ended by itself. Closing the conversation returns the reason.
    Closed,
}

/// A conversation that waits for the user.
#[derive(Debug)]
pub struct Waiting {
    /// Its state.
    pub state: Arc<State>,
    /// Whether nothing more happens by itself. `false` if an action waits for approval while other agents work.
    pub is_at_rest: bool,
}

/// Progress that is not reported yet.
pub(crate) struct ProgressQueue {
    live: Receiver<Live>,
    queue: VecDeque<Progress>,
    /// The last event that was queued.
    last: Option<EventId>,
    /// The first live notice about an action that is not queued yet; those after it stay in the channel.
    early: Option<Live>,
}

impl ProgressQueue {
    pub(crate) fn new(live: Receiver<Live>) -> Self {
        Self { live, queue: VecDeque::new(), last: None, early: None }
    }

    pub(crate) fn pop(&mut self) -> Option<Progress> {
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Waits for a live notice and queues it. Never returns while one waits for its action. Cancel-safe.
    pub(crate) async fn live(&mut self) {
        if self.early.is_some() {
            return std::future::pending().await;
        }
        match self.live.recv().await {
            Ok(notice) => self.push_live(notice),
            Err(_) => self.queue.push_back(Progress::LiveGap),
        }
    }

    /// Queues an event: after the output that came before it, and before the output of the action that it is.
    pub(crate) fn push_event(&mut self, event: Event, progress: fn(Event) -> Progress) {
        let mut is_missed = false;
        while self.early.is_none() {
            match self.live.try_recv() {
                Ok(notice) => self.push_live(notice),
                Err(TryRecvError::Lagged(_)) => is_missed = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let early = self.early.take();
        // It is unknown which action the missed output belongs to.
        if is_missed && early.is_none() {
            self.queue.push_back(Progress::LiveGap);
        }
        self.last = Some(event.id);
        self.queue.push_back(progress(event));
        if let Some(early) = early {
            if is_missed {
                self.queue.push_back(Progress::LiveGap);
            }
            self.push_live(early);
        }
    }

    /// Queues a notice, or keeps it until the action that it is about is queued.
    fn push_live(&mut self, notice: Live) {
        match notice {
            Live::Output { action, .. } | Live::OutputGap { action, .. } if Some(action) > self.last => {
                self.early = Some(notice);
            }
            notice => self.queue.push_back(Progress::Live(notice)),
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

    fn event(id: u64) -> Event {
        Event::new(EventId(id), timestamp(), EventSource::Agent, Action::from(RunAction::default()))
    }

    #[test]
    fn output_waits_for_the_action_that_it_belongs_to() {
        let (sender, live) = broadcast::channel(4);
        let mut queue = ProgressQueue::new(live);
        sender.send(Live::Output { action: EventId(3), bytes: b"early".into() }).unwrap();
        for id in 1..3 {
            queue.push_event(event(id), Progress::Event);
            assert!(matches!(queue.pop(), Some(Progress::Event(event)) if event.id.0 == id));
            assert!(queue.is_empty() && queue.early.is_some(), "{id}");
        }
        queue.push_event(event(3), Progress::Event);
        assert!(matches!(queue.pop(), Some(Progress::Event(event)) if event.id.0 == 3));
        assert!(matches!(queue.pop(), Some(Progress::Live(Live::Output { action: EventId(3), .. }))));
    }
}
