//! One question to many silos.

use std::collections::BTreeMap;
use std::future::Future;

use emmer_core::SiloAddress;
use emmer_runtime::admin::AdminError;
use tokio::task::JoinSet;

/// The answers by silo, and the silos without an answer.
pub type Asked<A> = (BTreeMap<SiloAddress, A>, Vec<(SiloAddress, AdminError)>);

/// Asks silos, `at_once` of them at a time.
pub async fn ask_silos<A, F>(
    silos: Vec<SiloAddress>,
    at_once: usize,
    ask: impl Fn(SiloAddress) -> F,
) -> Asked<A>
where
    A: Send + 'static,
    F: Future<Output = Result<A, AdminError>> + Send + 'static,
{
    let mut waiting = silos.into_iter();
    let (mut asked, mut answers, mut silent) = (JoinSet::new(), BTreeMap::new(), Vec::new());
    loop {
        while asked.len() < at_once.max(1) {
            let Some(silo) = waiting.next() else { break };
            let answer = ask(silo);
            asked.spawn(async move { (silo, answer.await) });
        }
        match asked.join_next().await {
            Some(Ok((silo, Ok(answer)))) => _ = answers.insert(silo, answer),
            Some(Ok((silo, Err(error)))) => silent.push((silo, error)),
            // A question does not panic.
            Some(Err(_)) => {}
            None => return (answers, silent),
        }
    }
}
