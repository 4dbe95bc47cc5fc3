//! Updates of a conversation in display order: an action, then its output, then its observation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::conversation::LiveUpdate;
use engine::utf8::take_whole_text;
use protocol::{ConversationUpdate, Event, EventBody, EventId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// Updates that are not reported yet.
pub(crate) struct UpdateQueue {
    live: Receiver<LiveUpdate>,
    queue: VecDeque<ConversationUpdate<Arc<Event>>>,
    /// The last event that was queued.
    last: Option<EventId>,
    /// The first live update of an action that is not queued yet. Later updates stay in the
    /// channel.
    early: Option<LiveUpdate>,
    /// First bytes of characters that are split between two chunks of an action's output.
    partial: BTreeMap<EventId, PartialCharacter>,
}

/// The first bytes of a character, at the end of a chunk.
#[derive(Default)]
struct PartialCharacter {
    bytes: Vec<u8>,
    /// The offset of the first byte after the chunk.
    end: u64,
}

impl UpdateQueue {
    pub(crate) fn new(live: Receiver<LiveUpdate>) -> Self {
        Self {
            live,
            queue: VecDeque::new(),
            last: None,
            early: None,
            partial: BTreeMap::new(),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ConversationUpdate<Arc<Event>>> {
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
            Err(_) => self.queue.push_back(ConversationUpdate::LiveGap {}),
        }
    }

    /// Queues an event after earlier output. If the event is an action, its own output follows it.
    pub(crate) fn push_event(
        &mut self,
        event: Arc<Event>,
        to_update: fn(Arc<Event>) -> ConversationUpdate<Arc<Event>>,
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
            self.queue.push_back(ConversationUpdate::LiveGap {});
        }
        if let EventBody::Observation(_) = &event.body
            && let Some(action) = event.cause
        {
            self.partial.remove(&action);
        }
        self.last = Some(event.id);
        self.queue.push_back(to_update(event));
        if let Some(early) = early {
            if is_missed {
                self.queue.push_back(ConversationUpdate::LiveGap {});
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
            LiveUpdate::Output {
                action,
                offset,
                bytes,
            } => {
                let partial = self.partial.entry(action).or_default();
                if partial.end != offset {
                    // The rest of the character was missed.
                    partial.bytes.clear();
                }
                partial.end = offset + bytes.len() as u64;
                let offset = offset.saturating_sub(partial.bytes.len() as u64);
                partial.bytes.extend_from_slice(&bytes);
                let text = take_whole_text(&mut partial.bytes);
                if !text.is_empty() {
                    self.queue.push_back(ConversationUpdate::Output {
                        action,
                        offset,
                        text,
                    });
                }
            }
            LiveUpdate::OutputGap { action, from, to } => self
                .queue
                .push_back(ConversationUpdate::OutputGap { action, from, to }),
            LiveUpdate::Start(progress) => self
                .queue
                .push_back(ConversationUpdate::Start(progress.into())),
            LiveUpdate::Problem(message) => self
                .queue
                .push_back(ConversationUpdate::Problem { message }),
            LiveUpdate::Model { agent, progress } => {
                let progress = progress.into();
                self.queue
                    .push_back(ConversationUpdate::Model { agent, progress });
            }
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
            Some(ConversationUpdate::Output {
                action: EventId(3),
                ..
            })
        ));
    }

    #[test]
    fn character_that_is_split_between_chunks_arrives_whole() {
        let (sender, live) = broadcast::channel(8);
        let mut queue = UpdateQueue::new(live);
        let output = |offset, bytes: &[u8]| {
            let bytes = bytes.to_vec();
            let action = EventId(1);
            drop(sender.send(LiveUpdate::Output {
                action,
                offset,
                bytes,
            }));
        };
        output(0, b"a\xe2\x82");
        output(3, b"\xac");
        output(4, b"\xe2");
        drop(sender.send(LiveUpdate::OutputGap {
            action: EventId(1),
            from: 5,
            to: 9,
        }));
        sender
            .send(LiveUpdate::Output {
                action: EventId(1),
                offset: 9,
                bytes: b"b".into(),
            })
            .unwrap();
        queue.push_event(event(1), ConversationUpdate::Event);
        queue.push_event(event(2), ConversationUpdate::Event);
        let mut found = Vec::new();
        while let Some(update) = queue.pop() {
            match update {
                ConversationUpdate::Output { offset, text, .. } => found.push((offset, text)),
                ConversationUpdate::OutputGap { from, .. } => found.push((from, "gap".to_owned())),
                _ => {}
            }
        }
        let expected = [(0, "a"), (1, "€"), (5, "gap"), (9, "b")];
        assert_eq!(
            found,
            expected.map(|(offset, text)| (offset, text.to_owned()))
        );
    }
}
