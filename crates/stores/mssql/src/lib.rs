//! The system store on SQL Server.
