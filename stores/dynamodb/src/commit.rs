//! Commits: one transaction each.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeValue as Attribute, ConditionCheck, Delete, Put, TransactWriteItem, Update,
};
use emmer_store::recent::Recent;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Etag, Mutation, Row, StoreErrorKind, TableDecl};
use emmer_store_keyvalue::{Answered, At, Commits, Failure, Fault, outcome};

use crate::client::Ended;
use crate::item::{self, ETAG, Item, RECENT, WRITTEN};
use crate::store::DynamoDb;

/// The most bytes of a transaction: those of its items.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// The most actions of a transaction, or gets.
pub(crate) const ACTIONS_MAX: usize = 100;

/// An expression while it is put together: names and values have stand-ins there, for many names
/// are reserved words.
#[derive(Debug, Default)]
pub(crate) struct Expression {
    pub(crate) names: HashMap<String, String>,
    pub(crate) values: HashMap<String, Attribute>,
}

impl Expression {
    /// Placeholder of an attribute's name.
    pub(crate) fn name(&mut self, name: &str) -> String {
        let stand_in = format!("#{}", self.names.len());
        self.names.insert(stand_in.clone(), name.to_owned());
        stand_in
    }

    /// Placeholder of a value.
    pub(crate) fn value(&mut self, value: Attribute) -> String {
        let stand_in = format!(":{}", self.values.len());
        self.values.insert(stand_in.clone(), value);
        stand_in
    }

    /// Returns true if an item is there: each has an etag.
    pub(crate) fn exists(&mut self) -> String {
        format!("attribute_exists({})", self.name(ETAG))
    }

    /// Returns true if no item is there.
    pub(crate) fn is_missing(&mut self) -> String {
        format!("attribute_not_exists({})", self.name(ETAG))
    }

    /// Returns true if an item is there and has this etag.
    pub(crate) fn has(&mut self, etag: &Etag) -> String {
        format!("{} = {}", self.name(ETAG), self.value(Attribute::S(etag.to_string())))
    }

    /// The values; None when there are none, because the service refuses an empty list.
    pub(crate) fn values(self) -> (HashMap<String, String>, Option<HashMap<String, Attribute>>) {
        let values = Some(self.values).filter(|values| !values.is_empty());
        (self.names, values)
    }
}

/// A commit on its way.
struct Commit<'a> {
    decl: &'static TableDecl,
    /// The name of the table.
    table: &'a str,
    partition: &'a str,
    mutations: &'a [Mutation],
    /// The etag of every row that this commit writes, and its token. No other commit has it.
    mark: Etag,
    /// The last commits that the version row names behind it.
    recent: Option<Recent>,
}

fn build<T>(built: Result<T, BuildError>) -> Result<T, Fault> {
    built.map_err(|e| Fault::new(StoreErrorKind::Invalid, e.to_string()))
}

