//! Two silos that both find at the same moment that nothing comes, and both dial.

use std::collections::BTreeMap;

use emmer_core::rng::SeededRng;
use emmer_link::{Event, Intake, Link, Next, Place};
use emmer_wire::PeerKind;

use crate::world::{Process, silo};

/// One end of one connection.
struct Half {
    link: Link,
    intake: Intake,
    /// Bytes on their way to this end.
    wire: Vec<u8>,
}

/// Two silos, and connections by their numbers.
struct Silos {
    process: [Process; 2],
    halves: [BTreeMap<u64, Half>; 2],
    /// The connection that each side talks over.
    current: [u64; 2],
    next: u64,
}

impl Silos {
    fn new() -> Self {
        let mut silos = Self {
            process: [Process::default(), Process::default()],
            halves: [BTreeMap::new(), BTreeMap::new()],
            current: [0, 0],
            next: 0,
        };
        silos.connect();
        silos
    }

    fn connect(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        for side in 0..2 {
            let peer = silo(2 - u16::try_from(side).unwrap());
            let link = self.process[side].link(PeerKind::Silo(peer));
            let intake = Intake::new(&link);
            self.halves[side].insert(number, Half { link, intake, wire: Vec::new() });
        }
        number
    }

    /// `side` has dialled, and its dial has succeeded.
    fn renew(&mut self, side: usize) {
        let before = self.current[side];
        let fresh = self.connect();
        let rank = self.half(side, before).link.rank();
        self.half(side, fresh).link.propose(rank, is_lower(side));
        self.half(side, before).link.retire();
        self.current[side] = fresh;
    }

    fn half(&mut self, side: usize, number: u64) -> &mut Half {
        self.halves[side].get_mut(&number).expect("a connection")
    }

    /// Delivers the bytes queued on connection `number` at `side`. Returns true if there were any.
    fn carry(&mut self, side: usize, number: u64) -> bool {
        let half = self.half(side, number);
        let Some(bytes) = half.link.poll_transmit().map(<[u8]>::to_vec) else { return false };
        half.link.transmitted(bytes.len());
        let half = self.half(1 - side, number);
        half.wire.extend(bytes);
        half.intake.begin_go();
        half.link.begin_intake(&mut half.intake, half.wire.len()).unwrap();
        let mut proposed = false;
        while let Next::Other(frame) = half.intake.next(&half.wire, 0).unwrap() {
            half.link.handle_frame(&frame).unwrap();
            while let Some(event) = half.link.poll_event() {
                proposed |= event == Event::Instead;
            }
        }
        half.link.end_intake(&mut half.intake, &mut bytes::BytesMut::new());
        let handled = half.intake.take_handled();
        half.wire.drain(..handled);
        if proposed {
            self.proposed(1 - side, number);
        }
        true
    }

    fn proposed(&mut self, side: usize, number: u64) {
        let current = self.current[side];
        let rank = (current != number).then(|| self.half(side, current).link.rank());
        match self.half(side, number).link.hear_proposal(rank, is_lower(side)) {
            None | Some(Place::Yields) => {}
            Some(Place::Takes) => {
                self.half(side, current).link.retire();
                self.current[side] = number;
            }
        }
    }
}

fn is_lower(side: usize) -> bool {
    let silos = [silo(1), silo(2)];
    silos[side] < silos[1 - side]
}

/// Words on two connections come in no common order.
#[test]
fn two_silos_that_renew_their_connection_at_any_time_talk_over_the_same_one() {
    let mut crossings = 0;
    for seed in 0..3_000 {
        let mut rng = SeededRng::new(seed);
        let mut silos = Silos::new();
        let mut renewals = 0;
        for _ in 0..60 {
            let side = rng.index(2);
            if renewals < 5 && rng.chance(0.1) {
                renewals += 1;
                silos.renew(side);
            } else {
                let number = rng.below(silos.next);
                silos.carry(side, number);
            }
        }
        let numbers: Vec<u64> = (0..silos.next).collect();
        while numbers.iter().any(|number| silos.carry(0, *number) || silos.carry(1, *number)) {}
        let current = silos.current;
        assert_eq!(current[0], current[1], "seed {seed}");
        for (side, number) in current.into_iter().enumerate() {
            let link = &silos.half(side, number).link;
            assert!(!link.is_retired() && link.takes_calls(), "seed {seed}");
        }
        crossings += u32::from(renewals > 1);
    }
    assert!(crossings > 1_000);
}
