//! The system store on SQLite.
