//! A partition that the server hands out in pages, each of another moment, as one moment.
//!
//! A partition in which every commit writes the row [`VERSION_ROW`](crate::silos::VERSION_ROW) says
//! by it whether anything changed: what was read between two looks at that row which found the same
//! etag is one moment. Partitions without one (grain state, statistics) have no row that every
//! commit writes, and must have none: writers of different rows would queue there. Such a partition
//! is read until two passes found the same rows with the same etags.
//!
//! A table whose partitions need not be read as one moment ([`TableDecl::one_moment`]) is read in
//! one pass: each row as it was at some moment, and nobody is told to come back.
//!
//! Where even a page is no moment (a server whose queries may see half of a transaction), a
//! partition with a version row is read between two looks however small it is.
//!
//! What two equal passes cannot tell: a row that is not there in both may have been there in
//! between. Rows that come and go within one read belong to nobody who reads whole partitions
//! without a version row.

use std::future::Future;

use crate::contract::{Etag, StoredRow};
use crate::table::TableDecl;

/// How often a partition of several pages is read before its reader is told that others change it
/// all the time.
pub const PASSES_MAX: u32 = 8;

/// One page of rows, and where the next one begins; none behind the last.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows, in the server's order.
    pub rows: Vec<StoredRow>,
    /// The server's token of the next page.
    pub next: Option<T>,
}

/// What a reader asks its server.
pub trait Pages: Sync {
    /// The server's token of a page.
    type Token: Send;
    /// How a request fails.
    type Error: Send;

    /// Whether a page is one moment: a partition of one page then takes one request.
    const PAGE_IS_ONE_MOMENT: bool = true;

    /// A page: the first, or the one of a token.
    ///
    /// # Errors
    /// The server's.
    fn page(
        &self,
        from: Option<Self::Token>,
    ) -> impl Future<Output = Result<Page<Self::Token>, Self::Error>> + Send;

    /// The etag of the partition's version row as it is now; none without one.
    ///
    /// # Errors
    /// The server's.
    fn version(&self) -> impl Future<Output = Result<Option<Etag>, Self::Error>> + Send;
}

/// All rows of a partition of `table`, in the server's order: at one moment if the table needs
/// that; none when it changed during every one of [`PASSES_MAX`] passes. A partition of one page
/// takes one request, or three where a page is no moment and the table needs one.
///
/// # Errors
/// The server's, the first.
pub async fn read<P: Pages>(
    table: &TableDecl,
    pages: &P,
) -> Result<Option<Vec<StoredRow>>, P::Error> {
    if !table.one_moment {
        return Ok(Some(pass(pages).await?.0));
    }
    if P::PAGE_IS_ONE_MOMENT {
        // Were there more, it would be older than the version read then: it is read again.
        let first = pages.page(None).await?;
        if first.next.is_none() {
            return Ok(Some(first.rows));
        }
    }
    let (mut before, mut last) = (pages.version().await?, None::<Vec<StoredRow>>);
    for _ in 0..PASSES_MAX {
        let (found, number) = pass(pages).await?;
        let after = pages.version().await?;
        let whole = match (&before, &after) {
            (Some(before), Some(after)) => before == after,
            (None, None) => number == 1 || last.as_ref().is_some_and(|last| same(last, &found)),
            _ => false,
        };
        if whole {
            return Ok(Some(found));
        }
        (before, last) = (after, Some(found));
    }
    Ok(None)
}

/// Every page, one after the other, and how many there were.
async fn pass<P: Pages>(pages: &P) -> Result<(Vec<StoredRow>, usize), P::Error> {
    let (mut rows, mut number) = (Vec::new(), 0);
    let mut from = None;
    loop {
        let page = pages.page(from).await?;
        number += 1;
        rows.extend(page.rows);
        match page.next {
            None => return Ok((rows, number)),
            next => from = next,
        }
    }
}

