//! The system store on Oracle Database.
