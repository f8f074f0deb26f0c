//! The system store on Consul's key-value store.
