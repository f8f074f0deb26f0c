//! The network between hosts: latency, loss, partitions, flip-flopping and slow links.

use std::time::Duration;

use emmer_core::rng::SeededRng;

use crate::time::{VirtualTime, nanos};

/// Number of times a stream transport sends a lost segment again before it gives the connection up:
/// 200 ms, then twice as long each time, about 12.6 s in all.
pub const RETRANSMITS_MAX: u8 = 5;

/// The first retransmission timeout of a stream transport (Linux: 200 ms at least).
pub const RETRANSMIT_FIRST: Duration = Duration::from_millis(200);

/// Time that something takes: at least `min`, evenly spread over `spread` more, and for a share of
/// `tail` an exponentially distributed `tail_mean` on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The least.
    pub min: Duration,
    /// Range that is added evenly.
    pub spread: Duration,
    /// The share (0 to 1) that is unlucky.
    pub tail: f64,
    /// Time that the unlucky ones take longer, on average.
    pub tail_mean: Duration,
}

impl Latency {
    /// From `min` to `min + spread`, evenly.
    pub const fn even(min: Duration, spread: Duration) -> Self {
        Self { min, spread, tail: 0.0, tail_mean: Duration::ZERO }
    }

    /// Draws one.
    pub fn draw(&self, rng: &mut SeededRng) -> Duration {
        let mut drawn = self.min + rng.duration_below(self.spread);
        if self.tail > 0.0 && rng.chance(self.tail) {
            // At most five times the mean: a bound that no timeout in a test depends on.
            let factor = -(1.0 - rng.unit()).max(f64::MIN_POSITIVE).ln();
            drawn += self.tail_mean.mul_f64(factor.min(5.0));
        }
        drawn
    }
}

/// Effect of loss on the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A lost message is gone; messages may overtake each other.
    Datagram,
    /// A lost message is sent again after 200 ms, 400 ms, ...; messages of one connection stay in
    /// order.
    Stream,
}

/// The healthy network's properties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkModel {
    /// One way, between any two hosts.
    pub latency: Latency,
    /// The share of messages lost everywhere, all the time.
    pub loss: f64,
    /// The share of membership messages that arrive twice.
    pub duplicates: f64,
    /// Effect of loss.
    pub transport: Transport,
}

impl Default for NetworkModel {
    /// 0.5 to 0.7 ms one way, no loss, streams: the reference point of the goals in
    /// lab/numbers.md.
    fn default() -> Self {
        Self {
            latency: Latency::even(Duration::from_micros(500), Duration::from_micros(200)),
            loss: 0.0,
            duplicates: 0.0,
            transport: Transport::Stream,
        }
    }
}

/// Direction of a cut, seen from the hosts it surrounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Nothing comes in and nothing goes out.
    Both,
    /// Nothing comes in: those inside are deaf.
    In,
    /// Nothing goes out: those inside are mute.
    Out,
}

/// A set of hosts or processes by number, as a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSet(Vec<u64>);

impl HostSet {
    /// Adds a host; whether it was not in.
    pub fn insert(&mut self, host: u32) -> bool {
        let was = self.contains(host);
        let word = host as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (host % 64);
        !was
    }

    /// Takes a host out; whether it was in.
    pub fn remove(&mut self, host: u32) -> bool {
        let was = self.contains(host);
        if was {
            self.0[host as usize / 64] &= !(1 << (host % 64));
        }
        was
    }

    /// Returns true if it never had a member.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `host` is in it.
    pub fn contains(&self, host: u32) -> bool {
        self.0.get(host as usize / 64).is_some_and(|word| word >> (host % 64) & 1 == 1)
    }

    /// The hosts, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.0).flat_map(|(word, bits)| {
            (0..64u32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
    }
}

impl FromIterator<u32> for HostSet {
    fn from_iter<I: IntoIterator<Item = u32>>(hosts: I) -> Self {
        let mut set = Self::default();
        for host in hosts {
            set.insert(host);
        }
        set
    }
}

