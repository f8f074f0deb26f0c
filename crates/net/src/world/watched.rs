//! A value that tasks wait for.

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// A value, and the tasks that wait for a change of it, like tokio's `watch`. That one wakes its
/// receivers in random order. Here the task that waited first goes first, so that a virtual world
/// does the same things each time.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: RwLock<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// A value that others watch.
    pub fn new(value: T) -> Self {
        Self { value: RwLock::new(value), changed: Notify::new() }
    }

    /// The value now.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.value.read()
    }

    /// Sets it, and wakes all waiting tasks.
    pub fn set(&self, value: T) {
        self.change(|old| *old = value);
    }

    /// Changes it, and wakes all waiting tasks.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.write());
        self.changed.notify_waiters();
    }

    /// Waits until `found` finds something in the value.
    pub async fn until<R>(&self, mut found: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            // Before the look: a change that comes after it wakes this one.
            let changed = self.changed.notified();
            if let Some(result) = found(&self.value.read()) {
                return result;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_first_is_woken_first() {
        let (watched, order) =
            (Arc::new(Watched::new(0)), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let waiting: Vec<_> = (0..50)
            .map(|n| {
                let (watched, order) = (watched.clone(), order.clone());
                tokio::spawn(async move {
                    watched.until(|value| (*value == 2).then_some(())).await;
                    order.lock().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        watched.set(1);
        tokio::task::yield_now().await;
        watched.change(|value| *value += 1);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    }
}
