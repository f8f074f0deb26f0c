//! A connection between two silos, or a client and a silo. Sans-IO.
//!
//! A [`Link`] is one end of a connection after its handshake. It has the frames that wait to be
//! sent, the calls that wait for answers, the peer's credit, and the connection's way to its end.
//! All users of the connection share it, behind a lock that is theirs. An [`Intake`] reads what the
//! peer sends; it belongs to the one thread that reads the socket.
//!
//! ```text
//!    call, one_way, system, reply       goodbye, part, retire, lose
//!                 |                              |
//!                 v                              v
//!   poll_transmit <--------------- Link ----------------> poll_event, take_wakers
//!                                 ^    ^
//!   socket --> Intake::next ------+    +------ handle_timeout(now), poll_timeout
//!                  |
//!                  v
//!              the peer's calls
//! ```
//!
//! Nothing here reads a clock. A wait begins at the first [`handle_timeout`](Link::handle_timeout)
//! after its cause, so a process that stood still accuses no peer.
//!
//! | module | subject |
//! |---|---|
//! | `link`, `outbox` | the state, messages between runtimes, bytes on their way |
//! | `life` | phases of a connection, and how it ends |
//! | `calls`, `pending` | calls of this side |
//! | `serving` | calls of the peer, and their answers |
//! | `intake` | frames as they arrive |
//! | `timeouts`, `silence`, `unread` | what time alone brings about |
//! | `renewal` | two connections of which one takes the other's place |
//! | [`account`] | memory that peers make this side hold |

pub mod account;
mod calls;
mod intake;
mod life;
mod link;
mod lost;
mod outbox;
mod pending;
mod renewal;
mod serving;
mod silence;
mod timeouts;
mod unread;
mod words;

pub use self::intake::{Event, Intake, Next};
pub use self::life::Phase;
pub use self::link::{Counts, Link, Setup};
pub use self::lost::{Lost, SendError};
pub use self::pending::{Answer, Budget, Correlation, Full, KEPT_BODY_BYTES_MAX};
pub use self::renewal::{Place, Rank};
pub use self::serving::fit_reply;
pub use self::timeouts::Ticked;
