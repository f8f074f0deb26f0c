//! A partition that the server hands out in pages, each of another moment, as one moment.
//!
//! A partition in which every commit writes the row [`VERSION_ROW`] shows by it whether anything
//! changed: rows that were read between two looks at that row with the same etag are one moment.
//! Where the etags differ, the row may name the rows that were written in between ([`Recent`]).
//! Only those are read again, until nothing came between. So a read of many rows ends although
//! writers never rest. Partitions without a version row (grain state, statistics) must have no row
//! that every commit writes: writers of different rows would queue there. Such a partition is read
//! until two passes found the same rows with the same etags.
//!
//! A table whose partitions need not be read as one moment ([`TableDecl::one_moment`]) is read in
//! one pass: each row as it was at some moment.
//!
//! Where even a page is no moment (a server whose queries may see half of a transaction), a
//! partition with a version row is read between two looks however small it is.
//!
//! What two equal passes cannot tell: a row that is not there in both may have been there in
//! between. Rows that come and go within one read matter only to readers with a version row.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use crate::contract::{Etag, StoredRow};
use crate::recent::Recent;
use crate::silos::VERSION_ROW;
use crate::table::TableDecl;

/// Number of reads of a partition of several pages before its reader gets the error that other
/// writers change it all the time.
pub const PASSES_MAX: u32 = 8;

/// The most times in each pass that rows are read again which were written meanwhile.
pub const REPAIRS_MAX: u32 = 64;

/// One page of rows, and the start of the next page; None behind the last.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows, in the server's order.
    pub rows: Vec<StoredRow>,
    /// The server's token of the next page.
    pub next: Option<T>,
}

/// The version row as it is at one moment.
#[derive(Clone, Debug)]
pub struct Version {
    /// The etag, which every commit changes.
    pub etag: Etag,
    /// The row itself, where the partition has one.
    pub row: Option<StoredRow>,
    /// The last commits, where the store keeps them.
    pub recent: Recent,
}

/// Server as a reader of pages sees it.
pub trait Pages: Sync {
    /// The server's token of a page.
    type Token: Send;
    /// Error of a request.
    type Error: Send;

    /// True if a page is one moment. A partition of one page then takes one request.
    const PAGE_IS_ONE_MOMENT: bool = true;

    /// A page: the first, or the one of a token.
    ///
    /// # Errors
    /// The server's.
    fn page(
        &self,
        from: Option<Self::Token>,
    ) -> impl Future<Output = Result<Page<Self::Token>, Self::Error>> + Send;

    /// The partition's present version row, if it has one.
    ///
    /// # Errors
    /// The server's.
    fn version(&self) -> impl Future<Output = Result<Option<Version>, Self::Error>> + Send;

    /// Number of keys [`rows`](Self::rows) reads at one moment together with the version; 0: it
    /// does not.
    const TOGETHER_MAX: usize = 0;

    /// The existing rows of these keys, each as it is at some moment from now on; and the version,
    /// if all of it is of one moment. Asked only for keys out of a [`Version::recent`].
    ///
    /// # Errors
    /// The server's.
    fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> impl Future<Output = Result<(Vec<StoredRow>, Option<Version>), Self::Error>> + Send;
}

/// The reason that a partition was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread<E> {
    /// Others changed it all the time: [`PASSES_MAX`] passes were of no use.
    Overtaken,
    /// The server's error, the first.
    Failed {
        /// The error.
        error: E,
        /// Others had changed the partition meanwhile: without them the read would have ended.
        overtaken: bool,
    },
}

/// All rows of a partition of `table`: at one moment if the table needs that. In the server's
/// order, or, where rows were read again, by their keys. A partition of one page takes one request,
/// or three where a page is no moment and the table needs one.
///
/// # Errors
/// [`Unread`].
pub async fn read<P: Pages>(
    table: &TableDecl,
    pages: &P,
) -> Result<Vec<StoredRow>, Unread<P::Error>> {
    let mut overtaken = false;
    match read_until(table, pages, &mut overtaken).await {
        Ok(rows) => rows.ok_or(Unread::Overtaken),
        Err(error) => Err(Unread::Failed { error, overtaken }),
    }
}

/// `overtaken` becomes true when others have changed the partition.
async fn read_until<P: Pages>(
    table: &TableDecl,
    pages: &P,
    overtaken: &mut bool,
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
        match (before, after) {
            (Some(known), Some(now)) => {
                *overtaken |= known.etag != now.etag;
                let (whole, latest) = repaired(pages, found, known, now).await?;
                if whole.is_some() {
                    return Ok(whole);
                }
                before = Some(latest);
            }
            (None, None) => {
                if number == 1 || last.as_ref().is_some_and(|last| same(last, &found)) {
                    return Ok(Some(found));
                }
                (before, last) = (None, Some(found));
            }
            (_, after) => before = after,
        }
    }
    Ok(None)
}

