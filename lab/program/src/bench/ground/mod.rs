//! Where the processes of a measurement run, and how one silo is cut from the others there.
//!
//! | module | subject |
//! |---|---|
//! | this one | the choice: the loopback device, network namespaces, proxies |
//! | [`netns`] | each silo in a network namespace of its own; a router between them drops packets |
//! | [`proxy`] | each silo behind a proxy; a proxy stops to forward |
//! | [`forward`] | the way from namespaces to the store's server |
//!
//! A cut is silent: whatever is sent gets lost, nothing is refused and no connection ends. The
//! store stays within reach of all, and so does every silo for the callers next to it and for those
//! outside.

mod forward;
mod netns;
mod proxy;

use clap::ValueEnum;

use self::netns::Net;
use self::proxy::Proxies;
use super::stage::Stage;
use emmer_cli::commands::child::Place;
use emmer_cli::exit::Result;

/// Method by which silos are cut from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Network namespaces, between which a router drops packets: needs root and iproute2
    Netns,
    /// Proxies between silos, which stop to forward
    Proxy,
}

enum How {
    /// Nothing can be cut.
    Loopback,
    Netns(Net),
    Proxy(Proxies),
}

/// See the module.
pub(super) struct Ground {
    how: How,
    store: String,
}

impl Ground {
    /// Everything on the loopback device.
    pub(super) fn loopback(stage: &Stage) -> Self {
        Self { how: How::Loopback, store: stage.url.clone() }
    }

    /// Room for this number of silos that can be cut from each other; by default by namespaces,
    /// where they are allowed.
    pub(super) async fn divided(by: Option<By>, silos: usize, stage: &Stage) -> Result<Self> {
        if by != Some(By::Proxy) {
            match Net::set(silos) {
                Ok(net) => {
                    let store = forward::store(&stage.url, net.outside()).await?;
                    return Ok(Self { how: How::Netns(net), store });
                }
                Err(failure) if by.is_some() => return Err(failure),
                Err(failure) => stage.say(&format!("{failure}; proxies are used instead")),
            }
        }
        let proxies = Proxies::set(silos).await?;
        Ok(Self { how: How::Proxy(proxies), store: stage.url.clone() })
    }

    /// Name of the method, in words.
    pub(super) const fn kind(&self) -> &'static str {
        match self.how {
            How::Loopback => "nothing",
            How::Netns(_) => "network namespaces",
            How::Proxy(_) => "proxies",
        }
    }

    /// The store's URL for processes that run here.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// The place of a silo.
    pub(super) fn silo(&self, slot: usize) -> Place {
        match &self.how {
            How::Loopback => Place::default(),
            How::Netns(net) => net.place(Some(slot)),
            How::Proxy(proxies) => proxies.place(slot),
        }
    }

    /// The place of the callers next to a silo, or outside.
    pub(super) fn callers(&self, slot: Option<usize>) -> Place {
        match &self.how {
            How::Netns(net) => net.place(slot),
            How::Loopback | How::Proxy(_) => Place::default(),
        }
    }

    /// Must be told of every silo process.
    pub(super) fn started(&self, slot: usize, pid: u32) {
        if let How::Proxy(proxies) = &self.how {
            proxies.started(slot, pid);
        }
    }

    /// Cuts the silo at `slot` from all other silos.
    pub(super) fn cut(&self, slot: usize) -> Result<()> {
        match &self.how {
            How::Loopback => Ok(()),
            How::Netns(net) => net.cut(slot),
            How::Proxy(proxies) => {
                proxies.cut(Some(slot));
                Ok(())
            }
        }
    }

    /// Ends the cut.
    pub(super) fn heal(&self) -> Result<()> {
        match &self.how {
            How::Loopback => Ok(()),
            How::Netns(net) => net.heal(),
            How::Proxy(proxies) => {
                proxies.cut(None);
                Ok(())
            }
        }
    }
}
