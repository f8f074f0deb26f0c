//! A view of all games, kept up to date by the boards.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer::observers::{News, Watch};
use emmer::prelude::*;
use futures_util::{Stream, stream};
use serde::Serialize;

use crate::board::{BOARDS, Board, BoardEvents, BoardEventsEvent, BoardRef, Change, Standing};

/// The pause before a board is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// News of a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoardNews {
    /// The number of the board.
    pub board: u64,
    /// True: these are all its games. False: these games have changed.
    pub all: bool,
    /// The games.
    pub games: Vec<Change>,
}

/// The news of all boards: each begins with all its games, also after a loss.
pub fn news(client: &Client) -> impl Stream<Item = Result<BoardNews, String>> + Send + use<> {
    let boards = (0..BOARDS).map(|number| Box::pin(follow(client, number)));
    stream::select_all(boards)
}

/// All games that are played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// By number.
    pub games: BTreeMap<u64, Standing>,
}

impl View {
    /// Takes news in.
    pub fn take(&mut self, news: BoardNews) {
        if news.all {
            self.games.retain(|game, _| game % BOARDS != news.board);
        }
        for (game, standing) in news.games {
            match standing {
                Some(standing) => self.games.insert(game, standing),
                None => self.games.remove(&game),
            };
        }
    }

    /// The number of players in all games.
    pub fn players(&self) -> u64 {
        self.games.values().map(|standing| u64::from(standing.players)).sum()
    }
}

/// A board that is followed.
struct Follow {
    number: u64,
    board: BoardRef,
    watch: Watch<dyn BoardEvents>,
    /// True: what it told may be incomplete, and it is read.
    is_behind: bool,
}

fn follow(
    client: &Client,
    number: u64,
) -> impl Stream<Item = Result<BoardNews, String>> + Send + use<> {
    let board = client.grain::<dyn Board>(number);
    let watch = client.watch(&board, |board, me| board.join(me));
    let follow = Follow { number, board, watch, is_behind: true };
    stream::try_unfold(follow, |mut follow| async move {
        Ok(follow.next().await?.map(|news| (news, follow)))
    })
}

impl Follow {
    async fn next(&mut self) -> Result<Option<BoardNews>, String> {
        let board = self.number;
        loop {
            if self.is_behind {
                // Joined first and read then: no change falls between the two.
                self.watch.joined().await;
                if let Ok(games) = self.board.read().timeout(secs(3)).await {
                    self.is_behind = false;
                    let games = games.into_iter().map(|(game, standing)| (game, Some(standing)));
                    return Ok(Some(BoardNews { board, all: true, games: games.collect() }));
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            match self.watch.next().await {
                Some(Ok(News::Event(BoardEventsEvent::Changed { games }))) => {
                    return Ok(Some(BoardNews { board, all: false, games }));
                }
                Some(Ok(News::Gap(_))) => self.is_behind = true,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Ok(None),
            }
        }
    }
}
