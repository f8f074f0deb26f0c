//! The admin interface of a silo: it answers questions itself, or passes them on to the silo that
//! they are for.
//!
//! Questions are bounded: in number, for each client and for all, in size, and in the time of an
//! answer. Answers are made in tasks that yield to other work.

mod acts;
mod answers;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, GrainKey, GrainTypeId, SiloAddress, SiloStatus};
use emmer_net::transport::{Connection, SendError};
use emmer_net::warn_seldom;
use emmer_store::BoxFuture;
use emmer_wire::{PeerKind, channel, codec};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::core::SiloCore;
use crate::access::{AdminRules, AdminVisit, Known};
use crate::admin::{
    AdminError, AdminMessage, Asked, GrainName, OF_CLIENT_MAX, Question, Reply, Way,
};

/// Number of questions that a silo answers, or has passed on, at once.
const UNDER_WAY_MAX: usize = 64;

/// The largest question, in bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Time in which an answer is made, besides what an order waits for itself. A place among the
/// questions under way is free then, whatever the store or a grain does.
const MADE_WITHIN: Duration = Duration::from_secs(10);

/// Time that another silo has to answer a question that was passed on.
const PATIENCE: Duration = Duration::from_secs(4);

/// Time that the directory has to say where a grain is.
const LOOKUP_MAX: Duration = Duration::from_secs(2);

/// Words for an order of this process itself.
const APPLICATION: &str = "the application";

type Answer = Result<Bytes, AdminError>;

/// The silo's part that counts questions, and its rules about them.
pub(in crate::silo) struct Desk {
    rules: AdminRules,
    under_way: Arc<Semaphore>,
    of_clients: Mutex<HashMap<u64, u32>>,
    /// Questions that were passed on to other silos.
    passed_on: Arc<Asked>,
}

impl Desk {
    pub(in crate::silo) fn new(rules: AdminRules) -> Self {
        Self {
            rules,
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            of_clients: Mutex::default(),
            passed_on: Arc::default(),
        }
    }
}

/// The place of a question among those of its client.
struct Seat {
    silo: Arc<SiloCore>,
    client: u64,
}

