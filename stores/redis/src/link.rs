//! The connection to one node: made when it is needed, made again when it ended, shared by all
//! operations of a store.

use std::time::Duration;

use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::{Failure, Fault, tls};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::fault;

/// The one connection to a node. Requests share it and are answered in order.
pub(crate) struct Link {
    name: String,
    client: Client,
    tls: bool,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Counts connections, so that one that ended is dropped once.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// The way to the node `name` (`host:port`).
    pub(crate) fn new(name: &str, client: Client, tls: bool) -> Self {
        Self { name: name.to_owned(), client, tls, current: Mutex::default() }
    }

    /// `host:port`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn host(&self) -> &str {
        self.name.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// The connection, made if there is none. Waiting callers share the attempt by trying after it.
    async fn connection(&self, deadline: Instant) -> Result<(u64, MultiplexedConnection), Fault> {
        let late = |_| Fault::unavailable("no connection in time");
        let mut current = timeout_at(deadline, self.current.lock()).await.map_err(late)?;
        if let Some(connection) = &current.connection {
            return Ok((current.number, connection.clone()));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        // The deadline of each request is kept here, not by the driver.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(left))
            .set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connected = tokio::select! {
            biased;
            connected = timeout_at(deadline, connecting) => connected.map_err(late)?,
            () = self.is_plain() => {
                let detail = format!("rediss://, and {} answers without TLS", self.name);
                return Err(Fault::new(StoreErrorKind::Refused, detail));
            }
        };
        let connection = connected.map_err(|e| fault::connecting(&e, self.tls))?;
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((current.number, connection))
    }

    /// Waits until it is known that the server speaks no TLS, although it should. Such a server
    /// says nothing to a greeting that it does not understand.
    async fn is_plain(&self) {
        const SILENCE: Duration = Duration::from_millis(300);
        if self.tls {
            tokio::time::sleep(SILENCE).await;
            let name = self.name.clone();
            let ask = move || {
                let (host, port) = name.rsplit_once(':')?;
                Some(tls::answers_plainly(host, port.parse().ok()?, b"PING\r\n"))
            };
            if tokio::task::spawn_blocking(ask).await.is_ok_and(|plain| plain == Some(true)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    async fn drop_connection(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
        }
    }

    /// Sends a command once, if `asking` for a slot that is on its way to this node. `Broken` only
    /// when the node may have it; the inner error is its own answer.
    pub(crate) async fn once(
        &self,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Result<Value, RedisError>, Failure> {
        let (number, mut connection) = self.connection(deadline).await.map_err(Failure::Nothing)?;
        let sent = async {
            if asking {
                ask(&mut connection, command).await
            } else {
                connection.send_packed_command(command).await
            }
        };
        let Ok(answered) = timeout_at(deadline, sent).await else {
            // A server that is silent this long may stay so: the next request makes a new
            // connection.
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
}

/// Sends a command directly behind `ASKING`, so that nothing comes in between.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(answers.into_iter().next().unwrap_or_default())
}