/// A cut around some hosts that is in force now.
#[derive(Clone, Debug)]
struct Cut {
    id: u32,
    inside: HostSet,
    direction: Direction,
    since: VirtualTime,
    /// On for this long, then off for as long, and so on; always on when none.
    flip: Option<Duration>,
}

impl Cut {
    fn blocks(&self, from: u32, to: u32, at: VirtualTime) -> bool {
        let crossing = match (self.inside.contains(from), self.inside.contains(to)) {
            (true, false) => self.direction != Direction::In,
            (false, true) => self.direction != Direction::Out,
            _ => false,
        };
        crossing
            && self.flip.is_none_or(|half| {
                (nanos(at.since(self.since)) / nanos(half).max(1)).is_multiple_of(2)
            })
    }
}

/// Trouble of single hosts' links that is in force now.
#[derive(Clone, Copy, Debug, Default)]
struct HostTrouble {
    loss_in: f64,
    loss_out: f64,
    extra: Duration,
}

/// Decision of the network about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives after this long.
    Arrives(Duration),
    /// It does not arrive.
    Lost,
}

/// The network with the faults that are in force now.
#[derive(Debug)]
pub struct Network {
    model: NetworkModel,
    rng: SeededRng,
    cuts: Vec<Cut>,
    /// One directed link each: id, from, to.
    broken_links: Vec<(u32, u32, u32)>,
    /// Hosts that something refuses connections to, by the number of the fault.
    refusing: Vec<(u32, u32)>,
    hosts: Vec<HostTrouble>,
    /// True if any host is in trouble: the quick way out when none is.
    troubled: bool,
}

impl Network {
    /// The network of `hosts` hosts.
    pub fn new(model: NetworkModel, hosts: u32, seed: u64) -> Self {
        Self {
            model,
            rng: SeededRng::new(seed),
            cuts: Vec::new(),
            broken_links: Vec::new(),
            refusing: Vec::new(),
            hosts: vec![HostTrouble::default(); hosts as usize],
            troubled: false,
        }
    }

    /// Effect of loss here.
    pub const fn transport(&self) -> Transport {
        self.model.transport
    }

    /// Returns true if a cut or a broken link stops everything from `from` to `to` at `at`.
    pub fn is_cut(&self, from: u32, to: u32, at: VirtualTime) -> bool {
        from != to
            && (self.cuts.iter().any(|cut| cut.blocks(from, to, at))
                || self.broken_links.iter().any(|(_, f, t)| (*f, *t) == (from, to)))
    }

    /// Decides about a message sent now from `from` to `to`.
    pub fn judge(&mut self, from: u32, to: u32, at: VirtualTime) -> Verdict {
        if self.is_cut(from, to, at) {
            return Verdict::Lost;
        }
        let mut delay = self.model.latency.draw(&mut self.rng);
        if self.model.loss > 0.0 && self.rng.chance(self.model.loss) {
            return Verdict::Lost;
        }
        if self.troubled && from != to {
            let (out, into) = (self.hosts[from as usize], self.hosts[to as usize]);
            for loss in [out.loss_out, into.loss_in] {
                if loss > 0.0 && self.rng.chance(loss) {
                    return Verdict::Lost;
                }
            }
            delay += out.extra + into.extra;
        }
        Verdict::Arrives(delay)
    }

    /// Cuts `inside` off the rest, under a number to heal it by.
    pub fn cut(
        &mut self,
        id: u32,
        inside: HostSet,
        direction: Direction,
        flip: Option<Duration>,
        at: VirtualTime,
    ) {
        self.cuts.push(Cut { id, inside, direction, since: at, flip });
    }

    /// Breaks the link from one host to another, one way.
    pub fn break_link(&mut self, id: u32, from: u32, to: u32) {
        self.broken_links.push((id, from, to));
    }

    /// Lets something on the way refuse every new connection to `host`.
    pub fn refuse(&mut self, id: u32, host: u32) {
        self.refusing.push((id, host));
    }

