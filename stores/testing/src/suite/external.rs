//! The suite on a server that runs elsewhere, named by a variable of the environment: for stores
//! whose servers are on no package registry.

use emmer_core::Timestamp;
use emmer_store::{Mutation, StoredRow};

use super::Store;
use super::rows::NUMBERS;

/// The URL in `variable`; without one, a line that is not overlooked.
pub fn server(variable: &str, test: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        println!(
            "NOT RUN {test}: no server is named by {variable}; this store is untested against a \
             live server"
        );
    }
    url
}

/// The whole suite, one test after the other in one empty database.
pub async fn passes_all(url: &str, store: Store) {
    super::conforms(url, store).await;
    super::writers::first_tables(url, store).await;
    super::forward::by_many_at_once(url, store).await;
    super::writers::race(url, store).await;
    for part in 0..3 {
        let open = store.patient(url).await;
        // Rows of the part before.
        let rows = open.read_partition(&NUMBERS, "p").await.unwrap();
        for some in rows.chunks(100) {
            let delete = |row: &StoredRow| Mutation::Delete {
                row_key: row.row.key().to_owned(),
                etag: None,
            };
            open.commit(&NUMBERS, "p", some.iter().map(delete).collect()).await.unwrap();
        }
        match part {
            0 => super::writers::snapshots(url, store).await,
            1 => super::writers::large_partition(url, store).await,
            _ => super::crosswise::old_rows(url, store).await,
        }
    }
    super::crosswise::new_rows(url, store).await;
    super::refused::dropped(url, store).await;
    let open = store.patient(url).await;
    open.delete_older_than(&NUMBERS, "p", "At", Timestamp::from_millis(0)).await.unwrap();
}

/// URL of the server with another password or another database, and without the parameters of the
/// URL.
pub fn elsewhere(url: &str, password: Option<&str>, database: Option<&str>) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (credentials, place) = rest.rsplit_once('@').unwrap();
    let (user, own) = credentials.split_once(':').unwrap();
    let place = place.split('?').next().unwrap();
    let (host, own_database) = place.split_once('/').unwrap();
    let (password, database) = (password.unwrap_or(own), database.unwrap_or(own_database));
    format!("{scheme}://{user}:{password}@{host}/{database}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_led_elsewhere() {
        let url = "x://bob:a%40b@db:1/emmer?timeout_ms=1000";
        assert_eq!(elsewhere(url, Some("s3cret"), None), "x://bob:s3cret@db:1/emmer");
        assert_eq!(elsewhere(url, None, Some("other")), "x://bob:a%40b@db:1/other");
    }
}
