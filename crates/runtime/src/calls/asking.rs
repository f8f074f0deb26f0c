//! Placement directors of the application's own that may have to wait for their answer.

use std::collections::HashMap;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};

use emmer_core::{GrainId, SiloAddress};
use emmer_net::world::{Abort, Spawner, Watched};
use emmer_placement::{AsyncDirector, PlaceError, PlacementRequest, PlacementTable};
use parking_lot::Mutex;

use crate::cluster::Question;
use crate::hosting::TurnContext;
use crate::turn::contained;

/// A grain, and the method that is called.
type Key = (GrainId, u32);

type Answer = Result<SiloAddress, PlaceError>;

/// The questions that calls of one grain share.
#[derive(Default)]
pub(crate) struct Open {
    shared: Mutex<HashMap<Key, Weak<Asked>>>,
}

/// A question to a director, in a task of its own. It runs although the calls that wait for it are
/// not polled, and ends with the last of them.
struct Asked {
    answer: Arc<Watched<Option<Answer>>>,
    _task: Abort,
}

impl Asked {
    fn new(
        director: Arc<dyn AsyncDirector>,
        request: PlacementRequest,
        context: TurnContext,
        spawner: &Spawner,
    ) -> Self {
        let answer = Arc::new(Watched::new(None));
        let told = answer.clone();
        let task = spawner.spawn(async move {
            let mut asked = pin!(ask(director, request));
            let mut context = Some(context);
            let asked = poll_fn(|cx| TurnContext::scope(&mut context, || asked.as_mut().poll(cx)));
            told.set(Some(asked.await));
        });
        Self { answer, _task: task.into() }
    }

    async fn answered(&self) -> Answer {
        self.answer.until(Clone::clone).await
    }
}

impl Open {
    /// Waits for the director, together with other calls that ask it the same. It is asked within
    /// `context`.
    pub(super) async fn ask(
        &self,
        question: Question,
        context: TurnContext,
        spawner: &Spawner,
    ) -> Answer {
        let Question { director, request, key } = question;
        let Some(key) = key else {
            return Asked::new(director, request, context, spawner).answered().await;
        };
        // Dropped in this order: the last one that waits forgets the question.
        let _forget = Forget { open: self, key: &key };
        let asked = {
            let mut open = self.shared.lock();
            // An answer that is there was given to other calls, and may be an old one.
            let known = open.get(&key).and_then(Weak::upgrade);
            known.filter(|asked| asked.answer.borrow().is_none()).unwrap_or_else(|| {
                let asked = Arc::new(Asked::new(director, request, context, spawner));
                open.insert(key.clone(), Arc::downgrade(&asked));
                asked
            })
        };
        asked.answered().await
    }
}

struct Forget<'a> {
    open: &'a Open,
    key: &'a Key,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut open = self.open.shared.lock();
        if open.get(self.key).is_some_and(|asked| asked.strong_count() == 0) {
            open.remove(self.key);
        }
    }
}

/// Asks a director, whose code may panic.
async fn ask(director: Arc<dyn AsyncDirector>, request: PlacementRequest) -> Answer {
    let strategy = request.target().strategy.clone();
    let silos = request.silos();
    // All of the director's own code is in here, the drop of its error as well.
    let asked = async move { director.choose(request).await.map_err(|error| words(&*error)) };
    match contained(asked).await {
        Ok(Ok(chosen)) => PlacementTable::answered(&strategy, &silos, chosen),
        Ok(Err(why)) => Err(PlaceError::Failed { strategy, why }),
        Err(panic) => Err(PlaceError::Panicked(strategy.name().to_owned(), panic)),
    }
}

/// The words of an error, and of those behind it.
fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
