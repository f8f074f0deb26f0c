//! The system store on etcd, over its JSON gateway.
