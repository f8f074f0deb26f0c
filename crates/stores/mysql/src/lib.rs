//! The system store on MySQL and MariaDB.