/// The same rows with the same etags. Volatile columns may differ: no commit writes them.
fn same(one: &[StoredRow], other: &[StoredRow]) -> bool {
    let keys = |rows: &[StoredRow]| {
        rows.iter().map(|r| (r.row.key().to_owned(), r.etag.clone())).collect::<Vec<_>>()
    };
    keys(one) == keys(other)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::table::Row;

    static MOMENT: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[],
        schema_version: 1,
        one_moment: true,
    };
    static ANY: TableDecl = TableDecl { one_moment: false, ..MOMENT };

    /// A partition of two rows a page, in which others commit before the requests that are listed,
    /// counted from 0.
    struct Server {
        versioned: bool,
        state: Mutex<State>,
    }

    struct State {
        requests: usize,
        commits_before: Vec<usize>,
        number: usize,
        rows: usize,
    }

    impl Server {
        fn new(rows: usize, versioned: bool, commits_before: &[usize]) -> Self {
            let commits_before = commits_before.to_vec();
            Self {
                versioned,
                state: Mutex::new(State { requests: 0, commits_before, number: 0, rows }),
            }
        }

        fn request(&self) -> std::sync::MutexGuard<'_, State> {
            let mut state = self.state.lock().unwrap();
            let at = state.requests;
            state.requests += 1;
            state.number += usize::from(state.commits_before.contains(&at));
            state
        }

        /// What a reader gets, and how many requests it took.
        fn read(&self) -> (Option<Vec<StoredRow>>, usize) {
            self.read_of(&MOMENT)
        }

        fn read_of(&self, table: &TableDecl) -> (Option<Vec<StoredRow>>, usize) {
            let found = read(table, self).now_or_never().unwrap().unwrap();
            (found, self.state.lock().unwrap().requests)
        }
    }

    impl Pages for Server {
        type Token = usize;
        type Error = Infallible;

        async fn page(&self, from: Option<usize>) -> Result<Page<usize>, Infallible> {
            let (from, state) = (from.unwrap_or(0), self.request());
            let end = (from + 2).min(state.rows);
            let row = |n: usize| StoredRow {
                row: Row::new(format!("r{n}")),
                etag: state.number.to_string().into(),
            };
            Ok(Page {
                rows: (from..end).map(row).collect(),
                next: (end < state.rows).then_some(end),
            })
        }

        async fn version(&self) -> Result<Option<Etag>, Infallible> {
            let state = self.request();
            Ok(self.versioned.then(|| state.number.to_string().into()))
        }
    }

    /// Whether all rows are of one commit, and which.
    fn moment(rows: &[StoredRow]) -> Option<Etag> {
        let first = rows.first()?.etag.clone();
        rows.iter().all(|row| row.etag == first).then_some(first)
    }

    #[test]
    fn one_page_takes_one_request() {
        for versioned in [true, false] {
            let (found, requests) = Server::new(2, versioned, &[]).read();
            assert_eq!((found.unwrap().len(), requests), (2, 1));
            assert_eq!(Server::new(0, versioned, &[]).read().0, Some(Vec::new()));
        }
    }

    #[test]
    fn a_quiet_partition_takes_one_pass_by_its_version_and_two_without() {
        // The first page, the version, three pages, the version.
        assert_eq!(Server::new(6, true, &[]).read().1, 6);
        assert_eq!(Server::new(6, false, &[]).read().1, 10);
    }

    #[test]
    fn a_commit_at_any_request_tears_no_read() {
        for versioned in [true, false] {
            for first in 0..12 {
                for second in first..12 {
                    let server = Server::new(6, versioned, &[first, second]);
                    let rows = server.read().0.unwrap();
                    assert_eq!(rows.len(), 6);
                    assert!(moment(&rows).is_some(), "{versioned} {first} {second}: {rows:?}");
                }
            }
        }
    }

    /// The same server, with a page for all rows that is no moment: others commit between its rows.
    struct Torn(Server);

    impl Pages for Torn {
        type Token = usize;
        type Error = Infallible;
        const PAGE_IS_ONE_MOMENT: bool = false;

        async fn page(&self, _: Option<usize>) -> Result<Page<usize>, Infallible> {
            let rows = self.0.state.lock().unwrap().rows;
            let row = |n: usize| StoredRow {
                row: Row::new(format!("r{n}")),
                etag: self.0.request().number.to_string().into(),
            };
            Ok(Page { rows: (0..rows).map(row).collect(), next: None })
        }

        async fn version(&self) -> Result<Option<Etag>, Infallible> {
            self.0.version().await
        }
    }

    #[test]
    fn a_page_that_is_no_moment_is_read_between_two_looks_at_the_version() {
        for at in 0..8 {
            let torn = Torn(Server::new(3, true, &[at]));
            let rows = read(&MOMENT, &torn).now_or_never().unwrap().unwrap().unwrap();
            assert_eq!(rows.len(), 3);
            assert!(moment(&rows).is_some(), "{at}: {rows:?}");
        }
        // Without a version a page is all there is to go by.
        for versioned in [true, false] {
            let torn = Torn(Server::new(3, versioned, &[]));
            assert!(read(&MOMENT, &torn).now_or_never().unwrap().unwrap().is_some());
            assert_eq!(torn.0.state.lock().unwrap().requests, 5);
        }
    }

    #[test]
    fn a_table_that_needs_no_moment_is_read_in_one_pass_whatever_others_do() {
        let always: Vec<usize> = (0..1_000).collect();
        for versioned in [true, false] {
            let (found, requests) = Server::new(6, versioned, &always).read_of(&ANY);
            let keys: Vec<_> = found.unwrap().iter().map(|row| row.row.key().to_owned()).collect();
            assert_eq!((keys.join(" ").as_str(), requests), ("r0 r1 r2 r3 r4 r5", 3));
            let torn = Torn(Server::new(3, versioned, &always));
            assert_eq!(read(&ANY, &torn).now_or_never().unwrap().unwrap().unwrap().len(), 3);
            assert_eq!(torn.0.state.lock().unwrap().requests, 3);
        }
    }

    #[test]
    fn a_partition_that_never_rests_is_given_up() {
        let always: Vec<usize> = (0..1_000).collect();
        for versioned in [true, false] {
            let (found, requests) = Server::new(6, versioned, &always).read();
            assert_eq!(found, None);
            assert_eq!(requests, 2 + PASSES_MAX as usize * 4);
        }
    }
}
