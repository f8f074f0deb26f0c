//! The system store on Redis.
