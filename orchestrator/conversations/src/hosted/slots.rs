//! The right to run a conversation: a bounded number per server and per user, with a fair queue.
//!
//! Requests are not served in the order of their arrival: users with waiting requests take turns,
//! so that many requests of one user do not delay the others. The number of waiting requests is
//! bounded, in total and per user.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::UserId;
use tokio::sync::oneshot;

/// Maximum number of requests that wait for a slot.
const MAX_WAITING: usize = 256;

/// Maximum number of requests of one user that wait for a slot.
const MAX_WAITING_PER_USER: usize = 16;

/// Who runs conversations. `None` is the operator, to whom the limit per user does not apply.
pub(super) type Owner = Option<UserId>;

/// The slots of a server.
pub(super) struct Slots {
    max: usize,
    max_per_user: usize,
    /// A blocking mutex, because it is never held across an await.
    state: Mutex<SlotState>,
}

/// The right to run one conversation, until it is dropped.
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// `None` once it is returned.
    owner: Option<Owner>,
}

/// Why there is no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occupied {
    /// The server runs as many conversations as it may.
    Server,
    /// The user does.
    User,
}

#[derive(Default)]
struct SlotState {
    running: BTreeMap<Owner, usize>,
    /// Owners with waiting requests, the next one first, each with the requests in order.
    waiting: VecDeque<(Owner, VecDeque<oneshot::Sender<Slot>>)>,
}

