//! Parts that the stores on Azure's two services share, Table Storage and Cosmos DB. A row has an
//! etag of the service's, which changes with every write, and a commit is one transaction that
//! compares it.

mod date;
pub mod keys;
mod known;
mod seen;
mod token;

pub use date::http_date;
pub use known::Known;
pub use seen::{Guesses, Seen, volatile};
pub use token::{TOKEN_FILE_AGE, Token};
