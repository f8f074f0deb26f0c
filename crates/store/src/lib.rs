//! The system store: one contract over every server that can keep Emmer's tables.

pub mod contract;
pub mod table;

pub use contract::{
    BoxFuture, CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
pub use table::{Column, ColumnType, Row, TableDecl, Value};