impl Seat {
    /// None if the client has as many under way as it may.
    fn take(silo: &Arc<SiloCore>, client: u64) -> Option<Self> {
        let mut of_clients = silo.desk.of_clients.lock();
        let count = of_clients.entry(client).or_default();
        if *count >= OF_CLIENT_MAX {
            return None;
        }
        *count += 1;
        Some(Self { silo: silo.clone(), client })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.silo.desk.of_clients.lock().entry(self.client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A question as the silo has it.
struct Visit {
    question: Question,
    /// The question as it came, for passing on.
    encoded: Bytes,
    /// Silo that answers. None: the silo of the grain, or this silo.
    to: Option<SiloAddress>,
    /// The person or program that asks.
    who: String,
    /// True if another silo has passed the question on.
    is_passed_on: bool,
}

impl SiloCore {
    /// A message of a client or of another silo.
    pub(in crate::silo) fn admin_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        payload: &Bytes,
    ) {
        match codec::decode(payload) {
            Ok(AdminMessage::Ask { id, to, who, question }) => {
                if let Err(error) = self.admin_asked(connection, id, to, who, question) {
                    answer(connection, id, Err(error));
                }
            }
            Ok(AdminMessage::Answer { id, reply }) => {
                if matches!(connection.peer, PeerKind::Silo(_)) {
                    self.desk.passed_on.answered(id, reply.into());
                }
            }
            Err(e) => warn_seldom!(error = %e, "an unreadable question of an operator"),
        }
    }

    /// A connection to another silo is lost.
    pub(in crate::silo) fn admin_way_lost(&self, silo: SiloAddress) {
        self.desk.passed_on.way_lost(way_of(silo));
    }

    /// A question has come. Its answer is made in a task.
    fn admin_asked(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        id: u64,
        to: Option<SiloAddress>,
        who: Option<String>,
        encoded: Bytes,
    ) -> Result<(), AdminError> {
        let seat = match connection.peer {
            PeerKind::Client(client) => {
                Some(Seat::take(self, client).ok_or(AdminError::Busy(self.address))?)
            }
            _ => None,
        };
        if encoded.len() > QUESTION_BYTES_MAX {
            return Err(AdminError::Failed(format!(
                "the question is larger than {QUESTION_BYTES_MAX} bytes"
            )));
        }
        let room = self.desk.under_way.clone().try_acquire_owned();
        let room = room.map_err(|_| AdminError::Busy(self.address))?;
        let question: Question =
            codec::decode(&encoded).map_err(|_| AdminError::Unknown(self.address))?;
        let (who, is_passed_on) = match connection.peer {
            PeerKind::Client(_) => (self.admit(connection, &question)?, false),
            _ => (who.unwrap_or_else(|| "another silo".to_owned()), true),
        };
        let (silo, connection) = (self.clone(), connection.clone());
        let visit = Visit { question, encoded, to, who, is_passed_on };
        self.host.spawner.spawn(async move {
            // Held until the answer waits to be sent.
            let _held = (seat, room);
            let (stopped, limit) = (silo.stopped.clone(), MADE_WITHIN + visit.question.takes());
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                made = tokio::time::timeout(limit, silo.answer_of(visit)) => {
                    answer(&connection, id, made.unwrap_or(Err(AdminError::TimedOut)));
                }
            }
        });
        Ok(())
    }

    /// Returns the name of a client that may ask.
    fn admit(&self, connection: &Connection, question: &Question) -> Result<String, AdminError> {
        let admitted = connection.admitted.as_ref();
        let known = admitted.and_then(|admitted| admitted.proof.downcast_ref::<Known>());
        let identity = known.map(|known| &known.identity);
        let visit = AdminVisit::new(question.right(), identity, connection.from, connection.local);
        self.desk.rules.ask(&visit).map_err(AdminError::Refused)
    }

    /// Answers a question here, or has the silo answer that it is for.
    async fn answer_of(self: &Arc<Self>, mut visit: Visit) -> Answer {
        if !visit.is_passed_on {
            self.name_type(&mut visit)?;
        }
        let to = match visit.to {
            Some(to) => to,
            None => match visit.question.grain() {
                Some(grain) if !visit.is_passed_on => self.silo_of(grain).await?,
                _ => self.address,
            },
        };
        if to == self.address {
            return self.answer_here(&visit).await;
        }
        if visit.is_passed_on {
            return Err(AdminError::NoSilo(to));
        }
        let is_active = self.cluster.view().status_of(&to) == Some(SiloStatus::Active);
        if !is_active {
            return Err(AdminError::NoSilo(to));
        }
        let patience = PATIENCE + visit.question.takes();
        self.desk
            .passed_on
            .ask(way_of(to), patience, |id| {
                let (who, question) = (Some(visit.who.clone()), visit.encoded.clone());
                let message = AdminMessage::Ask { id, to: Some(to), who, question };
                self.cluster.peers.post(to, channel::ADMIN, &message);
                true
            })
            .await
    }

    /// Writes the name of the grain type into a question.
    fn name_type(&self, visit: &mut Visit) -> Result<(), AdminError> {
        let Some(name) = visit.question.type_mut() else { return Ok(()) };
        let full = self.cluster.placing.load.type_called(name);
        let full = full.ok_or_else(|| AdminError::NoType(name.clone()))?;
        if *name != full {
            *name = full;
            visit.encoded = encoded(&visit.question)?;
        }
        Ok(())
    }

    /// Silo that answers questions about a grain: the silo of its activation, else any silo that
    /// hosts its type.
    async fn silo_of(&self, grain: &GrainName) -> Result<SiloAddress, AdminError> {
        if matches!(&grain.key, GrainKey::Text(text) if text.len() > GRAIN_KEY_BYTES_MAX) {
            return Err(AdminError::Failed(format!(
                "the key is longer than {GRAIN_KEY_BYTES_MAX} bytes"
            )));
        }
        let id = id_of(grain);
        if !self.host.catalog.of_grain(&id).is_empty() {
            return Ok(self.address);
        }
        let found = tokio::time::timeout(LOOKUP_MAX, self.cluster.directory.lookup(&id)).await;
        if let Ok(Ok(Some(found))) = found {
            return Ok(found.silo);
        }
        if self.host.classes.contains_key(&id.grain_type()) {
            return Ok(self.address);
        }
        let hosts = self.cluster.placing.load.host_of(id.grain_type());
        hosts.ok_or_else(|| AdminError::NoType(grain.grain_type.clone()))
    }
}

/// The number of a silo.
fn way_of(silo: SiloAddress) -> u64 {
    silo.stable_hash(0)
}

/// The identity of a grain.
fn id_of(grain: &GrainName) -> GrainId {
    GrainId::new(GrainTypeId::of(&grain.grain_type), grain.key.clone())
}

/// Sends an answer, or an error if the answer is too large.
fn answer(connection: &Connection, id: u64, made: Answer) {
    let too_large = matches!(&made, Ok(bytes) if bytes.len() > ANSWER_BYTES_MAX);
    let made = if too_large { Err(AdminError::TooLarge) } else { made };
    let reply = Reply::from(made);
    let sent = connection.system(channel::ADMIN, &AdminMessage::Answer { id, reply });
    let sent = match sent {
        Err(SendError::TooLarge(_)) => {
            let reply = Reply::Error(AdminError::TooLarge);
            connection.system(channel::ADMIN, &AdminMessage::Answer { id, reply })
        }
        sent => sent,
    };
    if let Err(error) = sent {
        tracing::debug!(?error, "the answer to an operator was not sent");
    }
}

/// An answer as it travels.
fn encoded(answer: &impl Serialize) -> Answer {
    let mut out = BytesMut::new();
    match codec::encode_into(&mut out, answer) {
        Ok(()) => Ok(out.freeze()),
        Err(error) => Err(AdminError::Failed(error.to_string())),
    }
}

/// Questions of the silo's own process, which need no right.
pub(in crate::silo) struct Inside(pub(in crate::silo) Weak<SiloCore>);

impl Way for Inside {
    fn ask(
        &self,
        to: Option<SiloAddress>,
        encoded: Bytes,
        patience: Duration,
    ) -> BoxFuture<'_, Answer> {
        let silo = self.0.upgrade();
        Box::pin(async move {
            let silo = silo.ok_or(AdminError::NoGateway)?;
            let question: Question =
                codec::decode(&encoded).map_err(|_| AdminError::Unknown(silo.address))?;
            let who = APPLICATION.to_owned();
            let visit = Visit { question, encoded, to, who, is_passed_on: false };
            let stopped = silo.stopped.clone();
            // On the runtime of the silo.
            let spawner = silo.host.spawner.clone();
            let answered = spawner.run(async move {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => Err(AdminError::NoGateway),
                    made = silo.answer_of(visit) => made,
                }
            });
            match tokio::time::timeout(patience, answered).await {
                Ok(answered) => answered.unwrap_or(Err(AdminError::NoGateway)),
                Err(_) => Err(AdminError::TimedOut),
            }
        })
    }
}
