//! Commits, small and large; touches, appends and clean-ups, which are small commits of their own.

use emmer_store::{CommitOutcome, Mutation, Row, StoreErrorKind, TableDecl};
use emmer_store_keyvalue::revisions::revision_of;
use emmer_store_keyvalue::{
    Answered, At, Commits, Failure, Fault, Old, Tables, Touch, Writes, document,
};
use tokio::time::Instant;

use crate::client::words;
use crate::fence::{FENCE, Fence};
use crate::plan::{Plan, done, first_conflict, index_of, record};
use crate::rows;
use crate::store::Consul;
use crate::wire::{OPERATIONS_MAX, Operation, TRANSACTION_BYTES_MAX};

/// Number of times that a commit begins again because others were faster, or a guess was wrong.
const ATTEMPTS_MAX: u32 = 100;

fn too_large(bytes: usize) -> Failure {
    let detail = format!(
        "a commit of {bytes} bytes as it is sent: Consul takes {TRANSACTION_BYTES_MAX} in one \
         transaction (512 KiB, txn_max_req_len)"
    );
    Failure::Nothing(Fault::new(StoreErrorKind::Invalid, detail))
}

fn busy() -> Fault {
    Fault::unavailable("others commit all the time")
}

impl Consul {
    /// After a refusal that says nothing certain: reads the rows of a commit once the fence is
    /// idle, and corrects the guesses. The first condition that does not hold.
    async fn look_again(
        &self,
        prefix: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> Result<Option<usize>, Fault> {
        let trees: Vec<String> =
            mutations.iter().map(|m| rows::column_key(m.row_key(), "")).collect();
        let found = self.idle_snapshot(prefix, &trees, deadline).await?;
        let indexes = found.indexes(prefix);
        let rows =
            mutations.iter().map(|m| (m.row_key(), indexes.get(m.row_key()).copied().unwrap_or(0)));
        self.guesses().learn(prefix, rows.collect::<Vec<_>>().into_iter());
        Ok(first_conflict(mutations, &indexes))
    }

    /// Remembers what a commit did to the rows it did not have an etag for.
    fn learn_commit(
        &self,
        prefix: &str,
        mutations: &[Mutation],
        index_of: impl Fn(&str) -> Option<i64>,
    ) {
        let rows = mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Upsert { row } => Some((row.key(), index_of(row.key()).unwrap_or(0))),
            Mutation::Delete { row_key, .. } => Some((row_key.as_str(), 0)),
            _ => None,
        });
        self.guesses().learn(prefix, rows.collect::<Vec<_>>().into_iter());
    }

    /// A commit that needs more operations than one transaction takes: see the crate's
    /// documentation.
    async fn run_large(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        prefix: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> Result<CommitOutcome, Failure> {
        for _ in 0..ATTEMPTS_MAX {
            if Instant::now() >= deadline {
                break;
            }
            let mark = self.mark();
            let Some(closed) = self.close_fence(prefix, &mark, deadline).await? else { continue };
            let found = self.snapshot(prefix, &[], deadline).await?;
            if found.fence.index != closed {
                continue;
            }
            let indexes = found.indexes(prefix);
            if let Some(at) = first_conflict(mutations, &indexes) {
                // Others would open it too, later.
                let _ = self.open_fence(prefix, closed, deadline).await;
                return Ok(CommitOutcome::Conflict(at));
            }
            let record = record(decl, partition, mutations, &indexes, &mark);
            let committing = Fence::Committing(record.clone()).encode(&mark)?;
            let commit = Operation::cas(&format!("{prefix}{FENCE}"), &committing, closed);
            if commit.bytes() > TRANSACTION_BYTES_MAX {
                let _ = self.open_fence(prefix, closed, deadline).await;
                return Err(too_large(commit.bytes()));
            }
            // This is the commit.
            let Ok(answer) = self.client().txn(&[commit], deadline, false).await? else { continue };
            // From here on it has happened; only its etags may stay unknown.
            let index = index_of(&answer).unwrap_or(0);
            let written = async {
                self.write_out(prefix, &record, index, deadline).await?;
                self.snapshot(prefix, &[], deadline).await
            };
            let found = written.await.map_err(Failure::Broken)?;
            let ours = |row_key: &str| {
                let key = format!("{prefix}{}", rows::key(row_key));
                let kv = found.kvs.iter().find(|kv| kv.key == key)?;
                let begin = format!("{{\"{}\":\"{mark}\"", rows::COMMIT);
                kv.value.starts_with(begin.as_bytes()).then_some(kv.modify_index)
            };
            self.learn_commit(prefix, mutations, ours);
            return Ok(done(mutations, ours));
        }
        Err(Failure::Nothing(busy()))
    }

    /// Turns the fence from idle to closing. Returns its index, or None when another writer was
    /// faster.
    async fn close_fence(
        &self,
        prefix: &str,
        mark: &str,
        deadline: Instant,
    ) -> Result<Option<i64>, Failure> {
        let idle = self.idle_snapshot(prefix, &[FENCE.to_owned()], deadline).await?;
        let closing = Fence::Closing { by: mark.to_owned() }.encode(mark)?;
        let close = Operation::cas(&format!("{prefix}{FENCE}"), &closing, idle.fence.index);
        match self.client().txn(&[close], deadline, false).await {
            Ok(Ok(answer)) => Ok(index_of(&answer)),
            Ok(Err(_)) => Ok(None),
            // Closed or not: nothing of the commit has happened, nor will.
            Err(failure) => Err(Failure::Nothing(failure.fault())),
        }
    }
}

