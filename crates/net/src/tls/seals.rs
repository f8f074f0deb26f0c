//! Seals, which say which of the silos a peer is.
//!
//! Certificates and secrets say that their owner is a silo, and several silos may have the same.
//! Each silo's process therefore draws a key when it starts, and signs each of its connections. A
//! process that dials a silo's address learns the key there, which counts for the silo's epoch. A
//! dialer that claims to be this silo has to show the same key.

use std::collections::{HashMap, VecDeque};

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use emmer_core::SiloAddress;
use emmer_wire::Seal;
use parking_lot::Mutex;

/// The most silos whose keys are known at once. The key of one that is forgotten is asked for
/// again.
const KNOWN_MAX: usize = 16_384;

/// The bytes that TLS exports for one connection.
pub(crate) type Exported = [u8; 32];

type Key = [u8; 32];

/// The key of this process, and those of other silos.
pub(crate) struct Seals {
    own: Ed25519KeyPair,
    key: Key,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: HashMap<SiloAddress, Key>,
    /// The silos in the order in which they became known.
    order: VecDeque<SiloAddress>,
}

impl Seals {
    /// Draws a key.
    pub(super) fn new() -> Result<Self, Unspecified> {
        let own = Ed25519KeyPair::generate()?;
        let key = own.public_key().as_ref().try_into().map_err(|_| Unspecified)?;
        Ok(Self { own, key, known: Mutex::default() })
    }

    /// The seal of this process, which is silo `me`.
    pub(crate) fn seal(&self, me: SiloAddress, dials: bool, exported: &Exported) -> Option<Seal> {
        let signature = self.own.sign(&Seal::text(me, dials, exported));
        let signature = signature.as_ref().try_into().ok()?;
        Some(Seal { key: self.key, signature })
    }

    /// Judges the seal of a process that has dialled `me` and says that it is `silo`. True: the
    /// process at that silo's address has shown the same key. False: that address was not asked
    /// yet.
    ///
    /// # Errors
    /// It is not, for people.
    pub(crate) fn judge(
        &self,
        me: SiloAddress,
        silo: SiloAddress,
        seal: Option<&Seal>,
        exported: &Exported,
    ) -> Result<bool, String> {
        let key = verified(silo, true, seal, exported)?;
        let known =
            if silo == me { Some(self.key) } else { self.known.lock().keys.get(&silo).copied() };
        match known {
            None => Ok(false),
            Some(known) if known == key => Ok(true),
            Some(_) => Err(another(silo)),
        }
    }

    /// Judges the seal of the process that answers as `silo`, and learns its key if it is the
    /// process `at_its_address`.
    ///
    /// # Errors
    /// It is not that silo, for people.
    pub(crate) fn learn(
        &self,
        silo: SiloAddress,
        at_its_address: bool,
        seal: Option<&Seal>,
        exported: &Exported,
    ) -> Result<(), String> {
        let key = verified(silo, false, seal, exported)?;
        let mut known = self.known.lock();
        match known.keys.get(&silo) {
            Some(known) if *known == key => Ok(()),
            Some(_) => Err(another(silo)),
            None => {
                if at_its_address {
                    known.insert(silo, key);
                }
                Ok(())
            }
        }
    }
}

impl Known {
    fn insert(&mut self, silo: SiloAddress, key: Key) {
        if self.order.len() >= KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.insert(silo, key);
        self.order.push_back(silo);
    }
}

fn another(silo: SiloAddress) -> String {
    format!("another process is {silo}")
}

/// The key in a seal that was made for this connection.
fn verified(
    silo: SiloAddress,
    dials: bool,
    seal: Option<&Seal>,
    exported: &Exported,
) -> Result<Key, String> {
    let seal = seal.ok_or_else(|| format!("it does not prove that it is {silo}: no seal"))?;
    UnparsedPublicKey::new(&ED25519, seal.key)
        .verify(&Seal::text(silo, dials, exported), &seal.signature)
        .map_err(|_| format!("it does not prove that it is {silo}: a wrong seal"))?;
    Ok(seal.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silo(n: u16) -> SiloAddress {
        SiloAddress::new(([10, 0, 0, 1], n).into(), u64::from(n))
    }

    #[test]
    fn a_seal_is_good_for_one_silo_one_side_and_one_connection() {
        let (a, b) = (Seals::new().unwrap(), Seals::new().unwrap());
        let (here, there) = ([1; 32], [2; 32]);
        let seal = b.seal(silo(2), true, &here);
        let judge = |who, seal: &Option<Seal>, on| a.judge(silo(1), who, seal.as_ref(), on);
        assert_eq!(judge(silo(2), &seal, &here), Ok(false));
        let wrong = "it does not prove that it is 10.0.0.1:2:2: a wrong seal";
        assert_eq!(judge(silo(2), &seal, &there), Err(wrong.to_owned()));
        assert_eq!(judge(silo(2), &b.seal(silo(2), false, &here), &here), Err(wrong.to_owned()));
        assert_eq!(judge(silo(2), &b.seal(silo(3), true, &here), &here), Err(wrong.to_owned()));
        let missing = "it does not prove that it is 10.0.0.1:2:2: no seal";
        assert_eq!(judge(silo(2), &None, &here), Err(missing.to_owned()));
        let mut changed = seal.unwrap();
        changed.key = a.key;
        assert_eq!(judge(silo(2), &Some(changed), &here), Err(wrong.to_owned()));
    }

    #[test]
    fn the_process_at_the_address_of_a_silo_is_that_silo() {
        let (a, b, c) = (Seals::new().unwrap(), Seals::new().unwrap(), Seals::new().unwrap());
        let on = [7; 32];
        let says = |of: &Seals, n| of.seal(silo(n), true, &on);
        let answers = |of: &Seals, n| of.seal(silo(n), false, &on);
        let judge = |n, seal: Option<Seal>| a.judge(silo(1), silo(n), seal.as_ref(), &on);
        // An answer from elsewhere teaches nothing.
        a.learn(silo(2), false, answers(&c, 2).as_ref(), &on).unwrap();
        assert_eq!(judge(2, says(&b, 2)), Ok(false));
        a.learn(silo(2), true, answers(&b, 2).as_ref(), &on).unwrap();
        assert_eq!(judge(2, says(&b, 2)), Ok(true));
        let another = || Err("another process is 10.0.0.1:2:2".to_owned());
        assert_eq!(judge(2, says(&c, 2)), another());
        assert_eq!(a.learn(silo(2), true, answers(&c, 2).as_ref(), &on), another().map(drop));
        // No other process is this silo itself.
        assert_eq!(judge(1, says(&a, 1)), Ok(true));
        assert_eq!(judge(1, says(&c, 1)), Err("another process is 10.0.0.1:1:1".to_owned()));
    }

    #[test]
    fn the_oldest_is_forgotten_when_many_are_known() {
        let mut known = Known::default();
        for n in 0..KNOWN_MAX as u64 + 3 {
            known.insert(SiloAddress::new(([10, 0, 0, 1], 1).into(), n), [0; 32]);
        }
        assert_eq!((known.keys.len(), known.order.len()), (KNOWN_MAX, KNOWN_MAX));
        assert!(!known.keys.contains_key(&SiloAddress::new(([10, 0, 0, 1], 1).into(), 2)));
    }
}