    /// Returns true if something on the way refuses new connections to `host`.
    pub fn refuses(&self, host: u32) -> bool {
        self.refusing.iter().any(|(_, refused)| *refused == host)
    }

    /// Returns true if the message sent now arrives twice.
    pub fn duplicates(&mut self) -> bool {
        self.model.duplicates > 0.0 && self.rng.chance(self.model.duplicates)
    }

    /// Ends the cut, broken link or refusal with this number.
    pub fn heal(&mut self, id: u32) {
        self.refusing.retain(|(fault, _)| *fault != id);
        self.cuts.retain(|cut| cut.id != id);
        self.broken_links.retain(|(link, ..)| *link != id);
    }

    /// Loses a share of the packets of `host`, in both directions; zero ends it.
    pub fn set_loss(&mut self, host: u32, loss_in: f64, loss_out: f64) {
        let trouble = &mut self.hosts[host as usize];
        (trouble.loss_in, trouble.loss_out) = (loss_in, loss_out);
        self.refresh();
    }

    /// Makes everything in and out of `host` take longer; zero ends it.
    pub fn set_extra_delay(&mut self, host: u32, extra: Duration) {
        self.hosts[host as usize].extra = extra;
        self.refresh();
    }

    /// Ends the random faults of the model itself: loss everywhere and unlucky latencies.
    pub fn calm(&mut self) {
        self.model.loss = 0.0;
        self.model.duplicates = 0.0;
        self.model.latency.tail = 0.0;
    }

    fn refresh(&mut self) {
        let bad = |t: &HostTrouble| t.loss_in > 0.0 || t.loss_out > 0.0 || !t.extra.is_zero();
        self.troubled = self.hosts.iter().any(bad);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network::new(NetworkModel::default(), 5, 1)
    }

    fn reaches(net: &Network, from: u32, to: u32, secs: u64) -> bool {
        !net.is_cut(from, to, VirtualTime::from_secs(secs))
    }

    #[test]
    fn one_way_cuts_work_one_way() {
        let mut net = network();
        net.cut(1, HostSet::from_iter([0, 1]), Direction::In, None, VirtualTime::ZERO);
        assert!(reaches(&net, 0, 3, 1) && !reaches(&net, 3, 0, 1) && reaches(&net, 0, 1, 1));
        net.heal(1);
        net.cut(2, HostSet::from_iter([0]), Direction::Out, None, VirtualTime::ZERO);
        assert!(!reaches(&net, 0, 3, 1) && reaches(&net, 3, 0, 1) && !reaches(&net, 0, 1, 1));
        net.cut(3, HostSet::from_iter([3]), Direction::Both, None, VirtualTime::ZERO);
        assert!(!reaches(&net, 3, 0, 1) && !reaches(&net, 1, 3, 1));
    }

    #[test]
    fn flip_flops_go_on_and_off() {
        let mut net = network();
        let half = Some(Duration::from_secs(20));
        net.cut(1, HostSet::from_iter([0]), Direction::In, half, VirtualTime::from_secs(100));
        let seen: Vec<bool> = [101, 119, 121, 139, 141].map(|at| reaches(&net, 1, 0, at)).into();
        assert_eq!(seen, [false, false, true, true, false]);
    }

    #[test]
    fn loss_of_a_host_is_about_its_share_and_only_its_own() {
        let mut net = network();
        net.set_loss(2, 0.8, 0.0);
        let mut lost = |from, to| {
            (0..10_000).filter(|_| net.judge(from, to, VirtualTime::ZERO) == Verdict::Lost).count()
        };
        assert!((7_500..8_500).contains(&lost(0, 2)));
        assert_eq!((lost(2, 0), lost(0, 1)), (0, 0));
    }

    #[test]
    fn host_sets_list_their_members() {
        let set = HostSet::from_iter([70, 3, 64, 0]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 64, 70]);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(1_000));
    }
}