impl Tables for Consul {
    /// Makes a table, or finds one made.
    async fn make(&self, decl: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let shape = emmer_store::document::declaration(decl);
        let make = Operation::cas(&self.client().layout.shape(decl), &shape, 0);
        match self.client().txn(&[make], deadline, true).await.map_err(Failure::fault)? {
            Ok(_) => Ok(()),
            // There already, most likely; the look that follows says what.
            Err(errors) if errors.iter().all(|error| error.what.contains("stale")) => Ok(()),
            Err(errors) => Err(Fault::corrupt(words(&errors))),
        }
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let key = self.client().layout.shape(table);
        let found = self.client().read(&[&key], deadline).await?;
        // Other tables' names may begin with this one's.
        Ok(found.into_iter().find(|kv| kv.key == key).map(|kv| kv.value))
    }
}

impl Commits for Consul {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table: decl, partition, deadline } = at;
        let prefix = self.partition(decl, partition);
        for _ in 0..ATTEMPTS_MAX {
            let guess = self.guesses().about(&prefix, mutations.iter().map(Mutation::row_key));
            let plan = Plan::new(decl, partition, &prefix, mutations, &guess, &self.mark());
            if plan.operations.len() > OPERATIONS_MAX {
                return self.run_large(decl, partition, &prefix, mutations, deadline).await;
            }
            if plan.bytes() > TRANSACTION_BYTES_MAX {
                return Err(too_large(plan.bytes()));
            }
            let errors = match self.client().txn(&plan.operations, deadline, false).await? {
                Ok(answer) => {
                    let index = index_of(&answer);
                    self.learn_commit(&prefix, mutations, |_| index);
                    return Ok(done(mutations, |_| index));
                }
                Err(errors) => errors,
            };
            if let Some(at) = plan.conflict(&errors) {
                return Ok(CommitOutcome::Conflict(at));
            }
            if let Some(at) = self.look_again(&prefix, mutations, deadline).await? {
                return Ok(CommitOutcome::Conflict(at));
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(Failure::Nothing(busy()))
    }
}

impl Writes for Consul {
    /// Sets a volatile column, if the row is there and no commit is half written.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table: decl, partition, deadline } = at;
        let prefix = self.partition(decl, partition);
        let own = format!("{prefix}{}", rows::key(row_key));
        let target = format!("{prefix}{}", rows::column_key(row_key, column));
        let text = document::encode_value(value);
        for _ in 0..ATTEMPTS_MAX {
            let guess = self.guesses().about(&prefix, std::iter::empty());
            let fence = Operation::check(&format!("{prefix}{FENCE}"), guess.fence);
            let set = [fence, Operation::get(&own), Operation::set(&target, &text)];
            match self.client().txn(&set, deadline, true).await.map_err(Failure::fault)? {
                Ok(_) => return Ok(true),
                Err(errors) if errors.iter().any(|error| error.op_index == 0) => {
                    self.idle_snapshot(&prefix, &[FENCE.to_owned()], deadline).await?;
                }
                Err(_) => return Ok(false),
            }
        }
        Err(busy())
    }

    /// Adds the rows that are not there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table: _decl, partition: _, deadline: _ } = at;
        let mut left: Vec<Mutation> =
            rows.iter().map(|row| Mutation::Insert { row: row.clone() }).collect();
        // Each round adds all that is left, or finds one that is there already.
        while !left.is_empty() {
            match self.commit(at, &left).await.map_err(Failure::fault)? {
                CommitOutcome::Conflict(at) if at < left.len() => {
                    left.remove(at);
                }
                _ => break,
            }
        }
        Ok(())
    }

    async fn clean_up(&self, at: At<'_>, asked: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let prefix = self.partition(decl, partition);
        let mut deleted = 0;
        for _ in 0..ATTEMPTS_MAX {
            let found = self.idle_snapshot(&prefix, &[], self.client().deadline()).await?;
            let mut old = rows::partition(decl, &prefix, &found.kvs).map_err(Fault::corrupt)?;
            old.retain(|row| asked.wants(&row.row));
            let column_index = |row_key: &str| {
                let key = format!("{prefix}{}", rows::column_key(row_key, asked.column));
                found.kvs.iter().find(|kv| kv.key == key).map(|kv| kv.modify_index)
            };
            let each = 3 + document::volatile_names(decl).count();
            let mut again = false;
            for part in old.chunks((OPERATIONS_MAX - 1) / each.min(OPERATIONS_MAX - 1)) {
                let mut all =
                    vec![Operation::check(&format!("{prefix}{FENCE}"), found.fence.index)];
                for row in part {
                    let key = row.row.key();
                    if let Some(index) = column_index(key).filter(|_| asked.volatile) {
                        all.push(Operation::check(
                            &format!("{prefix}{}", rows::column_key(key, asked.column)),
                            index,
                        ));
                    }
                    let index = revision_of(&row.etag).unwrap_or(0);
                    let own = format!("{prefix}{}", rows::key(key));
                    // Not `delete-cas`: Consul does not report the deletion of a missing key as a
                    // failure.
                    all.extend([Operation::check(&own, index), Operation::delete(&own)]);
                    let names = document::volatile_names(decl);
                    all.extend(names.map(|n| {
                        Operation::delete(&format!("{prefix}{}", rows::column_key(key, n)))
                    }));
                }
                // A repeated request finds a row gone and reads it again. The count may then be too
                // small, which does no harm.
                match self
                    .client()
                    .txn(&all, self.client().deadline(), true)
                    .await
                    .map_err(Failure::fault)?
                {
                    Ok(_) => deleted += part.len() as u64,
                    Err(_) => again = true,
                }
            }
            if !again {
                return Ok(deleted);
            }
        }
        Err(busy())
    }
}
