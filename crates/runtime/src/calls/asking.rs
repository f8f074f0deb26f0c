//! Placement directors of the application's own that may have to wait for their answer.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use emmer_core::{GrainId, SiloAddress};
use emmer_placement::{AsyncDirector, PlaceError, PlacementRequest, PlacementTable, Strategy};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use crate::cluster::Question;
use crate::hosting::contained;
use crate::world::Spawner;

/// A grain, and the method that is called.
type Key = (GrainId, u32);

type Answer = Result<SiloAddress, PlaceError>;

/// The questions that are open.
#[derive(Default)]
pub(crate) struct Open {
    shared: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, Answer>>>>,
}

impl Open {
    /// Waits for the director. It runs in a task of its own, which ends when no call waits for it
    /// any more.
    pub(super) async fn ask(&self, question: Question, spawner: &Spawner) -> Answer {
        let Question { director, request, key } = question;
        let answer = answer(director, request, spawner.clone());
        let Some(key) = key else { return answer.await };
        // The last one that waits forgets the question, after it has let go of the answer.
        let _forget = Forget { open: self, key: &key };
        self.join(&key, answer).await
    }

    /// The answer to the question of this key: that of `answer` if nobody has asked it yet.
    fn join(
        &self,
        key: &Key,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) -> Shared<BoxFuture<'static, Answer>> {
        let mut open = self.shared.lock();
        if let Some(known) = open.get(key).and_then(WeakShared::upgrade) {
            return known;
        }
        let shared = answer.boxed().shared();
        if let Some(weak) = shared.downgrade() {
            open.insert(key.clone(), weak);
        }
        shared
    }
}

struct Forget<'a> {
    open: &'a Open,
    key: &'a Key,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut open = self.open.shared.lock();
        if open.get(self.key).is_some_and(|shared| shared.upgrade().is_none()) {
            open.remove(self.key);
        }
    }
}

/// Asks a director in a task of its own.
async fn answer(
    director: Arc<dyn AsyncDirector>,
    request: PlacementRequest,
    spawner: Spawner,
) -> Answer {
    let strategy = request.target().strategy.clone();
    let silos = request.silos();
    // All of the director's own code is in here, the drop of its error as well.
    let asked = async move { director.choose(request).await.map_err(|error| words(&*error)) };
    let failed = |why: String| PlaceError::Failed { strategy: strategy.clone(), why };
    match spawner.run(contained(asked)).await {
        Some(Ok(Ok(chosen))) => PlacementTable::answered(&strategy, &silos, chosen),
        Some(Ok(Err(why))) => Err(failed(why)),
        Some(Err(panic)) => Err(PlaceError::Panicked(name(&strategy), panic)),
        None => Err(failed("the runtime of the silo has ended".to_owned())),
    }
}

fn name(strategy: &Strategy) -> String {
    strategy.name().to_owned()
}

/// What an error says, and those behind it.
fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
