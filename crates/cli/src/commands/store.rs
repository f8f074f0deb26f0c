//! Opening the system store.

use std::sync::Arc;

use emmer::store::{self, StoreErrorKind, SystemStore};

use crate::exit::{Failure, Result};

/// Opens the store at `url`, making what is missing.
pub async fn open(url: &str) -> Result<Arc<dyn SystemStore>> {
    store::open(url).await.map_err(Failure::store)
}

/// Opens the store at `url` to look at it: a file that is missing is an error and stays missing,
/// because the likeliest reason is a typing mistake.
pub async fn open_existing(url: &str) -> Result<Arc<dyn SystemStore>> {
    store::open(&existing(url)).await.map_err(|error| {
        let hint = match error.kind {
            StoreErrorKind::Refused if is_file(url) => {
                "; this command only looks and makes nothing: is the path right?"
            }
            _ => "",
        };
        Failure::store(format!("{error}{hint}"))
    })
}

fn is_file(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("sqlite"))
}

fn existing(url: &str) -> String {
    if !is_file(url) || url.contains("mode=") {
        return url.to_owned();
    }
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}mode=rw")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_never_makes_a_file() {
        for (url, opened) in [
            ("sqlite://a.db", "sqlite://a.db?mode=rw"),
            ("SQLite://a.db", "SQLite://a.db?mode=rw"),
            ("sqlite://a.db?synchronous=full", "sqlite://a.db?synchronous=full&mode=rw"),
            ("sqlite://a.db?mode=rwc", "sqlite://a.db?mode=rwc"),
            ("memory://x", "memory://x"),
        ] {
            assert_eq!(existing(url), opened);
        }
    }
}