/// Reads rows that were written since the look that found `known`, again and again, until all rows
/// are of one moment. Returns the rows, or none, and the last look at the version.
///
/// At each look every row is as it was at that look, except rows that were written since the look
/// before. These, the wanted rows, are read again, and the version is looked at once more. If no
/// wanted row was written meanwhile, all rows are as they were at the look before: that is the
/// moment. If rows and version were read at once, and only wanted rows were written meanwhile, the
/// moment is the last look. So rows that are written again and again are wanted every other time,
/// too.
async fn repaired<P: Pages>(
    pages: &P,
    found: Vec<StoredRow>,
    mut known: Version,
    mut now: Version,
) -> Result<(Option<Vec<StoredRow>>, Version), P::Error> {
    if known.etag == now.etag {
        return Ok((Some(found), now));
    }
    let mut rows: BTreeMap<String, StoredRow> = by_key(found).collect();
    for turn in 0..REPAIRS_MAX {
        let Some(mut wanted) = now.recent.since(&known.etag) else { break };
        if turn % 2 == 1 {
            let hot = now.recent.written_again();
            wanted.extend(hot.into_iter().take(P::TOGETHER_MAX.saturating_sub(wanted.len())));
        }
        // The version row is read by itself.
        wanted.remove(VERSION_ROW);
        let (again, at_once) = pages.rows(&wanted).await?;
        rows.retain(|key, _| !wanted.contains(key));
        rows.extend(by_key(again));
        let is_at_once = at_once.is_some();
        let next = match at_once {
            None => pages.version().await?,
            version => version,
        };
        let Some(next) = next else { break };
        let meanwhile = if next.etag == now.etag {
            BTreeSet::default()
        } else {
            // The change is older than the list: the next turn ends.
            let Some(mut meanwhile) = next.recent.since(&now.etag) else { break };
            meanwhile.remove(VERSION_ROW);
            meanwhile
        };
        let moment = if meanwhile.is_disjoint(&wanted) {
            Some(&now)
        } else if is_at_once && meanwhile.is_subset(&wanted) {
            Some(&next)
        } else {
            None
        };
        if let Some(row) = moment.and_then(|version| version.row.clone()) {
            rows.insert(VERSION_ROW.to_owned(), row);
            return Ok((Some(rows.into_values().collect()), next));
        }
        (known, now) = (now, next);
    }
    Ok((None, now))
}

fn by_key(rows: Vec<StoredRow>) -> impl Iterator<Item = (String, StoredRow)> {
    rows.into_iter().map(|row| (row.row.key().to_owned(), row))
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

/// Returns true if both have the same rows with the same etags. Volatile columns may differ: no
/// commit writes them.
fn same(one: &[StoredRow], other: &[StoredRow]) -> bool {
    let keys = |rows: &[StoredRow]| {
        rows.iter().map(|r| (r.row.key().to_owned(), r.etag.clone())).collect::<Vec<_>>()
    };
    keys(one) == keys(other)
}

#[cfg(test)]
mod busy_tests;
#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::table::Row;

    pub(super) static MOMENT: TableDecl = TableDecl {
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

        /// Result of a reader, and its number of requests.
        fn read(&self) -> (Option<Vec<StoredRow>>, usize) {
            self.read_of(&MOMENT)
        }

        fn read_of(&self, table: &TableDecl) -> (Option<Vec<StoredRow>>, usize) {
            let found = read(table, self).now_or_never().unwrap();
            assert!(found.is_ok() || found == Err(Unread::Overtaken), "{found:?}");
            (found.ok(), self.state.lock().unwrap().requests)
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

        async fn version(&self) -> Result<Option<Version>, Infallible> {
            let state = self.request();
            let etag = Etag::from(state.number.to_string());
            Ok(self.versioned.then(|| Version { etag, row: None, recent: Recent::default() }))
        }

        async fn rows(
            &self,
            _: &BTreeSet<String>,
        ) -> Result<(Vec<StoredRow>, Option<Version>), Infallible> {
            unreachable!("the version row does not say what was written")
        }
    }

    /// Returns true if all rows are of one commit, and which.
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

    /// A server with a page for all rows that is no moment: others commit between its rows.
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

        async fn version(&self) -> Result<Option<Version>, Infallible> {
            self.0.version().await
        }

        async fn rows(
            &self,
            keys: &BTreeSet<String>,
        ) -> Result<(Vec<StoredRow>, Option<Version>), Infallible> {
            self.0.rows(keys).await
        }
    }

    #[test]
    fn a_page_that_is_no_moment_is_read_between_two_looks_at_the_version() {
        for at in 0..8 {
            let torn = Torn(Server::new(3, true, &[at]));
            let rows = read(&MOMENT, &torn).now_or_never().unwrap().unwrap();
            assert_eq!(rows.len(), 3);
            assert!(moment(&rows).is_some(), "{at}: {rows:?}");
        }
        // Without a version a page is all there is to go by.
        for versioned in [true, false] {
            let torn = Torn(Server::new(3, versioned, &[]));
            assert!(read(&MOMENT, &torn).now_or_never().unwrap().is_ok());
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
            assert_eq!(read(&ANY, &torn).now_or_never().unwrap().unwrap().len(), 3);
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