impl Slots {
    pub(super) fn new(max: usize, max_per_user: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            max_per_user,
            state: Mutex::default(),
        })
    }

    /// Returns a slot if one is free and no request waits for it.
    pub(super) fn try_acquire(self: &Arc<Self>, owner: &Owner) -> Result<Slot, Occupied> {
        let mut state = self.state();
        if self.has_own_limit(owner) && state.count(owner) >= self.max_per_user {
            return Err(Occupied::User);
        }
        if state.total() >= self.max
            || state
                .waiting
                .iter()
                .any(|(waiting, _)| self.is_eligible(&state, waiting))
        {
            return Err(Occupied::Server);
        }
        Ok(self.take(&mut state, owner.clone()))
    }

    /// Adds a request to the queue. It waits until it receives a slot, or drops the receiver.
    /// `None` if too many wait.
    pub(super) fn enqueue(self: &Arc<Self>, owner: &Owner) -> Option<oneshot::Receiver<Slot>> {
        let mut state = self.state();
        state.remove_abandoned();
        let total: usize = state
            .waiting
            .iter()
            .map(|(_, requests)| requests.len())
            .sum();
        let own = state
            .waiting
            .iter_mut()
            .find(|(waiting, _)| waiting == owner);
        if total >= MAX_WAITING
            || own
                .as_ref()
                .is_some_and(|(_, own)| own.len() >= MAX_WAITING_PER_USER)
        {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        match own {
            Some((_, requests)) => requests.push_back(sender),
            None => state
                .waiting
                .push_back((owner.clone(), VecDeque::from([sender]))),
        }
        self.serve(&mut state);
        Some(receiver)
    }

    /// Gives free slots to waiting requests, one owner after the other.
    fn serve(self: &Arc<Self>, state: &mut SlotState) {
        while state.total() < self.max {
            let next = state
                .waiting
                .iter()
                .position(|(owner, _)| self.is_eligible(state, owner));
            let Some((owner, mut requests)) = next.and_then(|next| state.waiting.remove(next))
            else {
                return;
            };
            let Some(request) = requests.pop_front() else {
                continue;
            };
            let slot = self.take(state, owner.clone());
            if let Err(mut slot) = request.send(slot) {
                // It no longer waits. Dropping the slot would lock the state again.
                slot.owner = None;
                state.release(&owner);
            }
            if !requests.is_empty() {
                // Behind the others.
                state.waiting.push_back((owner, requests));
            }
        }
    }

    fn take(self: &Arc<Self>, state: &mut SlotState, owner: Owner) -> Slot {
        *state.running.entry(owner.clone()).or_default() += 1;
        Slot {
            slots: Arc::clone(self),
            owner: Some(owner),
        }
    }

    fn is_eligible(&self, state: &SlotState, owner: &Owner) -> bool {
        !self.has_own_limit(owner) || state.count(owner) < self.max_per_user
    }

    fn has_own_limit(&self, owner: &Owner) -> bool {
        owner.is_some()
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    fn total(&self) -> usize {
        self.running.values().sum()
    }

    fn count(&self, owner: &Owner) -> usize {
        self.running.get(owner).copied().unwrap_or_default()
    }

    fn release(&mut self, owner: &Owner) {
        if let Some(count) = self.running.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(owner);
            }
        }
    }

    /// Removes requests that no longer wait.
    fn remove_abandoned(&mut self) {
        self.waiting.retain_mut(|(_, requests)| {
            requests.retain(|request| !request.is_closed());
            !requests.is_empty()
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else {
            return;
        };
        let slots = Arc::clone(&self.slots);
        let mut state = slots.state();
        state.release(&owner);
        slots.serve(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Owner {
        Some(name.parse().unwrap())
    }

    #[test]
    fn users_take_turns_however_many_requests_each_has() {
        let slots = Slots::new(1, 9);
        let mut running = slots.try_acquire(&None).ok();
        let mut receivers: Vec<_> = [("ada", 3), ("ben", 1), ("eve", 2)]
            .into_iter()
            .flat_map(|(name, count)| vec![name; count])
            .map(|name| (name, slots.enqueue(&user(name)).unwrap()))
            .collect();
        let mut served = Vec::new();
        while running.take().is_some() {
            let next = receivers
                .iter_mut()
                .position(|(_, receiver)| match receiver.try_recv() {
                    Ok(slot) => running.replace(slot).is_none(),
                    Err(_) => false,
                });
            served.extend(next.map(|next| receivers.remove(next).0));
        }
        assert_eq!(served, ["ada", "ben", "eve", "ada", "eve", "ada"]);
    }

    #[test]
    fn user_with_the_own_maximum_does_not_block_others() {
        let slots = Slots::new(3, 1);
        let own = slots.try_acquire(&user("ada")).ok();
        assert_eq!(slots.try_acquire(&user("ada")).err(), Some(Occupied::User));
        let mut waiting = slots.enqueue(&user("ada")).unwrap();
        let other = slots.try_acquire(&user("ben")).ok().unwrap();
        let operators = slots.try_acquire(&None).ok().unwrap();
        assert_eq!(slots.try_acquire(&None).err(), Some(Occupied::Server));
        drop((other, operators));
        assert!(waiting.try_recv().is_err(), "the maximum of the user holds");
        drop(own);
        assert!(waiting.try_recv().is_ok());
    }

    #[test]
    fn free_slot_goes_to_those_who_wait_first() {
        let slots = Slots::new(1, 1);
        let running = slots.try_acquire(&user("ada")).ok();
        let (gone, mut waiting) = (
            slots.enqueue(&user("ben")).unwrap(),
            slots.enqueue(&user("eve")).unwrap(),
        );
        drop(gone);
        drop(running);
        assert!(slots.try_acquire(&user("ada")).is_err());
        let slot = waiting.try_recv();
        assert!(slot.is_ok(), "a request that is gone is skipped");
        drop(slot);
        assert!(slots.try_acquire(&user("ada")).is_ok());
    }

    #[test]
    fn queue_is_bounded_in_total_and_per_user() {
        let slots = Slots::new(0, 9);
        let receivers: Vec<_> = (0..MAX_WAITING_PER_USER)
            .map(|_| slots.enqueue(&user("ada")).unwrap())
            .collect();
        assert!(slots.enqueue(&user("ada")).is_none());
        let name = |number: usize| user(&format!("user-{number}"));
        let others: Vec<_> = (MAX_WAITING_PER_USER..MAX_WAITING)
            .map(|number| slots.enqueue(&name(number)).unwrap())
            .collect();
        assert!(slots.enqueue(&user("ben")).is_none());
        drop((receivers, others));
        assert!(slots.enqueue(&user("ada")).is_some());
    }
}