impl Commit<'_> {
    /// The other rows that a version row's commit writes.
    fn written(&self) -> Attribute {
        let others =
            self.mutations.iter().filter(|mutation| !matches!(mutation, Mutation::Check { .. }));
        let others = others.map(Mutation::row_key).filter(|key| *key != VERSION_ROW);
        Attribute::L(others.map(|key| Attribute::S(key.to_owned())).collect())
    }

    /// The item of a row, and its size.
    fn item(&self, row: &Row) -> Result<(Item, usize), Fault> {
        let mut item = item::of(self.decl, self.partition, row, &self.mark)?;
        if row.key() == VERSION_ROW {
            item.insert(WRITTEN.to_owned(), self.written());
            if let Some(recent) = &self.recent {
                item.insert(RECENT.to_owned(), item::recent_attribute(recent, &self.mark));
            }
        }
        let size = item::size(&item);
        Ok((item, size))
    }

    /// One action for each mutation.
    fn actions(&self) -> Result<Vec<TransactWriteItem>, Fault> {
        let mut total = 0;
        let mut actions = Vec::with_capacity(self.mutations.len());
        for mutation in self.mutations {
            let (action, size) = self.action(mutation)?;
            total += size;
            actions.push(action);
        }
        if total > TRANSACTION_BYTES_MAX {
            let detail =
                format!("a commit of {total} bytes: a transaction takes {TRANSACTION_BYTES_MAX}");
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        Ok(actions)
    }

    fn action(&self, mutation: &Mutation) -> Result<(TransactWriteItem, usize), Fault> {
        let action = TransactWriteItem::builder();
        let mut expression = Expression::default();
        Ok(match mutation {
            Mutation::Insert { row } => {
                let condition = expression.is_missing();
                let (item, size) = self.item(row)?;
                let put = Put::builder().table_name(self.table).set_item(Some(item));
                let put = put
                    .condition_expression(condition)
                    .set_expression_attribute_names(Some(expression.names));
                (action.put(build(put.build())?).build(), size)
            }
            Mutation::Replace { row, etag } => {
                let condition = expression.has(etag);
                let (update, size) = self.update(row, expression, Some(condition))?;
                (action.update(update).build(), size)
            }
            Mutation::Upsert { row } => {
                let (update, size) = self.update(row, expression, None)?;
                (action.update(update).build(), size)
            }
            Mutation::Delete { row_key, etag } => {
                let condition = match etag {
                    Some(etag) => expression.has(etag),
                    None => expression.exists(),
                };
                let (names, values) = expression.values();
                let delete =
                    Delete::builder().table_name(self.table).set_key(Some(self.key(row_key)));
                let delete = delete
                    .condition_expression(condition)
                    .set_expression_attribute_names(Some(names));
                (
                    action
                        .delete(build(delete.set_expression_attribute_values(values).build())?)
                        .build(),
                    0,
                )
            }
            Mutation::Check { row_key, etag } => {
                let condition = expression.has(etag);
                let (names, values) = expression.values();
                let check = ConditionCheck::builder()
                    .table_name(self.table)
                    .set_key(Some(self.key(row_key)));
                let check = check
                    .condition_expression(condition)
                    .set_expression_attribute_names(Some(names));
                let check = build(check.set_expression_attribute_values(values).build())?;
                (action.condition_check(check).build(), 0)
            }
        })
    }

    fn key(&self, row_key: &str) -> Item {
        item::key(self.decl, self.partition, row_key)
    }

    /// An update that leaves the volatile columns of a row that is there alone.
    fn update(
        &self,
        row: &Row,
        mut expression: Expression,
        condition: Option<String>,
    ) -> Result<(Update, usize), Fault> {
        let (mut item, size) = self.item(row)?;
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        for column in self.decl.columns {
            let Some(attribute) = item.remove(column.name) else {
                remove.push(expression.name(column.name));
                continue;
            };
            if !column.volatile {
                let (name, value) = (expression.name(column.name), expression.value(attribute));
                set.push(format!("{name} = {value}"));
            } else if condition.is_none() {
                let (name, value) = (expression.name(column.name), expression.value(attribute));
                set.push(format!("{name} = if_not_exists({name}, {value})"));
            }
        }
        for own in [ETAG, WRITTEN, RECENT] {
            if let Some(attribute) = item.remove(own) {
                let (name, value) = (expression.name(own), expression.value(attribute));
                set.push(format!("{name} = {value}"));
            }
        }
        let mut text = format!("SET {}", set.join(", "));
        if !remove.is_empty() {
            text = format!("{text} REMOVE {}", remove.join(", "));
        }
        let (names, values) = expression.values();
        let update = Update::builder().table_name(self.table).set_key(Some(self.key(row.key())));
        let update = update.update_expression(text).set_condition_expression(condition);
        let update = update
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values);
        Ok((build(update.build())?, size))
    }
}

/// Returns true if a condition of this mutation that does not hold never will.
fn is_final(mutation: &Mutation) -> bool {
    match mutation {
        Mutation::Replace { .. }
        | Mutation::Check { .. }
        | Mutation::Delete { etag: Some(_), .. } => true,
        Mutation::Insert { .. } | Mutation::Upsert { .. } | Mutation::Delete { etag: None, .. } => {
            false
        }
    }
}

/// Outcome of a commit whose conditions did not hold. `repeated`: an earlier attempt of it may
/// still be on its way.
fn refused(
    mutations: &[Mutation],
    failed: &[usize],
    repeated: bool,
) -> Result<CommitOutcome, Failure> {
    let never = || failed.iter().filter_map(|at| mutations.get(*at)).any(is_final);
    match failed.first() {
        Some(at) if *at < mutations.len() && (!repeated || never()) => {
            Ok(CommitOutcome::Conflict(*at))
        }
        Some(_) => Err(Failure::Broken(Fault::unavailable(
            "the answer was lost, and when it was sent again a condition did not hold that may \
             hold later",
        ))),
        None => Err(Failure::Broken(Fault::corrupt("the server refuses and does not say what"))),
    }
}

