//! The connection: made when it is needed, made again when it ended, shared by all operations of a store.

use std::fmt;
use std::time::Duration;

use emmer_store_keyvalue::{Failure, Fault};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::fault;
use crate::scripts::Script;

/// How often a request that may be repeated is sent at most.
const ATTEMPTS_MAX: u32 = 3;

/// The one connection of a store. Requests share it and are answered in order.
pub(crate) struct Link {
    client: Client,
    timeout: Duration,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Counts connections, so that one that ended is dropped once.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    pub(crate) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, current: Mutex::default() }
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// The connection, made if there is none. Those who wait for it share the attempt's result by trying after it.
    async fn connection(&self, deadline: Instant) -> Result<(u64, MultiplexedConnection), Fault> {
        let late = |_| Fault::unavailable("no connection in time");
        let mut current = timeout_at(deadline, self.current.lock()).await.map_err(late)?;
        if let Some(connection) = &current.connection {
            return Ok((current.number, connection.clone()));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        // The deadline of each request is kept here, not by the driver.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(left)).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connected = timeout_at(deadline, connecting).await.map_err(late)?;
        let connection = connected.map_err(|e| fault::connecting(&e))?;
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((current.number, connection))
    }

    async fn drop_connection(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
        }
    }

    /// Sends a command once. `Broken` only when the server may have it.
    async fn once(&self, command: &Cmd, deadline: Instant) -> Result<Result<Value, RedisError>, Failure> {
        let (number, mut connection) = self.connection(deadline).await.map_err(Failure::Nothing)?;
        let answered = timeout_at(deadline, connection.send_packed_command(command)).await;
        let Ok(answered) = answered else {
            // A server that is silent this long may stay so: the next request makes a new connection.
            self.drop_connection(number).await;
            return Err(Failure::Broken(Fault::unavailable("the server does not answer in time")));
        };
        match answered.and_then(Value::extract_error) {
            Err(error) if fault::ends_connection(&error) => {
                self.drop_connection(number).await;
                Err(fault::failure(&error))
            }
            answered => Ok(answered),
        }
    }

    /// Sends a command; a `repeatable` one again when its outcome is not known.
    pub(crate) async fn send(
        &self,
        command: &Cmd,
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Value, Failure> {
        let mut attempt = 1;
        loop {
            match self.once(command, deadline).await {
                Err(Failure::Broken(_)) if repeatable && may_repeat(attempt, deadline) => attempt += 1,
                Err(failure) => return Err(failure),
                Ok(answered) => return answered.map_err(|e| fault::failure(&e)),
            }
        }
    }

    /// Runs a script, by its hash where the server knows it.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Value, Failure> {
        let by_hash = command("EVALSHA", script.hash(), keys, arguments);
        let mut attempt = 1;
        loop {
            match self.once(&by_hash, deadline).await {
                Ok(Err(error)) if fault::is_unknown_script(&error) => {
                    let whole = command("EVAL", script.text(), keys, arguments);
                    return self.send(&whole, deadline, repeatable).await;
                }
                Err(Failure::Broken(_)) if repeatable && may_repeat(attempt, deadline) => attempt += 1,
                Err(failure) => return Err(failure),
                Ok(answered) => return answered.map_err(|e| fault::failure(&e)),
            }
        }
    }
}

fn may_repeat(attempt: u32, deadline: Instant) -> bool {
    attempt < ATTEMPTS_MAX && Instant::now() < deadline
}

fn command(verb: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
