//! Patience with a server that has too much to do: more time, a bounded number of times.
//!
//! Throttling did nothing and is no conflict. A request that met it is sent again after the time
//! that the server names, or after a pause that doubles, up to [`SENT_MAX`] times and within the
//! operation's time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::marks::random;

/// Number of times a request is sent.
pub const SENT_MAX: u32 = 8;
/// The pause after the first refusal, when the server names none; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Number of times one request was sent, and the next pause.
#[derive(Debug)]
pub struct Patience {
    sent: u32,
    pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { sent: 0, pause: FIRST_PAUSE }
    }
}

impl Patience {
    /// Waits for as long as the server asks, or for a pause. Returns false when it is not worth
    /// waiting: the request was sent often enough, or no time would be left. Half of a pause is
    /// random, so that refused clients do not come back together.
    pub async fn wait(&mut self, asked: Option<Duration>, deadline: Instant) -> bool {
        self.sent += 1;
        let pause = self.pause;
        self.pause *= 2;
        let half = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        let wait = asked.unwrap_or_else(|| pause / 2 + Duration::from_micros(random() % half));
        if self.sent >= SENT_MAX || Instant::now() + wait >= deadline {
            return false;
        }
        sleep(wait).await;
        true
    }

    /// Number of times the request was sent, as far as [`wait`](Self::wait) was told.
    pub const fn sent(&self) -> u32 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn patience_is_bounded_in_number_and_time() {
        let far = Instant::now() + Duration::from_secs(3_600);
        let mut patience = Patience::default();
        while patience.wait(Some(Duration::ZERO), far).await {}
        assert_eq!(patience.sent(), SENT_MAX);
        let mut patience = Patience::default();
        assert!(
            !patience.wait(Some(Duration::from_secs(7_200)), far).await,
            "longer than there is time"
        );
        assert!(!Patience::default().wait(None, Instant::now()).await);
    }
}