impl Commits for DynamoDb {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table: decl, partition, deadline } = at;
        let table = self.name_of(decl);
        let recent = self.recent().after(decl.name, partition, mutations);
        let mark = self.mark();
        let commit = Commit { decl, table: &table, partition, mutations, mark, recent };
        let actions = commit.actions()?;
        let client = self.client();
        let done = client
            .send(deadline, || {
                let request =
                    client.sdk.transact_write_items().set_transact_items(Some(actions.clone()));
                request.client_request_token(commit.mark.as_ref()).send()
            })
            .await;
        match done {
            Ok(_) => {
                if mutations.iter().any(|mutation| mutation.row_key() == VERSION_ROW) {
                    self.settle(decl, partition, &commit.mark);
                    let recent = commit.recent.unwrap_or_default();
                    self.recent().learn(decl.name, partition, &commit.mark, recent);
                }
                Ok(outcome::committed(mutations, |_| commit.mark.clone()))
            }
            Err(Ended::Conditions { failed, repeated }) => refused(mutations, &failed, repeated),
            Err(Ended::Failed(failure)) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::recent::Seen;
    use emmer_store::{Column, ColumnType, Value};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("A", ColumnType::Text),
            Column::new("B", ColumnType::Text),
            Column::new("At", ColumnType::Text).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };

    fn actions(mutations: &[Mutation]) -> Result<Vec<TransactWriteItem>, Fault> {
        let (decl, table, partition, mark) = (&DECL, "emmer.t", "p", "m.1".into());
        let recent = Seen::default().after("t", "p", mutations);
        Commit { decl, table, partition, mutations, mark, recent }.actions()
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn volatile_columns_are_set_only_where_the_row_is_new() {
        let row = || Row::new("r").with("A", text("a")).with("At", text("now"));
        let found = actions(&[
            Mutation::Replace { row: row(), etag: "e".into() },
            Mutation::Upsert { row: row() },
        ])
        .unwrap();
        let updates: Vec<&Update> = found.iter().map(|action| action.update().unwrap()).collect();
        let expanded = |update: &Update| {
            let mut text =
                format!("{} IF {:?}", update.update_expression(), update.condition_expression());
            for (stand_in, name) in update.expression_attribute_names().unwrap() {
                text = text.replace(stand_in, name);
            }
            text
        };
        assert_eq!(
            expanded(updates[0]),
            r#"SET A = :1, _Etag = :2 REMOVE B IF Some("_Etag = :0")"#
        );
        assert_eq!(
            expanded(updates[1]),
            "SET A = :0, At = if_not_exists(At, :1), _Etag = :2 REMOVE B IF None"
        );
    }

    #[test]
    fn a_version_row_says_what_was_written_with_it() {
        let check = Mutation::Check { row_key: "c".into(), etag: "e".into() };
        let delete = Mutation::Delete { row_key: "d".into(), etag: None };
        let version = Mutation::Insert { row: Row::new(VERSION_ROW) };
        let found =
            actions(&[version, check, delete, Mutation::Upsert { row: Row::new("u") }]).unwrap();
        let item = found[0].put().unwrap().item();
        assert_eq!(item::written(item), ["d", "u"]);
        let other = found[3].update().unwrap();
        assert!(!other.expression_attribute_names().unwrap().values().any(|name| name == WRITTEN));
    }

    #[test]
    fn a_version_row_says_what_the_last_commits_wrote() {
        let version = Mutation::Replace { row: Row::new(VERSION_ROW), etag: "e.1".into() };
        let found = actions(&[version, Mutation::Upsert { row: Row::new("u") }]).unwrap();
        let update = found[0].update().unwrap();
        let names = update.expression_attribute_names().unwrap();
        assert!(names.values().any(|name| name == RECENT), "{names:?}");
        let values = update.expression_attribute_values().unwrap().values();
        let lists = values.filter_map(|value| value.as_l().ok()).cloned();
        let said = lists.map(|list| {
            let item = Item::from([(RECENT.to_owned(), Attribute::L(list))]);
            item::recent(&item, &"m.1".into()).since(&"e.1".into())
        });
        let wanted = [VERSION_ROW.to_owned(), "u".to_owned()].into();
        assert!(said.flatten().any(|keys| keys == wanted));
    }

    #[test]
    fn a_commit_beyond_the_limit_is_not_sent() {
        let insert = |n: usize| Mutation::Insert {
            row: Row::new(n.to_string()).with("A", text(&"x".repeat(390 << 10))),
        };
        let error = actions(&(0..11).map(insert).collect::<Vec<_>>()).unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("4194304"),
            "{error:?}"
        );
        assert!(actions(&(0..10).map(insert).collect::<Vec<_>>()).is_ok());
    }

    #[test]
    fn after_a_lost_answer_only_an_etag_tells_a_conflict() {
        let insert = Mutation::Insert { row: Row::new("i") };
        let replace = Mutation::Replace { row: Row::new("r"), etag: "e".into() };
        let both = [insert, replace];
        assert_eq!(refused(&both, &[0], false), Ok(CommitOutcome::Conflict(0)));
        assert!(matches!(refused(&both, &[0], true), Err(Failure::Broken(_))));
        assert_eq!(refused(&both, &[1], true), Ok(CommitOutcome::Conflict(1)));
        assert_eq!(refused(&both, &[0, 1], true), Ok(CommitOutcome::Conflict(0)));
        assert!(matches!(refused(&both, &[], false), Err(Failure::Broken(_))));
    }
}
