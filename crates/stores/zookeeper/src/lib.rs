//! The system store on ZooKeeper.
